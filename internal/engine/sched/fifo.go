package sched

import "time"

// fifo is a heap of entries after time, then after the order of marking. Entries
// know their place in it, so that one can be taken out of the middle; putting one
// at the back, which is the usual case, costs one comparison.
type fifo []slot

type slot struct {
	at    time.Duration
	order uint64
	e     *entry
}

func (a slot) before(b slot) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (f *fifo) push(at time.Duration, e *entry) {
	*f = append(*f, slot{})
	f.up(len(*f)-1, slot{at, e.order, e})
}

// remove takes out the entry at i, 0 being the oldest.
func (f *fifo) remove(i int) *entry {
	q := *f
	e, n := q[i].e, len(q)-1
	moved := q[n]
	q[n] = slot{}
	*f = q[:n]
	switch {
	case i == n:
	case i > 0 && moved.before(q[(i-1)/2]):
		f.up(i, moved)
	default:
		f.down(i, moved)
	}
	return e
}

func (f fifo) up(i int, s slot) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.before(f[parent]) {
			break
		}
		f.set(i, f[parent])
		i = parent
	}
	f.set(i, s)
}

func (f fifo) down(i int, s slot) {
	for {
		child := 2*i + 1
		if child >= len(f) {
			break
		}
		if child+1 < len(f) && f[child+1].before(f[child]) {
			child++
		}
		if !f[child].before(s) {
			break
		}
		f.set(i, f[child])
		i = child
	}
	f.set(i, s)
}

func (f fifo) set(i int, s slot) {
	f[i] = s
	s.e.pos = int32(i)
}
