package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/tests/oracle"
)

// actor is one concurrent client of a round. Its events are its own until it
// has ended.
type actor struct {
	client *Client
	rnd    *rand.Rand
	id     uint32
	events []oracle.Event
	retry  []retry
	stale  []held   // leases kept to be used too late
	broken int      // answers with status 500
	notes  []string // what the first of them said

	churned []churned
	rewired []rewired

	saved   chan struct{} // closed once the backup was answered; of a saver
	backup  oracle.Event
	restore Restore
	failed  error
}

// churned is a topic made and dropped under load.
type churned struct {
	name    string
	dropped bool // acknowledged: it must not come back
}

// retry is a write of unknown outcome that can be sent again with its key.
type retry struct {
	topic *target
	batch oracle.BatchID
	size  int
	key   string
}

type held struct {
	topic *target
	node  string
	job   oracle.Job
}

// record keeps an event and reports whether the actor may go on.
func (a *actor) record(e oracle.Event, err error) bool {
	if errors.Is(err, errNotSent) {
		return false
	}
	a.events = append(a.events, e)
	if err == nil && e.Outcome == oracle.Unknown {
		a.broken++
		if len(a.notes) < 2 {
			a.notes = append(a.notes, fmt.Sprintf("%s %s: %s", e.Kind, e.Topic, e.Note))
		}
	}
	return err == nil
}

var batches atomic.Uint64

// write sends one batch to t and reports whether the actor may go on.
func (a *actor) write(ctx context.Context, t *target) bool {
	size := batchSize(a.rnd)
	id := oracle.BatchID{Writer: a.id, N: batches.Add(1)}
	key := ""
	if a.rnd.IntN(2) == 0 {
		key = fmt.Sprintf("k%d.%d", id.Writer, id.N)
	}
	e, err := a.client.WriteLater(ctx, t.name, id, size, key, t.delays(id, size))
	t.saw(e.Head)
	if err != nil && key != "" && !errors.Is(err, errNotSent) {
		a.retry = append(a.retry, retry{t, id, size, key})
	}
	return a.record(e, err)
}

// writer writes to one topic, or to a random one of several, until the end.
func (a *actor) writer(ctx context.Context, targets []*target) {
	for ctx.Err() == nil && a.write(ctx, targets[a.rnd.IntN(len(targets))]) {
	}
}

// scheduler writes records that wait, slowly: the workers find that nothing is left.
func (a *actor) scheduler(ctx context.Context, queues []*target) {
	for ctx.Err() == nil && a.pause(ctx, 10*time.Millisecond) && a.write(ctx, queues[a.rnd.IntN(len(queues))]) {
	}
}

// worker claims jobs and acks, nacks, extends or abandons them.
func (a *actor) worker(ctx context.Context, queues []*target) {
	node := fmt.Sprintf("worker%d", a.id)
	for ctx.Err() == nil {
		t := queues[a.rnd.IntN(len(queues))]
		lease := time.Duration(100+a.rnd.IntN(200)) * time.Millisecond
		e, err := a.client.Claim(ctx, t.name, node, 1+a.rnd.IntN(20), lease)
		if !a.record(e, err) {
			return
		}
		if !a.settle(ctx, t, node, e.Jobs) || !a.tooLate(ctx) {
			return
		}
	}
}

// settle ends a claim in one of the ways a worker can.
func (a *actor) settle(ctx context.Context, t *target, node string, jobs []oracle.Job) bool {
	if len(jobs) == 0 {
		return true
	}
	if len(a.stale) < 50 {
		a.stale = append(a.stale, held{t, node, jobs[a.rnd.IntN(len(jobs))]})
	}
	send := func(kind oracle.Kind, jobs []oracle.Job) bool {
		delay := time.Duration(a.rnd.IntN(30)) * time.Millisecond
		e, err := a.client.Settle(ctx, kind, t.name, node, jobs, delay, 150*time.Millisecond)
		return a.record(e, err)
	}
	switch n := a.rnd.IntN(10); {
	case n < 6:
		return send(oracle.Ack, jobs)
	case n < 7:
		return send(oracle.Nack, jobs)
	case n < 8:
		return send(oracle.Extend, jobs) && send(oracle.Ack, jobs)
	case n < 9: // half of them; the others run out
		return send(oracle.Ack, jobs[:(len(jobs)+1)/2])
	}
	return true
}

// tooLate uses an old lease now and then: it may be over, or its job done.
func (a *actor) tooLate(ctx context.Context) bool {
	if len(a.stale) == 0 || a.rnd.IntN(4) > 0 {
		return true
	}
	h := a.stale[0]
	a.stale = a.stale[1:]
	kinds := []oracle.Kind{oracle.Ack, oracle.Nack, oracle.Extend}
	e, err := a.client.Settle(ctx, kinds[a.rnd.IntN(3)], h.topic.name, h.node, []oracle.Job{h.job}, 0, 150*time.Millisecond)
	return a.record(e, err)
}

// deleter deletes records by number and by tag.
func (a *actor) deleter(ctx context.Context, targets []*target) {
	for ctx.Err() == nil && a.pause(ctx, 15*time.Millisecond) {
		t := targets[a.rnd.IntN(len(targets))]
		head := t.head.Load()
		before := head - min(head, uint64(a.rnd.IntN(200)))
		tag := ""
		if a.rnd.IntN(2) == 0 {
			tag = fmt.Sprintf("t%d", a.rnd.IntN(8))
			if a.rnd.IntN(2) == 0 {
				before = 0
			}
		}
		if before == 0 && tag == "" {
			continue
		}
		if !a.record(a.client.DeleteRecords(ctx, t.name, before, tag)) {
			return
		}
	}
}

// reader reads from random cursors while others write.
func (a *actor) reader(ctx context.Context, targets []*target) {
	for ctx.Err() == nil && a.pause(ctx, 3*time.Millisecond) {
		t := targets[a.rnd.IntN(len(targets))]
		head := t.head.Load()
		from := head - min(head, uint64(a.rnd.IntN(100)))
		if a.rnd.IntN(5) == 0 && head > 0 {
			from = a.rnd.Uint64N(head)
		}
		e, _, err := a.client.Diff(ctx, t.name, from, 200)
		t.saw(e.Head)
		if !a.record(e, err) {
			return
		}
		if a.rnd.IntN(4) == 0 && !a.record(a.client.State(ctx, t.name)) {
			return
		}
	}
}

// churner creates a topic, writes to it, drops it and does so again.
func (a *actor) churner(ctx context.Context) {
	for n := 0; ctx.Err() == nil && a.pause(ctx, 20*time.Millisecond); n++ {
		t := &target{name: fmt.Sprintf("churn%d.%d", a.id, n), cfg: oracle.Config{Class: oracle.Fsync}}
		a.churned = append(a.churned, churned{name: t.name})
		if !a.record(a.client.Put(ctx, t.name, t.cfg)) || !a.write(ctx, t) {
			return
		}
		e, err := a.client.Drop(ctx, t.name)
		a.churned[n].dropped = e.Outcome == oracle.OK
		if !a.record(e, err) {
			return
		}
	}
}

// pause waits about d and reports whether the round goes on.
func (a *actor) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d/2 + time.Duration(a.rnd.Int64N(int64(d)))):
		return true
	}
}
