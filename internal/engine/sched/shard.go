package sched

import (
	"math"
	"sync"
	"time"
)

// shard is the ready set of one worker. An entry in it is in all, and in one of
// the queues or parked, which is in none, so that parked ones cost nothing when
// one is picked.
type shard struct {
	mu       sync.Mutex
	all      []*entry
	robin    robin
	held     fifo // after the last visit of the topic, whatever the window is
	marks    uint64
	deferred bool // rung 3
	idle     bool // the worker found nothing and was not signalled since

	wake chan struct{}
	counters
}

func newShard() *shard {
	sh := &shard{robin: newRobin(), wake: make(chan struct{}, 1)}
	sh.oldest.Store(math.MaxInt64)
	return sh
}

// enqueue puts a topic that became dirty into the set.
func (sh *shard) enqueue(t *Task, now, window time.Duration) {
	if t.gone {
		return
	}
	e := &t.topic
	sh.marks++
	e.enqueued, e.since, e.order = now, now, sh.marks
	sh.join(e)
	switch {
	case sh.deferred && t.base() < 0:
		sh.park(e)
	case !t.urgent && t.picked+window > now:
		e.place = held
		sh.held.push(t.picked, e)
		if e.pos == 0 {
			sh.signal()
		}
	default:
		sh.admit(e, now)
	}
	sh.changed(t)
}

// release lets go of the topics whose window is over.
func (sh *shard) release(now, window time.Duration) {
	for len(sh.held) > 0 && sh.held[0].at+window <= now {
		due := sh.held[0].at + window
		e := sh.held.remove(0)
		e.since = max(e.enqueued, due)
		sh.admit(e, now)
	}
}

// admit puts an entry that is in no queue where it belongs now.
func (sh *shard) admit(e *entry, now time.Duration) {
	base := e.task.base()
	if sh.deferred && base < 0 && !e.overdue {
		sh.park(e)
		return
	}
	sh.insert(e, sh.bandFor(e, base, now))
}

// bandFor returns the band of an entry whose topic has the base priority base.
func (sh *shard) bandFor(e *entry, base int, now time.Duration) int8 {
	if e.overdue {
		return top
	}
	band := bandOf(base + age(now-e.enqueued))
	if e.isRouter && sh.deferred {
		band = max(band-1, 0)
	}
	return band
}

func (sh *shard) insert(e *entry, band int8) {
	e.place, e.band = ready, band
	sh.robin.queues[e.queue()].push(e.enqueued, e)
	sh.ready[band].Add(1)
	sh.publishOldest()
	sh.signal()
}

func (sh *shard) extract(e *entry) {
	sh.robin.queues[e.queue()].remove(int(e.pos))
	sh.ready[e.band].Add(-1)
	sh.publishOldest()
}

func (sh *shard) park(e *entry) {
	e.place, e.deferred = parked, true
	sh.parked.Add(1)
	sh.changed(e.task)
}

// takeOut ends the waiting of an entry that was picked, and returns what there
// is to do. While the shard defers, router work becomes an entry of its own.
func (sh *shard) takeOut(e *entry, now time.Duration) Kind {
	t := e.task
	sh.ready[e.band].Add(-1)
	sh.publishOldest()
	sh.visited(e, now)
	sh.leave(e)
	kind := All
	switch {
	case e.isRouter:
		kind = Routers
	case sh.deferred && t.routed.Load():
		kind = Streams
		sh.split(e)
	case t.router != nil:
		sh.drop(t.router) // its work is part of this visit
	}
	if !e.isRouter {
		t.picked, t.urgent = now, false
		t.dirty.Store(false)
	}
	e.overdue, e.deferred = false, false
	sh.changed(t)
	return kind
}

// split queues the router work of the topic entry e one band lower, unless such
// work waits already.
func (sh *shard) split(e *entry) {
	t := e.task
	if t.router == nil {
		t.router = &entry{task: t, isRouter: true}
	}
	r := t.router
	if r.place != nowhere {
		return
	}
	r.enqueued, r.order, r.since = e.enqueued, e.order, e.since
	r.overdue, r.deferred = e.overdue, e.deferred
	sh.join(r)
	band := max(e.band-1, 0)
	if r.overdue {
		band = top
	}
	sh.insert(r, band)
}

// drop takes an entry out of wherever it is.
func (sh *shard) drop(e *entry) {
	switch e.place {
	case nowhere:
		return
	case ready:
		sh.extract(e)
	case held:
		sh.held.remove(int(e.pos))
	case parked:
		sh.parked.Add(-1)
	}
	sh.leave(e)
	e.overdue, e.deferred = false, false
}

func (sh *shard) join(e *entry) {
	e.index = int32(len(sh.all))
	sh.all = append(sh.all, e)
}

func (sh *shard) leave(e *entry) {
	n := len(sh.all) - 1
	last := sh.all[n]
	sh.all[e.index], last.index = last, e.index
	sh.all[n] = nil
	sh.all = sh.all[:n]
	e.place = nowhere
}

// changed publishes what others may ask about t without the lock.
func (sh *shard) changed(t *Task) {
	t.deferred.Store(t.topic.place == parked)
	switch {
	case t.topic.place != nowhere:
		t.queued.Store(int64(t.topic.enqueued) + 1)
	case t.router != nil && t.router.place != nowhere:
		t.queued.Store(int64(t.router.enqueued) + 1)
	default:
		t.queued.Store(0)
	}
}

func (sh *shard) signal() {
	if !sh.idle {
		return
	}
	sh.idle = false
	select {
	case sh.wake <- struct{}{}:
	default:
	}
}
