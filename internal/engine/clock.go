package engine

import (
	"time"

	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

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

// leaseClock is the time leases and delays live by: it goes on where it stood before a restart, and
// counts what passes on the monotonic clock, so that a step of the wall clock neither ends nor
// prolongs a lease.
func (e *Engine) leaseClock() int64 { return e.startMS + time.Since(e.startAt).Milliseconds() }

// startClocks lets the lease clock go on after a restart. What passed while the server was down
// only the wall clock knows, so it is believed, from where it stood when they were noted last;
// the lease clock never goes back.
func (e *Engine) startClocks() {
	was := e.noted
	last := was.Lease
	if ts := e.lastTS.Load(); ts > was.TS { // the wall clock has not been behind it since
		last = max(last, ts-was.Offset())
	}
	e.startTS = e.clock()
	e.startAt, e.startMS = time.Now(), max(e.opt.Now().UnixMilli()-was.Offset(), last)
}

// clocks reads all clocks.
func (e *Engine) clocks() op.Clock {
	return op.Clock{Wall: e.opt.Now().UnixMilli(), Lease: e.leaseClock(), TS: e.clock()}
}

const (
	// clockStep is how far the wall clock moves against the lease clock before that is noted.
	clockStep = 50 // ms
	// clockTold is from when on it is told.
	clockTold = 1000
)

// noteClock logs how the clocks stand if the wall clock was stepped, or stood still. With an
// error of the log it is tried again.
func (e *Engine) noteClock() {
	before := e.leaseClock()
	now := e.clocks()
	by := now.Offset() - e.noted.Offset()
	gen := e.log.Gen()
	if now.Lease-before > clockStep/2 {
		return // the machine stood still between one clock and the other
	}
	ahead := now.TS-now.Wall >= clockStep && now.TS > e.noted.TS // it has been there, be it for a moment
	if max(by, -by) < clockStep && !ahead && gen == e.notedGen {
		return
	}
	part := op.Part{Kind: op.KindClock, Clock: now}
	if _, _, err := e.log.AppendUnslotted(gen, part.Encode(nil), nil, noFrames, wal.Memory); err != nil {
		return
	}
	if max(by, -by) >= clockTold {
		e.opt.Logger.Warn("the wall clock was stepped; leases and delays are not affected, what goes by time stamps is",
			"by", time.Duration(by)*time.Millisecond, "time_stamps_ahead", time.Duration(max(0, now.TS-now.Wall))*time.Millisecond)
	}
	e.noted, e.notedGen = now, gen
}

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
