package weir

import "time"

// part is how many of the visit's messages may go at once, by the reading that it
// was judged by last: one above the soft limit, where each has its sleep, else as
// many as fit below the limits. It is 1 at least; whether there is room is for depth.
func (g *guard) part(v *visit) int64 {
	set := g.settings.Load()
	if v.n == 1 || v.done || set.shadow || set.rules == GuardOff || v.r == nil {
		return v.n
	}
	if is, _ := g.judge(set, v.r, time.Now()); is != nominal {
		return 1
	}
	n, since := min(v.n, set.limit), g.signals.appended.Load()-v.r.appended
	if depth, known := v.r.depth(); known {
		n = min(n, set.limit-depth-since)
	}
	if backlog, known := v.r.signal(SignalBacklog); known && set.LagSignal == SignalBacklog {
		for _, limit := range []int64{set.LagWarn, set.LagPause} {
			if limit >= 0 {
				n = min(n, limit-backlog-since+1) // the one that reaches a limit passes
			}
		}
	}
	return max(n, 1)
}
