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
