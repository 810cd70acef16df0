package weir

import (
	"fmt"
	"time"
)

// depth is the last check: whether there is room for the visit's messages. In shadow
// and while the guard is off there always is.
func (g *guard) depth(v *visit) (room bool, err error) {
	set := g.settings.Load()
	if v.done || set.rules == GuardOff {
		return true, nil
	}
	g.approach(set, v)
	room, err = g.room(set, v)
	if err != nil {
		return false, err
	}
	if set.shadow {
		g.shadowDepth(set, v, room)
		return true, nil
	}
	if !room {
		g.note(stageWarning, set, v, event{text: "the queue is at its capacity", decision: string(DepthWait)})
	}
	return room, nil
}

// room takes the messages' room from what the last reading leaves below the limits.
// Once that is used up it reads again, so that a process overshoots no limit, however old
// a reading may be, and so that callers released by a pause do not all pass on the same
// number. What is on its way when the load is read counts as if it had arrived.
//
// If the backend shares the room among all processes, a publish takes it from its
// process's share; once that is used up it reads again, which asks for more.
func (g *guard) room(set *settings, v *visit) (bool, error) {
	for {
		depth, known := v.r.depth()
		need := min(v.n, set.limit)
		switch {
		case !known:
			g.signals.flying.Add(need) // the next reading counts it
			g.signals.appended.Add(need)
			v.took = need
			return true, nil
		case depth+need > set.limit:
			return false, nil
		case g.take(set, v, depth, need):
			v.took = need
			return true, nil
		}
		crowded := !set.shadow && set.crowded(v.r)
		full := depth+v.r.promised+need > set.limit || !crowded && v.r.denies(set, need)
		var err error
		switch {
		case !full && !crowded, v.r.at.Before(v.now):
			err = g.newer(v)
		case full:
			return false, nil
		default:
			err = g.halt(g.settings.Load(), v)
		}
		if err != nil {
			return false, err
		}
	}
}

// take takes room for need messages if there is as much below the limits.
func (g *guard) take(set *settings, v *visit, depth, need int64) bool {
	s := g.signals
	if v.r.shared && !set.shadow {
		left, ok := s.take(need)
		if ok && left < s.low.Load() {
			g.refresh(need)
		}
		return ok
	}
	fits := func(appended int64) bool {
		others := appended - v.r.appended + v.r.promised
		return depth+others+need <= set.limit && (set.shadow || !set.pausesAt(v.r, others))
	}
	if !fits(s.appended.Load()) {
		return false
	}
	s.flying.Add(need) // first: a reading must not miss it
	for at := s.appended.Load(); fits(at); at = s.appended.Load() {
		if s.appended.CompareAndSwap(at, at+need) {
			return true
		}
	}
	s.flying.Add(-need)
	return false
}

// pausesAt reports whether the backlog is above the hard limit if that many messages
// came since it was read. That says nothing about pending messages.
func (s *settings) pausesAt(r *reading, since int64) bool {
	backlog, known := r.signal(SignalBacklog)
	return s.LagSignal == SignalBacklog && s.LagPause >= 0 && known && backlog+since > s.LagPause
}

// crowded reports whether the backlog is above the hard limit together with what
// producers may still append to it.
func (s *settings) crowded(r *reading) bool { return r != nil && s.pausesAt(r, r.promised) }

// landed gives back the room of a finished append: its messages are in the stream, or
// never will be.
func (g *guard) landed(v *visit) {
	g.freed(v.took)
	v.took = 0
}

// freed gives back room that was taken for an append.
func (g *guard) freed(took int64) {
	if took > 0 {
		g.signals.flying.Add(-took)
	}
}

// shadowDepth counts what a guard would do without room: wait, and refuse once there
// has been none for as long as all its waits take.
func (g *guard) shadowDepth(set *settings, v *visit, room bool) {
	if room {
		g.fullSince.Store(0)
		return
	}
	now := v.now.UnixNano()
	since := now
	if !g.fullSince.CompareAndSwap(0, now) {
		since = g.fullSince.Load()
	}
	waits := set.BackpressureBaseDelay * (1<<max(set.BackpressureRetries, 0) - 1)
	decision := string(DepthWait)
	if time.Duration(now-since) >= waits {
		decision = string(QueueFull)
	}
	g.note(stageWarning, set, v, event{text: "publish would wait for room in the queue", decision: decision})
}

// aboveSoft says what is above the soft limit.
func (s *settings) aboveSoft(signal int64) string {
	if s.LagSignal == SignalPending {
		return fmt.Sprintf("%d messages are pending, more than lag_warn %d", signal, s.LagWarn)
	}
	return fmt.Sprintf("the backlog is %d, more than lag_warn %d", signal, s.LagWarn)
}

// aboveHard says what is above the hard limit.
func (s *settings) aboveHard(r *reading) string {
	signal, known := r.signal(s.LagSignal)
	switch {
	case !known && s.LagUnknown == UnknownHold:
		return "the load of the workers is unknown and lag_unknown is hold"
	case !known:
		return fmt.Sprintf("the load of the workers was above lag_pause %d when last known, and lag_unknown is %s", s.LagPause, s.LagUnknown)
	case s.LagSignal == SignalPending:
		return fmt.Sprintf("%d messages are pending, more than lag_pause %d", signal, s.LagPause)
	case signal > s.LagPause:
		return fmt.Sprintf("the backlog is %d, more than lag_pause %d", signal, s.LagPause)
	}
	return fmt.Sprintf("the backlog is %d with %d more on their way, more than lag_pause %d", signal, r.promised, s.LagPause)
}

// noRoom says why there is no room below the depth's limit.
func (s *settings) noRoom(v *visit) string {
	depth, _ := v.r.depth()
	text := fmt.Sprintf("depth %d", depth)
	if depth < s.limit && v.r.promised > 0 {
		text += fmt.Sprintf(" and up to %d more on their way", v.r.promised)
	}
	if v.n > 1 {
		text += fmt.Sprintf(", %d to come", v.n)
	}
	if v.r.denied.Need > 0 && depth+v.r.promised+v.n <= s.limit {
		text += ", and what is left is kept for others"
	}
	if s.Budget != "" {
		return text + fmt.Sprintf("; the limit of budget %s is %d (budget_max_depth)", s.Budget, s.limit)
	}
	return text + fmt.Sprintf("; the limit is %d (QUEUE_BACKPRESSURE_THRESHOLD %v of QUEUE_MAX_DEPTH %d)", s.limit, s.BackpressureThreshold, s.MaxDepth)
}

// nearCapacity is the share of the depth's limit from which a warning is given.
const nearCapacity = 0.8

// approach reports once when the depth gets near its limit, and once when it leaves.
func (g *guard) approach(set *settings, v *visit) {
	depth, known := v.r.depth()
	near := known && depth >= set.warn
	if g.near.Load() == near || !g.near.CompareAndSwap(!near, near) {
		return
	}
	if g.hooks.NearCapacity != nil {
		g.hooks.NearCapacity(g.name, near)
	}
	if near && depth < set.limit { // at the limit another line says so
		signal, _ := v.r.signal(set.LagSignal)
		g.stages.note(stageWarning, event{
			logger: set.Logger, shadow: set.shadow, max: set.MaxDepth, depth: depth, signal: signal, decision: "near",
			text: fmt.Sprintf("the queue comes near its capacity: publishes wait from a depth of %d on", set.limit),
		})
	}
}
