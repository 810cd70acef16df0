package engine

import (
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/internal/engine/sched"
)

// pushed is what a topic keeps for those to whom its records are pushed.
type pushed struct {
	task     sched.Task // its place in the ready set
	watchers watchers   // subs of open streams
	priority atomic.Int64
}

// watchers are the subs of one topic. Order of locks: topic, watchers, stream.
type watchers struct {
	n    atomic.Int32
	mu   sync.Mutex
	subs []*sub
}

func (ws *watchers) add(w *sub) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.slot = len(ws.subs)
	ws.subs = append(ws.subs, w)
	ws.n.Store(int32(len(ws.subs)))
}

func (ws *watchers) remove(w *sub) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	last := len(ws.subs) - 1
	if w.slot > last || ws.subs[w.slot] != w {
		return
	}
	ws.subs[w.slot] = ws.subs[last]
	ws.subs[w.slot].slot = w.slot
	ws.subs[last] = nil
	ws.subs = ws.subs[:last]
	ws.n.Store(int32(last))
	if last == 0 {
		ws.subs = nil
	}
}

// list appends the subs to dst.
func (ws *watchers) list(dst []*sub) []*sub {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return append(dst, ws.subs...)
}

// What pushed.priority holds besides the manual priority.
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
	t.push.priority.Store(v)
}

// base is the topic's priority now, without age.
func (e *Engine) base(t *entry) int {
	v := t.push.priority.Load()
	idle := int64(-1)
	if read := t.lastRead.Load(); read != 0 {
		idle = max(0, e.clock()-read)
	}
	return sched.Base(int64(int32(uint32(v))), v&manualPriority != 0, v&autoPriority != 0, idle)
}

// enlist gives the topic its place in the ready set; before it is found by name.
func (e *Engine) enlist(t *entry) {
	t.setPriority()
	t.push.task.Init(t.ID, t, func() int { return e.base(t) })
}

// effectivePriority is what the contract shows: the base, and the age while
// the topic is queued.
func (e *Engine) effectivePriority(t *entry) int64 {
	p := e.base(t)
	if age, queued := e.sched.Age(&t.push.task, e.mono()); queued {
		p += age
	}
	return int64(p)
}

// mark makes the topic dirty if anyone is to be told of its records.
func (e *Engine) mark(t *entry) {
	if t.push.watchers.n.Load() == 0 && !t.hasRouters() || t.push.task.Dirty() {
		return
	}
	e.sched.Mark(&t.push.task, e.mono())
}

func (t *entry) hasRouters() bool { return t.routes.out.Load() != nil }
