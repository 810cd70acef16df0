package engine

import "time"

// start begins the engine's background loops; Close ends them and waits.
func (e *Engine) start() {
	e.loops.Add(6 + 2*e.sched.Shards())
	for i := range e.sched.Shards() {
		go func() { defer e.loops.Done(); e.deliverLoop(i) }()
		go func() { defer e.loops.Done(); e.routeLoop(&e.routing[i]) }()
	}
	go func() { defer e.loops.Done(); e.agingLoop() }()
	go func() { defer e.loops.Done(); e.governLoop() }()
	go func() { defer e.loops.Done(); e.sealLoop() }()
	go func() { defer e.loops.Done(); e.spaceLoop() }()
	go func() { defer e.loops.Done(); e.shrinkLoop() }()
	go func() { defer e.loops.Done(); e.tickLoop() }()
	signal(e.sealed) // segments that were waiting when the engine stopped
	signal(e.shrink)
}

// tickLoop does once a second, for topics nobody looks at, what time alone
// brings: it evicts records past their time to live and forgets idempotency
// keys past their window, and what topics at rest need no more.
func (e *Engine) tickLoop() {
	tick := time.NewTicker(expiryPeriod)
	defer tick.Stop()
	for {
		select {
		case <-e.stop.Done():
			return
		case <-tick.C:
		}
		e.noteClock(false)
		for _, t := range e.reg.withTTL() {
			t.mu.Lock()
			e.dropExpired(t)
			t.mu.Unlock()
		}
		e.forgetKeys()
		e.restFronts()
	}
}

const (
	// keysPerWrite is how many idempotency keys a keyed write forgets: more than
	// the one it brings.
	keysPerWrite = 8
	// keysPerTurn is how many are forgotten under one hold of a topic's lock.
	keysPerTurn = 1 << 12
)

// forgetKeys forgets the idempotency keys that are past their window.
func (e *Engine) forgetKeys() {
	if e.keys.Load() == 0 {
		return
	}
	for _, t := range e.reg.all() {
		for more := t.keyed.Load() > 0; more && e.stop.Err() == nil; {
			t.mu.Lock()
			e.advance(t)
			more = t.Keys.Expire(e.leaseClock(), t.Config.IdempotencyWindowMS, keysPerTurn)
			e.countKeys(t)
			t.mu.Unlock()
		}
	}
}

// spaceLoop watches the free disk space. While writes are refused the log keeps
// a spare file, so that deletes go on even if another program takes the rest.
func (e *Engine) spaceLoop() {
	tick := time.NewTicker(spacePeriod)
	defer tick.Stop()
	s := e.space
	was, told, at, moved := false, false, time.Time{}, false
	if s.reserve > 0 {
		e.ballast.hold()
	}
	for {
		s.sample()
		e.log.Keep(s.ample())
		if is := s.moved.Load(); is != moved {
			moved = is
			s.tellMoved(e.opt.Logger, is)
		}
		low := s.refuses()
		switch {
		case low && !was:
			signal(e.shrink)
		case !low && was:
			e.log.Provide()
			e.ballast.hold()
			e.diskHasRoom()
		}
		was = low
		// Where caps free what writers take, this may change all the time.
		if low != told && time.Since(at) >= spaceTold {
			told, at = low, time.Now()
			s.tell(e.opt.Logger, low)
		}
		if low && s.free.Load() > 2*s.segment {
			e.log.Provide()
		}
		if s.files.Load() == 0 && e.log.Metrics().ReadOnly {
			e.ballast.give() // its place among the files is what the log's next one lacks
		}
		select {
		case <-e.stop.Done():
			return
		case <-tick.C:
		}
	}
}

// diskHasRoom wakes the routers that found the disk full.
func (e *Engine) diskHasRoom() {
	for _, t := range e.reg.all() {
		if t.routes.in.Load() == nil {
			continue
		}
		t.mu.Lock()
		e.madeRoom(t)
		t.mu.Unlock()
	}
}
