package engine

import "time"

// clock is the server's time in Unix ms. It never goes back, not even across a
// restart, so time stamps do not either and nothing expired comes back.
func (e *Engine) clock() int64 {
	now := e.opt.Now().UnixMilli()
	for {
		last := e.lastTS.Load()
		if now <= last {
			return last
		}
		if e.lastTS.CompareAndSwap(last, now) {
			return now
		}
	}
}

// leaseClock is the time leases live by: the wall clock as it was at the
// start, plus what has passed since on the monotonic clock, so that a step of
// the wall clock neither ends nor prolongs a lease.
func (e *Engine) leaseClock() int64 { return e.startMS + time.Since(e.startAt).Milliseconds() }

// wallOf turns a time of the lease clock into one of the wall clock, never a
// later one: now was read from the lease clock a moment ago, and what has
// passed since must not be promised to the holder of a lease. Nor is it much
// earlier, unless the machine stands still several times in a row between one
// clock and the other: a holder that is told less than it has gives up too soon.
func (e *Engine) wallOf(at, now int64) int64 {
	before := max(now, e.leaseClock())
	for tries := 1; ; tries++ {
		wall := e.opt.Now().UnixMilli()
		after := max(now, e.leaseClock())
		if after-before <= 1 || tries == wallTries {
			return wall + at - after
		}
		before = after
	}
}

// wallTries is how often wallOf reads the clocks at most.
const wallTries = 8

// mono is the clock of the scheduler: what has passed since the start.
func (e *Engine) mono() time.Duration { return time.Since(e.startAt) }
