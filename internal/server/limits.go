package server

import "sync/atomic"

// gauge counts what is in use under a cap, exactly: it never exceeds the cap and never
// refuses what would fit.
type gauge struct {
	n atomic.Int64
}

// take adds n unless that would exceed limit; 0 means no limit.
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
