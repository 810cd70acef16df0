package engine

import (
	"errors"
	"slices"

	"github.com/weirmq/weir/internal/op"
)

// slowest returns the lowest position that one of the topic's routers needs something behind.
func (t *entry) slowest() (pos uint64, any bool) {
	for _, r := range listOf(&t.routes.out) {
		if at := max(r.pos.Load(), r.gaveUp.Load()); !any || at < pos {
			pos, any = at, true
		}
	}
	return pos, any
}

// routeRoom lets routers copy what is published.
type routeRoom struct{ e *Engine }

// published wakes routers that have room in the topic now, or whose next record has gone from it.
func (r routeRoom) published(t *entry, _ outcome) {
	r.e.madeRoom(t)
	for _, out := range listOf(&t.routes.out) {
		r.e.passesOver(out)
	}
	r.e.awaitExpiry(t)
}

// passesOver wakes a router that waits for room for a record which has gone. The lock of its source is
// held.
func (e *Engine) passesOver(r *router) {
	if r.waiting.Load() && !r.source.Live(r.next.Load()) && r.waiting.CompareAndSwap(true, false) {
		e.mark(r.source)
	}
}

func (routeRoom) appended(*entry, []op.Span) {}

// awaitsRoom reports whether a router has found no room in the topic, or none for a record of it.
func (routeRoom) awaitsRoom(t *entry) bool {
	waits := func(r *router) bool { return r.waiting.Load() }
	return slices.ContainsFunc(listOf(&t.routes.in), waits) || slices.ContainsFunc(listOf(&t.routes.out), waits)
}

func (routeRoom) ended(*entry) {} // routers end in the operation that ends their topic

// evicting notes what a cap is about to take before the routers have come to
// it, so that they can still copy it.
func (routeRoom) evicting(t *entry, gone op.Range, capped bool) {
	pos, any := t.slowest()
	from, to := max(pos, t.Loss), gone.To
	// What was lost in between is burnt, and not passed over with what is deleted.
	burns := slices.ContainsFunc(t.Lost, func(l op.LostRange) bool { return l.To > from })
	if !capped || !any || pos >= to || burns {
		return
	}
	var live []op.Range
	for at := from; at < to; {
		first, last := t.LiveRange(at, to)
		if first > to {
			break
		}
		live = append(live, op.Range{From: first, To: last})
		at = last
	}
	if t.routes.behind == nil {
		t.routes.behind = new(behind)
	}
	t.routes.behind.take(from, to, live)
	t.holdBehind(pos)
}

// holdBehind keeps the index entries of what is behind, above pos.
func (t *entry) holdBehind(pos uint64) {
	if t.routes.behind.empty() {
		t.Index.Unhold()
	} else {
		t.Index.Hold(max(pos, t.routes.behind.from))
	}
}

// releaseBehind forgets what all routers of the topic have passed.
func (e *Engine) releaseBehind(t *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.routes.behind.empty() {
		return
	}
	pos, any := t.slowest()
	if !any {
		pos = t.routes.behind.to
	}
	t.forgetBehind(pos)
}

// forgetBehind forgets what a cap took up to pos. t.mu is held.
func (t *entry) forgetBehind(pos uint64) {
	t.routes.behind.release(pos)
	t.holdBehind(pos)
	t.Index.Trim(t.Start)
}

// giveUp lets a router whose destination is full lose what a cap took, unless it has room before
// the others have copied that.
func (e *Engine) giveUp(r *router) {
	t := r.source
	t.mu.Lock()
	defer t.mu.Unlock()
	e.awaitExpiry(t)
	if !t.routes.behind.empty() {
		r.gaveUp.Store(t.routes.behind.to)
		pos, _ := t.slowest()
		t.forgetBehind(pos)
	}
	if t.routes.behind.empty() {
		e.passesOver(r) // what it has read may have gone before it waited
	}
}

// dropBehind gives up what a cap took: its routers have lost it.
func (e *Engine) dropBehind(t *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.routes.behind.empty() {
		t.forgetBehind(t.routes.behind.to)
	}
}

// dropUnreadable gives up what a cap took if the router at pos stands in it and
// found a record moved or damaged.
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

// madeRoom wakes routers that found the topic full and have room now. Its lock is held.
func (e *Engine) madeRoom(t *entry) {
	for _, r := range listOf(&t.routes.in) {
		if r.waiting.Load() && t.roomForFirst([]uint32{r.size.Load()}) > 0 && r.waiting.CompareAndSwap(true, false) {
			e.mark(r.source)
		}
	}
}

// maxBehind bounds the records kept for routers after a cap took them.
const maxBehind = 64 << 10

// behind is what caps took from a source before its routers had come to it. A
// number in from+1…to that is in no range held no live record when the cap took
// it. The zero value is empty.
type behind struct {
	from, to uint64
	ranges   []op.Range
	n        uint64
}

// empty reports whether nothing waits; also of nil.
func (b *behind) empty() bool { return b == nil || len(b.ranges) == 0 }

// take adds what a cap is about to take: live are the live ranges in from+1…to.
// It replaces what is there if it does not follow it, or if both together would
// be too much; routers have then lost the earlier part.
func (b *behind) take(from, to uint64, live []op.Range) {
	var n uint64
	for _, r := range live {
		n += r.To - r.From + 1
	}
	if b.empty() || from != b.to || b.n+n > maxBehind {
		*b = behind{from: from}
	}
	b.to = to
	if n > maxBehind {
		b.from = to
		return
	}
	b.ranges = append(b.ranges, live...)
	b.n += n
}

// next returns what a router at pos finds: how many numbers it has lost, and
// then either a range to read or, if ok is false, where it goes on.
func (b *behind) next(pos, loss uint64) (lost uint64, r op.Range, ok bool) {
	if b.empty() || pos >= b.to {
		return loss - pos, op.Range{From: loss + 1}, false
	}
	if pos < b.from {
		lost, pos = b.from-pos, b.from
	}
	for _, r := range b.ranges {
		if r.To > pos {
			return lost, op.Range{From: max(r.From, pos+1), To: r.To}, true
		}
	}
	return lost, op.Range{From: b.to + 1}, false
}

// release forgets what is at or below pos, which all routers have passed.
func (b *behind) release(pos uint64) {
	for len(b.ranges) > 0 && b.ranges[0].To <= pos {
		b.n -= b.ranges[0].To - b.ranges[0].From + 1
		b.ranges = b.ranges[1:]
	}
	b.from = max(b.from, min(pos, b.to))
	if len(b.ranges) == 0 {
		*b = behind{}
	}
}
