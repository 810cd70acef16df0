package server

import (
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
)

// produceReasons are why messages were not stored, as the library's metrics say it.
var produceReasons = [...]string{"load_shedding", "queue_full", "buffer_full", "error"}

const producedFor = "weir" // label queue_type

// produced counts what was to be written to a topic.
type produced struct {
	attempts, stored atomic.Int64
	failed           [len(produceReasons)]atomic.Int64
}

// production counts the writes to each topic that there is.
type production struct{ topics sync.Map } // name → *produced

// of returns the counters of a topic.
func (p *production) of(topic string) *produced {
	if row, ok := p.topics.Load(topic); ok {
		return row.(*produced)
	}
	row, _ := p.topics.LoadOrStore(topic, new(produced))
	return row.(*produced)
}

// count counts a write of n messages to a topic that there is.
func (p *production) count(topic string, n int, err error) {
	row := p.of(topic)
	row.attempts.Add(int64(n))
	reason := len(produceReasons) - 1
	switch {
	case err == nil:
		row.stored.Add(int64(n))
		return
	case api.IsCode(err, api.CodeThrottled):
		reason = 0
	case api.IsCode(err, api.CodeTopicFull):
		reason = 1
	case api.IsCode(err, api.CodeDiskFull):
		reason = 2
	}
	row.failed[reason].Add(int64(n))
}

// forget ends the counters of a topic that is gone.
func (p *production) forget(topic string) { p.topics.Delete(topic) }

// collect sends the numbers of one queue, zeroes too: a rate has to see the first event.
func (p *production) collect(topic string, count func(name string, v int64, labels ...string)) {
	row := &produced{}
	if have, ok := p.topics.Load(topic); ok {
		row = have.(*produced)
	}
	count("sse_queue_produce_attempts_total", row.attempts.Load(), producedFor, topic)
	count("sse_queue_produce_success_total", row.stored.Load(), producedFor, topic)
	for i, reason := range produceReasons {
		count("sse_queue_produce_failures_total", row.failed[i].Load(), producedFor, topic, reason)
	}
}
