package sched

import (
	"math"
	"sync/atomic"
	"time"
)

// Task is the scheduler's part of one topic, made to be embedded in it by value.
// It is ready for use after Init and must not be copied then.
type Task struct {
	dirty    atomic.Bool // the topic is in the ready set, or about to be put there
	deferred atomic.Bool // it is there without credit
	routed   atomic.Bool // it has routers
	hash     uint32
	queued   atomic.Int64 // enqueue time + 1 ns while the topic waits, else 0

	owner any
	base  func() int

	// Guarded by the lock of the shard.
	gone   bool
	urgent bool          // no window holds the next entry
	picked time.Duration // the last visit of the streams
	topic  entry
	router *entry // router work on its own, once there has been some
}

// Init readies t for the topic with the number id. base returns the base priority
// of the topic at that moment, as Base computes it; it is called under a lock of
// the scheduler, often, and must neither block nor call back.
func (t *Task) Init(id uint64, owner any, base func() int) {
	t.hash = uint32((id + 1) * 0x9E3779B97F4A7C15 >> 32)
	t.owner, t.base = owner, base
	t.picked = math.MinInt64 / 2
	t.topic = entry{task: t}
}

// Owner returns what Init was given: the topic.
func (t *Task) Owner() any { return t.owner }

// Dirty returns whether the topic waits for a visit: marking it again would do
// nothing.
func (t *Task) Dirty() bool { return t.dirty.Load() }

// SetRouted says whether routers read the topic. Only the router work of topics
// that have some is queued on its own while the scheduler defers.
func (t *Task) SetRouted(on bool) { t.routed.Store(on) }

// Age returns the points t has gained by waiting, and whether it waits at all.
func (s *Scheduler) Age(t *Task, now time.Duration) (points int, queued bool) {
	at := t.queued.Load()
	if at == 0 {
		return 0, false
	}
	return age(now - time.Duration(at-1)), true
}

// Deferred returns whether t waits and has no credit, so that its streams get
// nothing until it has waited for ten seconds or SetDefer ends it.
func (s *Scheduler) Deferred(t *Task) bool { return t.deferred.Load() }

// place says where an entry is.
type place uint8

const (
	nowhere place = iota
	ready         // in a band
	held          // until the coalescing window is over
	parked        // without credit
)

// entry is one unit of work in a shard: that of a topic, or of its routers alone.
type entry struct {
	task     *Task
	enqueued time.Duration
	order    uint64        // breaks ties in the order of marking
	since    time.Duration // it could have been visited from here on
	index    int32         // in shard.all
	pos      int32         // in the queue of its place
	band     int8
	place    place
	isRouter bool
	overdue  bool // ten seconds are over: top band, whatever else
	deferred bool // was parked and rung 3 goes on
}

// queue returns the number of the queue of a shard that the entry belongs in.
func (e *entry) queue() int {
	if e.deferred {
		return lateQueue
	}
	return int(e.band)
}
