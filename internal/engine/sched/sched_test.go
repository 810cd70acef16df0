package sched

import (
	"testing"
	"time"
)

const ms = time.Millisecond

// room is a scheduler of one shard with a clock that the test moves.
type room struct {
	*testing.T
	*Scheduler
	now time.Duration
}

func newRoom(t *testing.T) *room {
	return &room{T: t, Scheduler: New(1)}
}

// topic is a stand-in for a topic of the engine.
type topic struct {
	Task
	name string
	base int
}

var ids uint64

func newTopic(name string, base int) *topic {
	ids++
	tp := &topic{name: name, base: base}
	tp.Init(ids, tp, func() int { return tp.base })
	return tp
}

func (r *room) mark(topics ...*topic) {
	for _, tp := range topics {
		r.Mark(&tp.Task, r.now)
	}
}

// visit picks one topic up; nil if there is none to visit now.
func (r *room) visit() (*topic, Kind) {
	t, kind, ok := r.Next(0, r.now)
	if !ok {
		return nil, 0
	}
	return t.Owner().(*topic), kind
}

// expect visits and compares the names with want, "-" being nothing to do.
func (r *room) expect(want ...string) {
	r.Helper()
	for i, name := range want {
		got := "-"
		if tp, _ := r.visit(); tp != nil {
			got = tp.name
		}
		if got != name {
			r.Fatalf("at %v visit %d of %v went to %s", r.now, i, want, got)
		}
	}
}

// names visits until there is nothing left or n topics were visited.
func (r *room) names(n int) (all []string) {
	for range n {
		tp, _ := r.visit()
		if tp == nil {
			break
		}
		all = append(all, tp.name)
	}
	return all
}

// pass lets time go by, with a tick every 50 ms.
func (r *room) pass(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now += 50 * ms
		r.Tick(r.now)
	}
}

// band returns where the topic waits: its band, or -1 if it is in none.
func (r *room) band(tp *topic) int {
	if tp.topic.place != ready {
		return -1
	}
	return int(tp.topic.band)
}
