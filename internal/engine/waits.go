package engine

import (
	"sync/atomic"
	"time"
)

// writeWaits adds up how long writes waited for room and for their class. Waits
// that the governor itself causes do not count: a wide commit window, or a
// refusal that a patient writer waits out, would keep itself up.
type writeWaits struct {
	done  [2]waitSum
	under atomic.Int64 // writes under way
}

func (w *writeWaits) add(kind int, d time.Duration) {
	w.done[kind].ns.Add(int64(d))
	w.done[kind].n.Add(1)
}

// Kinds of waits: a write of class fsync waits for the disk, others do not.
const (
	waitSynced = iota
	waitOther
)

// waitSum is a number of waits and their sum.
type waitSum struct{ n, ns atomic.Int64 }

func (s *waitSum) now() waited { return waited{s.n.Load(), time.Duration(s.ns.Load())} }

// waited is what a waitSum was at some time.
type waited struct {
	n   int64
	sum time.Duration
}

// mean is the mean of the waits since before.
func (w waited) mean(before waited) time.Duration {
	if w.n <= before.n {
		return 0
	}
	return (w.sum - before.sum) / time.Duration(w.n-before.n)
}
