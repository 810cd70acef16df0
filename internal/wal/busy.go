package wal

import (
	"sync/atomic"
	"time"
)

// busyClock adds up how long something was under way, up to now: a call that
// hangs must not look idle. One goroutine at a time begins and ends it. A call
// that hung on a failed file may end late, and then ends the current one for
// the clock.
type busyClock struct {
	total atomic.Int64 // ns
	since atomic.Int64 // when the current one began, in ns since start; 0: none
}

func (b *busyClock) begin(start time.Time) { b.since.Store(int64(time.Since(start)) | 1) }

func (b *busyClock) end(start time.Time) {
	if from := b.since.Swap(0); from != 0 {
		b.total.Add(int64(time.Since(start)) - from)
	}
}

func (b *busyClock) sum(start time.Time) time.Duration {
	total := b.total.Load()
	if from := b.since.Load(); from != 0 {
		total += int64(time.Since(start)) - from
	}
	return time.Duration(total)
}

// fillClock adds up how full the queue in front of the log was, in time at full.
// It is guarded by Log.mu.
type fillClock struct {
	total float64 // ns
	last  float64 // share at the time at
	at    time.Time
}

// noteFillLocked counts the time since the last look. Those who wait for room
// count like those in the queue.
func (l *Log) noteFillLocked() {
	f := &l.mu.fill
	share := l.fillNow()
	now := time.Now()
	if !f.at.IsZero() {
		f.total += float64(now.Sub(f.at)) * (f.last + share) / 2
	}
	f.last, f.at = share, now
}

func (l *Log) fillNow() float64 {
	wanted := l.slots.Load() + int64(l.roomWaiting.Load())
	return min(1, max(0, float64(wanted)/float64(l.opt.Slots)))
}

// Full reports whether all slots of the queue are taken.
func (l *Log) Full() bool { return l.slots.Load() >= int64(l.opt.Slots) }

// Waits reports whether Reserve would wait.
func (l *Log) Waits() bool { return l.blocked.Load() != 0 || l.Full() }

// WaitsForRelease reports whether nothing is appended until a sealed segment is released.
func (l *Log) WaitsForRelease() bool { return l.blocked.Load()&blockSealed != 0 }

// WaitsForCopy reports whether nothing is appended until the copy has more of the log, with Options.ShipSync.
func (l *Log) WaitsForCopy() bool { return l.blocked.Load()&blockUnshipped != 0 }

// crowdedLocked reports whether writers wait, or soon will, for something that
// the next sync frees. A single writer keeps the syncer busy; only when this
// holds is it too slow.
func (l *Log) crowdedLocked() bool {
	return 2*l.mu.dirty >= l.opt.FlushBytes || l.roomWaiting.Load() > 0
}
