package engine

import "sync"

// Totals is what has happened in all topics since the engine was opened, in those that
// are gone too.
type Totals struct {
	Appended int64 // records
	Jobs     JobTotals
}

// JobTotals is what has happened to jobs.
type JobTotals struct {
	Claimed int64 // deliveries
	Nacked  int64 // deliveries that their worker gave back
	Expired int64 // deliveries whose lease ran out
	Acked   int64
	Dead    int64 // moved to the dead letters by the engine
}

func (n *Totals) add(m Totals) {
	n.Appended += m.Appended
	n.Jobs.Claimed += m.Jobs.Claimed
	n.Jobs.Nacked += m.Jobs.Nacked
	n.Jobs.Expired += m.Jobs.Expired
	n.Jobs.Acked += m.Jobs.Acked
	n.Jobs.Dead += m.Jobs.Dead
}

// atLeast raises each number to that of m.
func (n *Totals) atLeast(m Totals) {
	n.Appended = max(n.Appended, m.Appended)
	n.Jobs.Claimed = max(n.Jobs.Claimed, m.Jobs.Claimed)
	n.Jobs.Nacked = max(n.Jobs.Nacked, m.Jobs.Nacked)
	n.Jobs.Expired = max(n.Jobs.Expired, m.Jobs.Expired)
	n.Jobs.Acked = max(n.Jobs.Acked, m.Jobs.Acked)
	n.Jobs.Dead = max(n.Jobs.Dead, m.Jobs.Dead)
}

// endedTotals are those of topics that are gone, less what all topics had when the engine
// was opened.
type endedTotals struct {
	mu   sync.Mutex
	sum  Totals
	told Totals // what Engine.Totals returned last
}

func (s *endedTotals) add(n Totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum.add(n)
}

func (s *endedTotals) read() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sum
}

// tell returns n, or what was told before where that is more: a topic that ends while
// the totals are read is in neither half of them.
func (s *endedTotals) tell(n Totals) Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	n.atLeast(s.told)
	s.told = n
	return n
}

// totals returns those of one topic. Its lock is held.
func (t *entry) totals() Totals {
	n := Totals{Appended: int64(t.Head)}
	if t.jobs != nil {
		n.Jobs = t.jobTotals()
	}
	return n
}

func (t *entry) jobTotals() JobTotals {
	c, dead := t.jobs.q.Counts(), int64(t.DeadLettered-min(t.jobs.dead, t.DeadLettered))
	return JobTotals{Claimed: c.Claimed, Nacked: c.Nacked, Expired: c.Expired, Acked: max(0, c.Finished-dead), Dead: dead}
}

// Totals returns counters that never go back while the engine is open.
func (e *Engine) Totals() Totals {
	defer guard()
	sum, now := e.ended.read(), e.leaseClock()
	for _, t := range e.reg.all() {
		t.mu.Lock()
		if !t.gone {
			if t.jobs != nil {
				t.jobs.q.Expire(now)
			}
			sum.add(t.totals())
		}
		t.mu.Unlock()
	}
	return e.ended.tell(sum)
}

// Count returns how many live records a topic has, 0 if it is not there.
func (e *Engine) Count(name string) uint64 {
	defer guard()
	t, err := e.look(name)
	if err != nil {
		return 0
	}
	defer t.mu.Unlock()
	return t.Count
}
