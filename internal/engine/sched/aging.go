package sched

import "time"

const (
	// starvation is how long a topic waits at most before it is in the top band
	// with credit, whatever its priority.
	starvation = 10 * time.Second

	// chunk is how many entries a tick looks at under one hold of a lock: far
	// less than the millisecond it may take.
	chunk = 512
)

// age returns the points for a wait: 100 for each second, at most 1000.
func age(waited time.Duration) int {
	return int(min(max(waited, 0), starvation) / (10 * time.Millisecond))
}

// Tick puts every waiting topic into the band of its effective priority at now.
// It is to be called every 50 ms.
func (s *Scheduler) Tick(now time.Duration) {
	for _, sh := range s.shards {
		sh.tick(now)
	}
}

// SetDefer pauses the least important push work or ends the pause. While on,
// topics with a base priority below 0 wait without credit, for ten seconds at
// most, and the router work of the others is queued one band lower than their
// streams. Enqueue times stay.
func (s *Scheduler) SetDefer(on bool, now time.Duration) {
	for _, sh := range s.shards {
		sh.mu.Lock()
		differs := sh.deferred != on
		sh.deferred = on
		sh.mu.Unlock()
		if differs {
			sh.tick(now)
		}
	}
}

// tick goes through the entries from the last to the first. Between two holds of
// the lock entries come at the end only and the hole of one that went is filled
// from the end, so none that was not looked at moves behind.
func (sh *shard) tick(now time.Duration) {
	for next := -1; next != 0; {
		next = sh.tickChunk(next, now)
	}
}

// tickChunk looks at up to chunk entries below index from, all of them at -1, and
// returns where to go on; 0 is the end.
func (sh *shard) tickChunk(from int, now time.Duration) int {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if from < 0 || from > len(sh.all) {
		from = len(sh.all)
	}
	to := max(from-chunk, 0)
	for i := from - 1; i >= to; i-- {
		sh.reband(sh.all[i], now)
	}
	return to
}

// reband moves an entry to where it belongs now.
func (sh *shard) reband(e *entry, now time.Duration) {
	if e.place == held {
		return // for milliseconds; it is placed when the window is over
	}
	if now-e.enqueued >= starvation {
		e.overdue = true
	}
	base := e.task.base()
	if sh.deferred && base < 0 && !e.overdue {
		if e.place == ready {
			sh.extract(e)
			sh.park(e)
		}
		return
	}
	band := sh.bandFor(e, base, now)
	late := e.deferred && sh.deferred && base < 0
	if e.place == ready && band == e.band && late == e.deferred {
		return
	}
	sh.move(e, band, late, now)
}

// move puts an entry with credit into another queue.
func (sh *shard) move(e *entry, band int8, late bool, now time.Duration) {
	if e.place == parked {
		sh.parked.Add(-1)
		e.since = now
		if late {
			sh.promotions.Add(1)
		}
	} else {
		sh.extract(e)
		if band > e.band {
			sh.promotions.Add(1)
		}
	}
	e.deferred = late
	sh.insert(e, band)
	sh.changed(e.task)
}
