package weir

import "time"

// part returns how many of the visit's next messages, of which there are most, may go
// at once: one above the soft limit, where each has its sleep, otherwise as many as fit
// below the limits. It is at least 1; depth decides whether there is room.
func (g *guard) part(v *visit, most int64) (int64, error) {
	set := g.settings.Load()
	switch {
	case most == 1 || v.done || set.shadow || set.rules == GuardOff:
		return most, nil
	case set.rules == GuardAdaptive:
		return min(most, set.limit), nil
	case v.r == nil:
		return most, nil
	}
	if is, _ := g.judge(set, v.r, time.Now()); is != nominal {
		return 1, nil
	}
	if !v.r.shared {
		return set.fitting(v.r, g.signals.appended.Load()-v.r.appended+v.r.promised, most), nil
	}
	n := set.fitting(v.r, v.r.promised, most)
	if n == most {
		return n, nil
	}
	// Near a limit no more than this process was given.
	if v.r.at.Before(v.now) {
		if err := g.newer(v); err != nil {
			return 0, err
		}
	}
	return max(1, min(set.fitting(v.r, 0, most), g.signals.left.Load())), nil
}

// fitting returns how many of most messages fit below the limits if that many came
// since the reading, and 1 if none does.
func (s *settings) fitting(r *reading, since, most int64) int64 {
	n := min(most, s.limit)
	if depth, known := r.depth(); known {
		n = min(n, s.limit-depth-since)
	}
	if backlog, known := r.signal(SignalBacklog); known && s.LagSignal == SignalBacklog {
		for _, limit := range []int64{s.LagWarn, s.LagPause} {
			if limit >= 0 {
				n = min(n, limit-backlog-since+1) // the one that reaches a limit passes
			}
		}
	}
	return max(n, 1)
}
