package engine

import (
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
)

// ProduceReasons are why messages were not stored, as the library's metrics say it.
var ProduceReasons = [...]string{"load_shedding", "queue_full", "buffer_full", "error"}

// Produced is how many messages were to be written to a queue since it is in memory.
type Produced struct {
	Attempts, Stored int64
	Failed           [len(ProduceReasons)]int64
}

// produced counts for Produced.
type produced struct {
	attempts, stored atomic.Int64
	failed           [len(ProduceReasons)]atomic.Int64
}

// count counts a write of n messages.
func (p *produced) count(n int, err error) {
	p.attempts.Add(int64(n))
	reason := len(ProduceReasons) - 1
	switch {
	case err == nil:
		p.stored.Add(int64(n))
		return
	case api.IsCode(err, api.CodeThrottled):
		reason = 0
	case api.IsCode(err, api.CodeTopicFull):
		reason = 1
	case api.IsCode(err, api.CodeDiskFull):
		reason = 2
	}
	p.failed[reason].Add(int64(n))
}

func (p *produced) read() (r Produced) {
	r.Attempts, r.Stored = p.attempts.Load(), p.stored.Load()
	for i := range p.failed {
		r.Failed[i] = p.failed[i].Load()
	}
	return r
}
