package server

import "sync/atomic"

// gauge counts what is in use under a cap, exactly: it never passes the cap
// and never refuses what would fit.
type gauge struct {
	n atomic.Int64
}

// take adds n unless that would pass limit; a limit of 0 is none.
func (g *gauge) take(n, limit int64) bool {
	for {
		used := g.n.Load()
		if limit > 0 && used+n > limit {
			return false
		}
		if g.n.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (g *gauge) give(n int64) { g.n.Add(-n) }
