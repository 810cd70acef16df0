package engine

import (
	"time"

	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// clock is the server's time in Unix ms. It never goes back, across a restart not behind any time
// stamp that is left, so those of a topic do not either and nothing expired comes back.
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
	e.clock()
	wall := e.opt.Now().UnixMilli()
	e.startAt, e.startMS = time.Now(), max(wall-was.Offset(), last)
	if was.Clock == (op.Clock{}) { // nothing was noted: the two clocks agree
		e.noted.Lease, e.noted.Wall = last, last
	}
	e.noted.told = wall - e.startMS
	if back := was.Offset() - e.noted.told; back >= clockTold {
		e.opt.Logger.Warn("the wall clock is behind where it stood before the start; what passed meanwhile does not count for leases and delays",
			"by", time.Duration(back)*time.Millisecond)
	}
}

// clocks reads all clocks. ok is false if the machine stood still between one and the other, several
// times in a row.
func (e *Engine) clocks() (now op.Clock, ok bool) {
	for range clockTries {
		before := e.leaseClock()
		now = op.Clock{Wall: e.opt.Now().UnixMilli(), Lease: e.leaseClock(), TS: e.clock()}
		if now.Lease-before <= clockStep/2 {
			return now, true
		}
	}
	return now, false
}

const (
	// clockStep is how far the wall clock moves against the lease clock before that is noted.
	clockStep = 50 // ms
	// clockTold is from when on it is told.
	clockTold = 1000
	// clockEvery is how often the clocks are noted while something is logged, so that a restart with
	// a wall clock that was set back knows how late it was: time stamps that are ahead do not say it.
	clockEvery = 60_000
)

// noted is how the clocks stood as the log has it; recovery's, then of who holds noting.
type noted struct {
	op.Clock
	gen, lsn uint64 // of the log that has it, and how far that went
	told     int64  // how far the wall clock was ahead of the lease clock when that was told, or at the start
}

// noteClock logs how the clocks stand if the wall clock was stepped, or stood still, and now and then.
// With an error of the log it is tried again.
func (e *Engine) noteClock(stop bool) {
	e.noting.Lock()
	defer e.noting.Unlock()
	now, ok := e.clocks()
	if !ok {
		return
	}
	was, gen := &e.noted, e.log.Gen()
	by := now.Offset() - was.Offset()
	ahead := now.TS-now.Wall >= clockStep && now.TS > was.TS // it has been there, be it for a moment
	old := now.Lease-was.Lease >= clockEvery && (stop || e.log.Synced() > was.lsn)
	if max(by, -by) < clockStep && !ahead && !old && gen == was.gen {
		return
	}
	lsn, err := e.logClock(gen, now)
	if err != nil {
		return
	}
	told := was.told
	if by := now.Offset() - told; max(by, -by) >= clockTold {
		told = now.Offset()
		e.opt.Logger.Warn("the wall clock was stepped; leases and delays are not affected, what goes by time stamps is",
			"by", time.Duration(by)*time.Millisecond, "time_stamps_ahead", time.Duration(max(0, now.TS-now.Wall))*time.Millisecond)
	}
	e.noted = noted{now, gen, lsn, told}
}

// logClock logs how the clocks stand.
func (e *Engine) logClock(gen uint64, now op.Clock) (lsn uint64, err error) {
	part := op.Part{Kind: op.KindClock, Clock: now}
	lsn, _, err = e.log.AppendUnslotted(gen, part.Encode(nil), nil, noFrames, wal.Memory)
	return lsn, err
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
		if after-before <= 1 || tries == clockTries {
			return wall + at - after
		}
		before = after
	}
}

// clockTries is how often the clocks are read at most.
const clockTries = 8

// mono is the clock of the scheduler: what has passed since the start.
func (e *Engine) mono() time.Duration { return time.Since(e.startAt) }
