package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// tallies are the counters that producers of queues keep here together, by the name of
// the queue. They are in memory only: a count that begins again is what producers expect.
type tallies struct {
	mu     sync.Mutex
	byName map[string]*tally
}

type tally struct {
	sums []uint32
	used time.Time
}

const (
	maxTallies = 1000 // queues that have counters
	tallyLasts = time.Hour
)

// add adds to the counters of a queue and returns as many as n has.
func (s *tallies) add(name string, n []uint32, now time.Time) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.byName[name]
	if x == nil {
		x = s.begin(name, now)
	}
	x.used = now
	if more := len(n) - len(x.sums); more > 0 {
		x.sums = append(x.sums, make([]uint32, more)...)
	}
	for i := range n {
		x.sums[i] += n[i]
	}
	return slices.Clone(x.sums[:len(n)])
}

// begin makes room for the counters of one more queue.
func (s *tallies) begin(name string, now time.Time) *tally {
	if s.byName == nil {
		s.byName = make(map[string]*tally)
	}
	var oldest string
	for other, x := range s.byName {
		if now.Sub(x.used) > tallyLasts {
			delete(s.byName, other)
		} else if oldest == "" || x.used.Before(s.byName[oldest].used) {
			oldest = other
		}
	}
	if len(s.byName) >= maxTallies {
		delete(s.byName, oldest)
	}
	x := &tally{}
	s.byName[name] = x
	return x
}

// Tally adds to what the producers of a queue have counted together, and says how the
// queue stands: all that they decide by, in one call. The queue need not be there yet.
func (e *Engine) Tally(name string, add []uint32) (api.TallyResult, error) {
	defer guard()
	var res api.TallyResult
	t, _, err := e.lockQueue(name)
	switch {
	case err == nil:
		res.Exists, res.TopicCounters = true, t.counters()
		res.Queue, res.Finished, res.Paused = t.jobCounters(e.leaseClock()), t.jobs.q.Finished(), t.Config.Paused
		t.mu.Unlock()
	case !api.IsCode(err, api.CodeTopicNotFound) || !api.ValidTopicName(name):
		return res, err
	}
	res.Sums = e.tallies.add(name, add, time.Now())
	return res, nil
}
