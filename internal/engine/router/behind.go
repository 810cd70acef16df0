package router

import "github.com/weirmq/weir/internal/op"

// maxBehind bounds the records that wait for their routers after a cap took
// them.
const maxBehind = 64 << 10

// Behind is what caps took from a source before its routers had come to it.
// Every number in From+1…To that is in no range held no live record any more
// when the cap came. The zero value is empty.
type Behind struct {
	From, To uint64
	ranges   []op.Range
	n        uint64
}

// Empty reports whether nothing waits; also of nil.
func (b *Behind) Empty() bool { return b == nil || len(b.ranges) == 0 }

// Take adds what a cap is about to take: live are the live ranges in from+1…to.
// What does not follow the rest replaces it, and so does what would make it too
// large; the routers then have lost what was there before.
func (b *Behind) Take(from, to uint64, live []op.Range) {
	var n uint64
	for _, r := range live {
		n += r.To - r.From + 1
	}
	if b.Empty() || from != b.To || b.n+n > maxBehind {
		*b = Behind{From: from}
	}
	b.To = to
	if n > maxBehind {
		b.From = to
		return
	}
	b.ranges = append(b.ranges, live...)
	b.n += n
}

// Next returns what a router at pos finds: how many numbers it has lost, and
// then either a range to read or, if ok is false, where it goes on.
func (b *Behind) Next(pos, loss uint64) (lost uint64, r op.Range, ok bool) {
	if b.Empty() || pos >= b.To {
		return loss - pos, op.Range{From: loss + 1}, false
	}
	if pos < b.From {
		lost, pos = b.From-pos, b.From
	}
	for _, r := range b.ranges {
		if r.To > pos {
			return lost, op.Range{From: max(r.From, pos+1), To: r.To}, true
		}
	}
	return lost, op.Range{From: b.To + 1}, false
}

// Release forgets what is at or below pos, which all routers have passed.
func (b *Behind) Release(pos uint64) {
	for len(b.ranges) > 0 && b.ranges[0].To <= pos {
		b.n -= b.ranges[0].To - b.ranges[0].From + 1
		b.ranges = b.ranges[1:]
	}
	b.From = max(b.From, min(pos, b.To))
	if len(b.ranges) == 0 {
		*b = Behind{}
	}
}
