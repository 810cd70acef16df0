package engine

import (
	"errors"

	rooms "github.com/weirmq/weir/internal/engine/router"
	"github.com/weirmq/weir/internal/op"
)

// slowest returns the lowest position of the topic's routers.
func (t *entry) slowest() (pos uint64, any bool) {
	for _, r := range listOf(&t.routers) {
		if at := r.pos.Load(); !any || at < pos {
			pos, any = at, true
		}
	}
	return pos, any
}

// keepForRouters notes what a cap is about to take before the routers have come
// to it, so that they can still copy it. The topic's lock is held.
func (t *entry) keepForRouters(to uint64) {
	pos, any := t.slowest()
	if !any || pos >= to || len(t.Lost) > 0 {
		return
	}
	from := max(pos, t.Loss)
	var live []op.Range
	for at := from; at < to; {
		first, last := t.LiveRange(at, to)
		if first > to {
			break
		}
		live = append(live, op.Range{From: first, To: last})
		at = last
	}
	if t.behind == nil {
		t.behind = new(rooms.Behind)
	}
	t.behind.Take(from, to, live)
	t.holdBehind(pos)
}

// holdBehind keeps the index of what is behind, above pos.
func (t *entry) holdBehind(pos uint64) {
	if t.behind.Empty() {
		t.Index.Unhold()
	} else {
		t.Index.Hold(max(pos, t.behind.From))
	}
}

// releaseBehind forgets what all routers of the topic have passed.
func (e *Engine) releaseBehind(t *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.behind.Empty() {
		return
	}
	pos, any := t.slowest()
	if !any {
		pos = t.behind.To
	}
	t.behind.Release(pos)
	t.holdBehind(pos)
	t.Index.Trim(t.Start)
}

// dropBehind gives up what a cap took: its routers have lost it.
func (e *Engine) dropBehind(t *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.behind.Empty() {
		t.behind.Release(t.behind.To)
		t.holdBehind(0)
		t.Index.Trim(t.Start)
	}
}

// dropUnreadable gives up what a cap took if the router at pos is among it and
// found it moved or damaged.
func (e *Engine) dropUnreadable(t *entry, pos uint64, err error) {
	var d *damaged
	if err != errMoved && !errors.As(err, &d) {
		return
	}
	t.mu.Lock()
	gone := pos < t.Loss
	t.mu.Unlock()
	if gone {
		e.dropBehind(t)
	}
}

// madeRoom lets routers go on that found the topic full. Its lock is held.
func (e *Engine) madeRoom(t *entry) {
	for _, r := range listOf(&t.feeders) {
		if r.waiting.CompareAndSwap(true, false) {
			e.mark(r.source)
		}
	}
}
