// Package sched decides when the push work of a topic is done: which topic with
// news is visited next, by which worker. It never decides what is pushed. What it
// guarantees is in docs/SCHEDULER.md, 2 to 5.
//
// A topic with news is dirty. Marking it puts it into the ready set of one shard,
// once, however often it is marked; the worker of that shard takes it out with
// Next and does what there is to do. Dirty topics wait in five bands after their
// effective priority, which grows while they wait, and the bands share the visits
// 8 : 4 : 2 : 1 : 1. Under load entries can be held for a moment, so that more
// gathers (SetWindow), or paused (SetDefer); the caller decides that from Sample.
//
// Time is an argument everywhere, read from one monotonic clock that starts at 0
// or later. Nothing here starts a goroutine.
package sched

import (
	"sync/atomic"
	"time"
)

// Kind is the set of things a visit has to do.
type Kind uint8

const (
	// Streams asks the visit to wake the readers of the topic.
	Streams Kind = 1 << iota
	// Routers asks the visit to advance the routers that read the topic.
	Routers
	// All is the whole work of a topic.
	All = Streams | Routers
)

// Scheduler holds the dirty topics. All of its methods may be called at the same
// time, with one exception: each shard has one caller of Next, and that makes one
// visit of a topic at a time.
type Scheduler struct {
	shards []*shard
	window atomic.Int64 // ns a topic is held after a visit
	last   totals       // as of the previous Sample
}

// New returns a scheduler with as many ready sets as there are workers; now is
// the time on the caller's monotonic clock.
func New(shards int) *Scheduler {
	s := &Scheduler{shards: make([]*shard, max(shards, 1))}
	for i := range s.shards {
		s.shards[i] = newShard()
	}
	return s
}

// Shards returns how many ready sets there are; they are numbered from 0.
func (s *Scheduler) Shards() int { return len(s.shards) }

// Mark says that t has news. It does nothing if t is waiting for a visit already;
// a caller that would have to read the clock asks t.Dirty first.
func (s *Scheduler) Mark(t *Task, now time.Duration) {
	if t.dirty.Load() {
		return
	}
	s.mark(t, now)
}

func (s *Scheduler) mark(t *Task, now time.Duration) {
	if !t.dirty.CompareAndSwap(false, true) {
		return
	}
	sh := s.shardOf(t)
	sh.mu.Lock()
	sh.enqueue(t, now, s.holding())
	sh.mu.Unlock()
}

// Again says that a visit left work of t undone, because it was more than one
// visit may do: t queues at the back of its band with a new enqueue time, and no
// window holds it.
func (s *Scheduler) Again(t *Task, now time.Duration) {
	sh := s.shardOf(t)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t.urgent = true
	if t.dirty.CompareAndSwap(false, true) {
		sh.enqueue(t, now, s.holding())
	} else if t.topic.place == held {
		sh.held.remove(int(t.topic.pos))
		sh.admit(&t.topic, now)
	}
}

// Remove forgets t, whose topic is gone: it is not returned by Next any more and
// marking it has no effect. A visit that has begun is not affected.
func (s *Scheduler) Remove(t *Task) {
	sh := s.shardOf(t)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t.gone = true
	t.dirty.Store(true)
	sh.drop(&t.topic)
	if t.router != nil {
		sh.drop(t.router)
	}
	sh.changed(t)
}

// Next takes the topic out of the shard that is to be visited now, and what to
// do there. The topic counts as clean from here on, so that a mark during the
// visit queues it again. ok is false if the worker has nothing to do until Park
// signals or NextDue has come.
func (s *Scheduler) Next(shard int, now time.Duration) (t *Task, kind Kind, ok bool) {
	sh := s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.release(now, s.holding())
	e := sh.robin.pick()
	if e == nil {
		sh.idle = true
		return nil, 0, false
	}
	return e.task, sh.takeOut(e, now), true
}

// Park returns the channel that receives when the shard, after a Next without
// result, may have something for its worker: a topic to visit, or an earlier
// NextDue. It is buffered; one signal may stand for many marks.
func (s *Scheduler) Park(shard int) <-chan struct{} { return s.shards[shard].wake }

// NextDue returns when the first topic that the window holds may be visited, now
// at the earliest, and whether there is one.
func (s *Scheduler) NextDue(shard int, now time.Duration) (time.Duration, bool) {
	sh := s.shards[shard]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if len(sh.held) == 0 {
		return 0, false
	}
	return max(sh.held[0].at+s.holding(), now), true
}

// SetWindow holds every topic that is marked until d has passed since its last
// visit; a topic that was quiet for longer is visited at once. Time held does not
// count as waiting. 0 holds nothing.
func (s *Scheduler) SetWindow(d time.Duration) {
	if d = max(d, 0); time.Duration(s.window.Swap(int64(d))) == d {
		return
	}
	for _, sh := range s.shards {
		sh.mu.Lock()
		if len(sh.held) > 0 {
			sh.signal()
		}
		sh.mu.Unlock()
	}
}

func (s *Scheduler) holding() time.Duration { return time.Duration(s.window.Load()) }

func (s *Scheduler) shardOf(t *Task) *shard {
	return s.shards[uint64(t.hash)*uint64(len(s.shards))>>32]
}
