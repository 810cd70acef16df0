package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// HeldJob is one job under a lease.
type HeldJob struct {
	Seq        uint64
	Node       string
	Ends       time.Duration // until the lease ends
	Deliveries uint64
}

// Held returns up to most jobs of a queue that are under a lease, the oldest first, and how
// many each node holds.
func (e *Engine) Held(name string, most int) (held []HeldJob, nodes map[string]int, err error) {
	defer guard()
	t, now, err := e.lockQueue(name)
	if err != nil {
		return nil, nil, err
	}
	defer t.mu.Unlock()
	nodes = map[string]int{}
	t.jobs.q.Each(func(seq uint64, node string, _ uint64, deadline int64, deliveries uint64) {
		if node == "" {
			return
		}
		nodes[node]++
		at, _ := slices.BinarySearchFunc(held, seq, func(h HeldJob, seq uint64) int { return cmp.Compare(h.Seq, seq) })
		if at == most {
			return
		}
		held = slices.Insert(held[:min(len(held), most-1)], at, HeldJob{seq, node, time.Duration(deadline-now) * time.Millisecond, deliveries})
	})
	return held, nodes, nil
}

// maxBusy bounds how many jobs that are with workers or delayed OldestReady looks at.
const maxBusy = 10_000

// written is when a job was written.
type written struct {
	seq uint64
	ts  int64 // Unix ms
}

// OldestReady returns when the first job of a queue that can be claimed was written, or
// when its delay was over, in Unix ms. It returns 0 if there is none, if it stands behind very many that cannot, or
// if only the disk knows the time and mayRead is false; read reports whether it was
// asked. It does not count as a reading of the queue.
func (e *Engine) OldestReady(ctx context.Context, name string, mayRead bool) (ts int64, read bool, err error) {
	defer guard()
	t, err := e.look(name)
	if err != nil {
		return 0, false, err
	}
	if t.jobs == nil {
		t.mu.Unlock()
		return 0, false, notAQueue(name)
	}
	now := e.leaseClock()
	t.jobs.q.Expire(now)
	seq, since, ok := t.jobs.q.OldestReady(&t.Topic, t.Head, maxBusy)
	last := t.jobs.oldest.Load()
	switch {
	case !ok:
		ts = -1
	case since > 0:
		ts = e.wallOf(since, now)
	case last != nil && last.seq == seq:
		ts = last.ts
	default:
		if ref, _, inLog, _ := t.Index.Find(seq); inLog {
			ts = ref.TS
		}
	}
	if ts != 0 || !mayRead {
		t.mu.Unlock()
		return max(0, ts), false, nil
	}
	d := diff{e: e, t: t, req: &api.DiffRequest{FromSeq: seq - 1, Limit: 1, MaxBatchBytes: 1}, visit: func(r *api.Record) { ts = r.TS }}
	d.start()
	if _, err = d.run(ctx); err == nil {
		t.jobs.oldest.Store(&written{seq, ts})
	}
	return ts, true, err
}
