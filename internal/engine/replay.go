package engine

import (
	"context"
	"fmt"
	"math"

	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// replay applies operations of the log to the topics.
type replay struct {
	e                  *Engine
	part               op.Part
	applied, announced uint64 // operations, and numbers announced as lost
	last               uint64 // LSN that the log ended with
	lost               lost   // operations that weir repair marked as lost

	ahead []op.Lease // of the operation being applied: of records that it appends further on

	stray int // parts left out that name a topic which has ended
}

// applier returns apply for as long as ctx allows.
func (r *replay) applier(ctx context.Context) func(wal.Op) error {
	return func(o wal.Op) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.applied++
		return r.apply(o)
	}
}

func (r *replay) apply(o wal.Op) error {
	r.ahead = r.ahead[:0]
	parts := op.NewReader(o.Payload)
	for parts.Next(&r.part) {
		if err := r.applyPart(o, &r.part, parts.Frames); err != nil {
			return fmt.Errorf("log operation %d: %w", o.LSN, err)
		}
	}
	if err := parts.Err(); err != nil {
		return fmt.Errorf("log operation %d: %w", o.LSN, err)
	}
	return nil
}

func (r *replay) applyPart(o wal.Op, p *op.Part, frames []byte) (err error) {
	e := r.e
	if p.Kind == op.KindCreate {
		t := &entry{}
		t.State.Apply(p)
		t.begin.lsn = o.LSN
		e.adopt(t)
		r.lost.see(t, p)
		return nil
	}
	if op.OfWatch(p.Kind) {
		e.found.replay(p)
		return nil
	}
	if p.Kind == op.KindClock {
		e.noted.Clock = p.Clock
		return nil
	}
	if e.routes.replay(p) {
		return nil
	}
	t := e.reg.byID[p.Topic]
	if t == nil {
		t = r.revive(p)
	}
	if t == nil {
		// As in the store's sealing, what comes after a topic's end is dropped.
		// Records are dropped only if their topic is known to have existed.
		if r.lost.any() {
			return nil
		}
		if p.Kind != op.KindAppend || p.Topic <= e.nextTopic.Load() {
			r.stray++
			return nil
		}
		return fmt.Errorf("part of kind %d names topic %d, which does not exist", p.Kind, p.Topic)
	}
	e.lastTS.Store(max(e.lastTS.Load(), p.TS))
	r.lost.see(t, p)
	switch p.Kind {
	case op.KindDrop:
		e.reg.remove(t)
		r.lost.end(t.ID)
		return nil
	case op.KindLease, op.KindRelease:
		for _, l := range p.Leases {
			if l.Seq > t.Head && p.Kind == op.KindRelease {
				r.ahead = append(r.ahead, l)
				continue
			}
			if t.jobs != nil && t.Live(l.Seq) {
				e.restoreLease(t, store.Lease{Topic: t.ID, Node: p.Node, Lease: l, Released: p.Kind == op.KindRelease})
			}
		}
		return nil
	case op.KindAppend:
		if p.HasKey {
			p.Sum, p.At = op.SumOf(wal.Checksum(frames)), math.MaxInt64 // now, for all that is known
			if p.TS > e.noted.TS {
				p.At = p.TS - e.noted.Offset()
			}
		}
		if t.jobs != nil {
			if p.Flows, err = op.FrameSpans(p.First, frames); err != nil {
				return err
			}
		}
	}
	e.apply(t, p, o.LSN, topic.Ref{First: p.First, TS: p.TS, N: uint32(p.N), Segment: o.Pos.Segment, Offset: o.Pos.Offset, Len: o.Pos.Len})
	if p.Kind != op.KindAppend && p.Kind != op.KindEvict { // what apply has made of an append
		return nil
	}
	for _, l := range r.ahead {
		if t.jobs != nil && t.Live(l.Seq) {
			e.restoreLease(t, store.Lease{Topic: t.ID, Lease: l, Released: true})
		}
	}
	r.ahead = r.ahead[:0]
	return nil
}

// adopt registers a recovered topic.
func (e *Engine) adopt(t *entry) {
	t.created.Store(true)
	t.ensureQueue()
	e.enlist(t)
	// Two topics of one name: the end of the older one was lost with a damaged
	// part of the log.
	if old := e.reg.byName[t.Name]; old != nil && old.ID != t.ID {
		e.reg.remove(old)
		e.reg.shadowed = append(e.reg.shadowed, old)
	}
	e.reg.byName[t.Name] = t
	e.reg.byID[t.ID] = t
	e.nextTopic.Store(max(e.nextTopic.Load(), t.ID))
	e.created = max(e.created, t.CreatedTS)
	e.lastTS.Store(max(e.lastTS.Load(), t.LastTS))
}

func (e *Engine) restoreLease(t *entry, l store.Lease) {
	node := l.Node
	if l.Released {
		node = ""
	}
	t.jobs.q.Restore(l.Seq, node, l.ID, l.Deadline, l.Deliveries)
}
