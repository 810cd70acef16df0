package governor

import "time"

// From these pressures on, exclusive but for refuse, a step is taken.
const (
	coalesceAbove = 0.2
	commitAbove   = 0.4
	deferAbove    = 0.8
	deferUntil    = 0.6 // below, the pause ends
	refuseFrom    = 0.98

	sustained = 3 // samples in a row above deferAbove that begin the pause
)

const (
	coalesceMost = 20 * time.Millisecond
	commitLeast  = 500 * time.Microsecond
	commitMost   = 10 * time.Millisecond
)

// ladder remembers the one step that depends on more than the present pressure.
type ladder struct {
	high int // samples in a row above deferAbove
	on   bool
}

// step takes the pressure of one sample and returns whether to defer; atOnce
// says that one sample is enough.
func (l *ladder) step(pressure float64, atOnce bool) bool {
	switch {
	case pressure > deferAbove:
		l.high++
		l.on = l.on || l.high >= sustained || atOnce
	case pressure < deferUntil:
		l.high, l.on = 0, false
	default:
		l.high = 0
	}
	return l.on
}

// rung returns the highest step in force.
func rung(pressure float64, deferring, full bool) int {
	switch {
	case full && Refuses(pressure):
		return 4
	case deferring:
		return 3
	case pressure > commitAbove:
		return 2
	case pressure > coalesceAbove:
		return 1
	}
	return 0
}

func coalesceWindow(pressure float64) time.Duration {
	return time.Duration(float64(coalesceMost) * unit((pressure-coalesceAbove)/(1-coalesceAbove)))
}

func commitWindow(pressure float64) time.Duration {
	wider := unit((pressure - commitAbove) / (1 - commitAbove))
	return commitLeast + time.Duration(float64(commitMost-commitLeast)*wider)
}

// Refuses returns whether, at this pressure, a write that finds the ingest queue
// full is refused at once instead of waiting for room.
func Refuses(pressure float64) bool { return pressure >= refuseFrom }
