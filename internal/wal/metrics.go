package wal

import (
	"sync/atomic"
	"time"
)

// fsyncBounds are the upper bounds of Metrics.FsyncBuckets.
var fsyncBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
}

// Metrics are the counters of the log since Open.
type Metrics struct {
	Frames     int64 // operations appended
	Batches    int64 // groups written
	Fsyncs     int64
	Bytes      int64 // written
	Rotations  int64
	SubmitFull int64 // Reserve returned ErrFull
	Failures   int64 // of a write or a sync

	QueueDepth, QueueDepthPeak int64 // slots in use
	ReadOnly                   bool
	FsyncMicros                int64     // time spent in fdatasync
	FsyncBuckets               [10]int64 // not cumulative: ≤ 50, 100, 250, 500, 1000, 5000, 10000, 50000, 100000 µs, +Inf
	DebtSegments               int       // full segments not yet released
	UnsyncedBytes              int64

	// Time spent since Open: Writing in writes, Syncing in syncs while writers
	// were held up by them, Full with a full queue (half the time at half full).
	Writing, Syncing, Full time.Duration
}

type counters struct {
	frames, batches, fsyncs, bytes, rotations, submitFull, failures atomic.Int64
	depthPeak, fsyncMicros, debt                                    atomic.Int64
	buckets                                                         [len(fsyncBounds) + 1]atomic.Int64
}

func (c *counters) fsync(d time.Duration) {
	c.fsyncs.Add(1)
	c.fsyncMicros.Add(d.Microseconds())
	i := 0
	for i < len(fsyncBounds) && d > fsyncBounds[i] {
		i++
	}
	c.buckets[i].Add(1)
}

// Metrics returns the current numbers.
func (l *Log) Metrics() Metrics {
	m := Metrics{
		Frames: l.m.frames.Load(), Batches: l.m.batches.Load(), Fsyncs: l.m.fsyncs.Load(),
		Bytes: l.m.bytes.Load(), Rotations: l.m.rotations.Load(), SubmitFull: l.m.submitFull.Load(),
		Failures:   l.m.failures.Load(),
		QueueDepth: max(0, l.slots.Load()), QueueDepthPeak: l.m.depthPeak.Load(),
		ReadOnly:     l.blocked.Load()&(blockReadOnly|blockHealing) != 0,
		FsyncMicros:  l.m.fsyncMicros.Load(),
		DebtSegments: int(l.m.debt.Load()),
	}
	for i := range l.m.buckets {
		m.FsyncBuckets[i] = l.m.buckets[i].Load()
	}
	m.Writing, m.Syncing = l.writing.sum(l.start), l.syncing.sum(l.start)
	l.mu.Lock()
	m.UnsyncedBytes = l.mu.dirty
	l.noteFillLocked()
	m.Full = time.Duration(l.mu.fill.total)
	l.mu.Unlock()
	return m
}
