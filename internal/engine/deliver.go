package engine

import (
	"time"

	"github.com/weirmq/weir/internal/engine/push"
	"github.com/weirmq/weir/internal/engine/sched"
	"github.com/weirmq/weir/internal/op"
)

// pushRoom has what is published brought to the streams of its topic.
type pushRoom struct{ e *Engine }

func (p pushRoom) published(t *entry, what outcome) {
	if what.news {
		p.e.mark(t)
	}
}

func (pushRoom) evicting(*entry, op.Range, bool) {} // a stream's next read finds the gap

func (pushRoom) appended(*entry, []op.Span) {}

func (pushRoom) awaitsRoom(*entry) bool { return false }

func (p pushRoom) ended(t *entry) {
	p.e.sched.Remove(&t.rank.task)
	t.push.Ended()
}

// mark makes the topic dirty if anyone is to be told of its records.
func (e *Engine) mark(t *entry) {
	if !t.push.Watched() && !t.hasRouters() || t.rank.task.Dirty() {
		return
	}
	e.sched.Mark(&t.rank.task, e.mono())
}

func (t *entry) hasRouters() bool { return t.routes.out.Load() != nil }

// deliverLoop visits the dirty topics of one shard. It never waits: routeLoop does for the
// routers, which have to wait for the log, and for whoever reads their destination.
func (e *Engine) deliverLoop(shard int) {
	var v push.Visit
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for e.stop.Err() == nil {
		now := e.mono()
		task, kind, ok := e.sched.Next(shard, now)
		if ok {
			t := task.Owner().(*entry)
			if e.hooks.begin != nil {
				e.hooks.begin(t.Name)
			}
			if kind&sched.Routers != 0 && t.hasRouters() {
				e.routing[shard].add(t)
			}
			if kind&sched.Streams != 0 && t.push.Watched() {
				e.deliver(&v, t)
			}
			continue
		}
		sleep := time.Hour
		if due, held := e.sched.NextDue(shard, now); held {
			sleep = due - now
		}
		timer.Reset(sleep)
		select {
		case <-e.stop.Done():
			return
		case <-e.sched.Park(shard):
		case <-timer.C:
		}
	}
}

// visitHooks let a test run between the steps of a visit; they are nil
// otherwise. They are set before any topic is dirty.
type visitHooks struct {
	begin    func(topic string)  // the topic was picked up
	headRead func(topic string)  // the visit knows how far it goes
	read     func(router string) // the router has read what it copies next
	noRoom   func(router string) // the router has found its destination full
}

// visitBudget is how many source records a visit copies for each router
// (scheduler 2.9).
const visitBudget = 1024

// deliver brings the topic's streams up to its head as it is now.
func (e *Engine) deliver(v *push.Visit, t *entry) {
	now := e.clock()
	t.mu.Lock()
	head, gone := t.Head, t.gone
	t.mu.Unlock()
	if gone {
		return
	}
	if e.hooks.headRead != nil {
		e.hooks.headRead(t.Name)
	}
	t.lastRead.Store(now)
	v.Deliver(e.stop, &t.push, head)
}
