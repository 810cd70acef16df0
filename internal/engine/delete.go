package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
)

// removal is a set of live numbers that a delete, an ack or a dead letter
// takes, with their count and size.
type removal struct {
	ranges                         []op.Range
	n, bytes, loggedN, loggedBytes uint64
	dead                           uint64
}

func (r *removal) add(it item) {
	if k := len(r.ranges); k > 0 && r.ranges[k-1].To+1 == it.seq {
		r.ranges[k-1].To = it.seq
	} else {
		r.ranges = append(r.ranges, op.Range{From: it.seq, To: it.seq})
	}
	r.n++
	r.bytes += uint64(it.size)
	if it.logged {
		r.loggedN++
		r.loggedBytes += uint64(it.size)
	}
}

func (r *removal) eachSeq(fn func(uint64)) {
	for _, g := range r.ranges {
		for seq := g.From; seq <= g.To; seq++ {
			fn(seq)
		}
	}
}

// DeleteRecords removes the records that match and were there at the time of
// the call. Many records are removed in several operations, between which
// others use the topic; if one fails, the error's detail says how many are
// deleted.
func (e *Engine) DeleteRecords(ctx context.Context, name string, req *api.DeleteRequest) (api.DeleteResult, error) {
	defer guard()
	var rm removal
	whole := false
	d := deletion{e: e, req: req, pos: max(req.MinSeq, 1) - 1}
	t, err := e.change(ctx, name, func(t *entry) (ticket, error) {
		if rm, whole = t.wholeTopic(req); !whole {
			d.end = t.deleteEnd(req)
		}
		if rm.n == 0 {
			return ticket{}, nil
		}
		return e.stageRemoval(t, &rm, nil)
	})
	if err != nil {
		return api.DeleteResult{}, err
	}
	if !whole {
		d.t = t
		err := d.run(ctx)
		return d.res, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return api.DeleteResult{Deleted: rm.n, TopicCounters: t.counters()}, nil
}

// deleteEnd is the last number that the selectors can mean now.
func (t *entry) deleteEnd(req *api.DeleteRequest) uint64 {
	if req.HasBefore {
		return min(t.Head, max(req.BeforeSeq, 1)-1)
	}
	return t.Head
}

// wholeTopic is the removal of everything, if the selectors mean that and no
// record needs to be read for it. The topic's lock is held.
func (t *entry) wholeTopic(req *api.DeleteRequest) (rm removal, ok bool) {
	if req.Match != nil || req.MinSeq > 1 || t.deleteEnd(req) != t.Head || !t.Idle() || t.Index.InMemory() {
		return rm, false
	}
	if t.Count > 0 {
		rm = removal{ranges: []op.Range{{From: t.Earliest(), To: t.Head}}, n: t.Count, bytes: t.Bytes, loggedN: t.Count, loggedBytes: t.Bytes}
	}
	return rm, true
}

const (
	// deletePiece is how many records a delete reads before it takes the
	// topic's lock again.
	deletePiece = 4096
	// deleteBatch is about the most records that one operation deletes: their
	// numbers take some ten KiB of the log, and planning it a few ms.
	deleteBatch = 2 * deletePiece
)

// deletion is a call that needs to read records. It reads without the topic's
// lock, as a diff does, and takes the lock to plan and for each operation.
type deletion struct {
	e     *Engine
	t     *entry
	req   *api.DeleteRequest
	pos   uint64 // last number looked at
	end   uint64 // the last one to look at
	found []item // what matches, not deleted yet
	res   api.DeleteResult
}

// run deletes what there is up to d.end.
func (d *deletion) run(ctx context.Context) error {
	p := plans.Get().(*plan)
	defer plans.Put(p)
	var tries replans
	for {
		if err := d.e.relock(d.t); err != nil {
			return err
		}
		p.piece(d.t, d.pos, d.end, deletePiece)
		d.t.mu.Unlock()
		if len(p.ranges) == 0 {
			return d.flush()
		}
		err := p.read(d.e, d.t, d.take)
		if ok, err := tries.again(d.e, d.t, d.pos+1, err); !ok {
			return err
		}
		if len(d.found) >= d.e.opt.deleteBatch {
			if err := d.flush(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (d *deletion) take(r *api.Record) bool {
	if d.req.Match == nil || d.req.Match.Match(r.HasTag, r.Tag) {
		d.found = append(d.found, item{seq: r.Seq, size: uint32(r.Size())})
	}
	d.pos = r.Seq
	return true
}

// flush deletes what was found and is still there, in one operation.
func (d *deletion) flush() error {
	var rm removal
	err := d.e.changeAgain(d.e.stop, d.t, func(t *entry) (ticket, error) {
		rm = removal{}
		for _, it := range d.found {
			if t.Free(it.seq) {
				it.logged = t.isLogged(it.seq)
				rm.add(it)
			}
		}
		if rm.n == 0 {
			return ticket{}, nil
		}
		return d.e.stageRemoval(t, &rm, nil)
	})
	if err != nil {
		return d.failed(err)
	}
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	d.res.Deleted += rm.n
	d.res.TopicCounters = d.t.counters()
	d.found = d.found[:0]
	return nil
}

// failed adds to the error how many records were deleted before it.
func (d *deletion) failed(err error) error {
	var known *api.Error
	if d.res.Deleted == 0 || !errors.As(err, &known) || known.Code != api.CodeInternal {
		return err
	}
	part := *known
	part.Message = fmt.Sprintf("%d records were deleted, then the log could not be written; send the call again for the rest", d.res.Deleted)
	part.Detail = maps.Clone(known.Detail)
	return part.With("deleted", d.res.Deleted)
}

// stageRemoval logs and stages a removal; undo takes back what planning it
// marked elsewhere. The topic's lock is held.
func (e *Engine) stageRemoval(t *entry, rm *removal, undo func()) (ticket, error) {
	st := topic.Staged{Parts: []op.Part{rm.part(t)}, Undo: undo}
	if rm.loggedN > 0 || rm.dead > 0 {
		part := rm.logged(t)
		if err := e.logPart(t, &st, &part, classOf(t.Config.Durability)); err != nil {
			return ticket{}, err
		}
	}
	return t.stage(st), nil
}

// part is what a removal does.
func (r *removal) part(t *entry) op.Part {
	return op.Part{Kind: op.KindDelete, Topic: t.ID, Ranges: r.ranges, N: r.n, Bytes: r.bytes, Dead: r.dead}
}

// logged is what the log is told of it.
func (r *removal) logged(t *entry) op.Part {
	part := r.part(t)
	part.N, part.Bytes = r.loggedN, r.loggedBytes
	return part
}
