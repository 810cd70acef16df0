package sched

import (
	"math"
	"sync/atomic"
	"time"
)

// WaitBounds are the upper bounds of the buckets of Stats.Waits; one more bucket
// holds what waited longer.
var WaitBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 1 * time.Second,
	2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Stats is what the scheduler has counted since New.
type Stats struct {
	Ready      [Bands]int   // waiting with credit now, by band
	Deferred   int          // waiting without credit now
	Visits     [Bands]int64 // pick-ups, by the band they came from
	Promotions int64        // moves to a higher band while waiting
	// Waits counts the pick-ups by the time from mark to pick-up, and WaitSum
	// adds these times up.
	Waits   [len(WaitBounds) + 1]int64
	WaitSum time.Duration
}

// Sample is what the governor needs to know.
type Sample struct {
	Stats
	Depth   int // entries with credit that no window holds
	PickUps int // since the previous sample
	// MeanWait is that of these pick-ups, OldestWait that of the oldest entry
	// with credit; both count from when the entry could have been visited, and
	// are 0 if there is none.
	MeanWait, OldestWait time.Duration
}

// counters are read without the lock of the shard they belong to.
type counters struct {
	ready      [Bands]atomic.Int64
	parked     atomic.Int64
	visits     [Bands]atomic.Int64
	promotions atomic.Int64
	waits      [len(WaitBounds) + 1]atomic.Int64
	waitSum    atomic.Int64 // ns from mark to pick-up
	dueSum     atomic.Int64 // ns of that in which it could have been visited
	oldest     atomic.Int64 // since when the oldest entry could be, MaxInt64 if none
}

// totals is the state of the counters at one sample.
type totals struct {
	pickUps int64
	due     time.Duration
}

// Stats returns the counters, without taking a lock.
func (s *Scheduler) Stats() Stats {
	var st Stats
	for _, sh := range s.shards {
		for b := range Bands {
			st.Ready[b] += int(sh.ready[b].Load())
			st.Visits[b] += sh.visits[b].Load()
		}
		for i := range sh.waits {
			st.Waits[i] += sh.waits[i].Load()
		}
		st.Deferred += int(sh.parked.Load())
		st.Promotions += sh.promotions.Load()
		st.WaitSum += time.Duration(sh.waitSum.Load())
	}
	return st
}

// Sample returns the counters and what happened since the call before, without
// taking a lock. One caller at a time; others use Stats.
func (s *Scheduler) Sample(now time.Duration) Sample {
	sample := Sample{Stats: s.Stats()}
	var current totals
	for b := range Bands {
		sample.Depth += sample.Ready[b]
		current.pickUps += sample.Visits[b]
	}
	for _, sh := range s.shards {
		current.due += time.Duration(sh.dueSum.Load())
		if since := sh.oldest.Load(); since != math.MaxInt64 {
			sample.OldestWait = max(sample.OldestWait, now-time.Duration(since))
		}
	}
	sample.PickUps = int(current.pickUps - s.last.pickUps)
	if sample.PickUps > 0 {
		sample.MeanWait = (current.due - s.last.due) / time.Duration(sample.PickUps)
	}
	s.last = current
	return sample
}

// visited counts the pick-up of e.
func (c *counters) visited(e *entry, now time.Duration) {
	wait := max(now-e.enqueued, 0)
	c.visits[e.band].Add(1)
	c.waitSum.Add(int64(wait))
	c.dueSum.Add(int64(max(now-e.since, 0)))
	bucket := 0
	for bucket < len(WaitBounds) && wait > WaitBounds[bucket] {
		bucket++
	}
	c.waits[bucket].Add(1)
}

// publishOldest stores since when the oldest entry with credit waits for its
// visit; the oldest of each queue stand for all.
func (sh *shard) publishOldest() {
	since := time.Duration(math.MaxInt64)
	for i := range sh.robin.queues {
		if q := sh.robin.queues[i]; len(q) > 0 {
			since = min(since, q[0].e.since)
		}
	}
	sh.oldest.Store(int64(since))
}
