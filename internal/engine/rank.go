package engine

import (
	"sync/atomic"

	"github.com/weirmq/weir/internal/engine/sched"
)

// rank is a topic's place in the ready set, and what it is ranked by.
type rank struct {
	task     sched.Task
	priority atomic.Int64
}

// What rank.priority holds besides the manual priority.
const (
	manualPriority = 1 << 32
	autoPriority   = 1 << 33
)

// setPriority keeps what the configuration says of the topic's priority where
// the scheduler reads it without the topic's lock.
func (t *entry) setPriority() {
	v := int64(uint32(t.Config.Priority))
	if t.Config.HasPriority {
		v |= manualPriority
	}
	if t.Config.AutoPriority {
		v |= autoPriority
	}
	t.rank.priority.Store(v)
}

// base is the topic's priority now, without age.
func (e *Engine) base(t *entry) int {
	v := t.rank.priority.Load()
	idle := int64(-1)
	if read := t.lastRead.Load(); read != 0 {
		idle = max(0, e.clock()-read)
	}
	return sched.Base(int64(int32(uint32(v))), v&manualPriority != 0, v&autoPriority != 0, idle)
}

// enlist gives the topic its place in the ready set; before it is found by name.
func (e *Engine) enlist(t *entry) {
	t.setPriority()
	t.rank.task.Init(t.ID, t, func() int { return e.base(t) })
}

// effectivePriority is what the contract shows: the base, and the age while
// the topic is queued.
func (e *Engine) effectivePriority(t *entry) int64 {
	p := e.base(t)
	if age, queued := e.sched.Age(&t.rank.task, e.mono()); queued {
		p += age
	}
	return int64(p)
}
