package admission

import (
	"sync"
	"time"
)

// Objective is the longest wait that one of those who share a controller accepts; the zero
// value is none.
type Objective struct {
	SLO   time.Duration
	Watch bool // it refuses nothing by it
}

// objectives counts those of a controller.
type objectives struct {
	mu sync.Mutex
	of map[Objective]int
}

// Change replaces an objective by another one. There is one queue, so the shortest is held
// for all; those that only watch count while there are no others. When the last one has
// gone, it stays.
func (c *Controller) Change(was, is Objective) {
	o := &c.objectives
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[Objective]int{}
	}
	if o.of[was]--; o.of[was] <= 0 {
		delete(o.of, was)
	}
	if is.SLO > 0 {
		o.of[is]++
	}
	var held Objective
	for one := range o.of {
		if held.SLO == 0 || held.Watch && !one.Watch || held.Watch == one.Watch && one.SLO < held.SLO {
			held = one
		}
	}
	if held.SLO > 0 {
		c.Configure(held.SLO)
	}
}

// SLO is the longest wait that is acceptable.
func (c *Controller) SLO() time.Duration { return time.Duration(c.slo.Load()) }
