package engine

import (
	"context"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Diff reads after a cursor, waiting up to req.WaitMS for something to answer.
// visit is called for each record in ascending order, after all waiting is
// done; the record is valid only during the call.
func (e *Engine) Diff(ctx context.Context, name string, req *api.DiffRequest, visit func(*api.Record)) (api.DiffResult, error) {
	defer guard()
	if req.WaitMS > 0 {
		if err := e.awaitNews(ctx, name, req); err != nil {
			return api.DiffResult{}, err
		}
	}
	t, err := e.lockToRead(ctx, name)
	if err != nil {
		return api.DiffResult{}, err
	}
	d := diff{e: e, t: t, req: req, visit: visit}
	if len(req.Nodes) > 0 && t.Config.DedupeNode {
		d.nodes = req.Nodes
	}
	if req.Relay {
		d.res.Life = t.Life()
	}
	d.start()
	return d.run(ctx)
}

// Peek is Diff for somebody who looks at a topic: it does not wait, brings no destination up
// to its sources and does not count as reading.
func (e *Engine) Peek(ctx context.Context, name string, req *api.DiffRequest, visit func(*api.Record)) (api.DiffResult, error) {
	defer guard()
	t, err := e.lock(name)
	if err != nil {
		return api.DiffResult{}, err
	}
	d := diff{e: e, t: t, req: req, visit: visit}
	d.start()
	return d.run(ctx)
}

// Oldest returns the time of a topic's first live record in Unix ms, 0 if it has none. It
// does not count as reading.
func (e *Engine) Oldest(ctx context.Context, name string) (ts int64, err error) {
	defer guard()
	t, err := e.look(name)
	if err != nil {
		return 0, err
	}
	d := diff{e: e, t: t, req: &api.DiffRequest{Limit: 1, MaxBatchBytes: 1}, visit: func(r *api.Record) { ts = r.TS }}
	d.start()
	_, err = d.run(ctx)
	return ts, err
}

// lockToRead is lock for a read of a client, before which a destination is
// brought up to its sources.
func (e *Engine) lockToRead(ctx context.Context, name string) (*entry, error) {
	if err := e.catchUp(ctx, name); err != nil {
		return nil, err
	}
	t, err := e.lock(name)
	if err == nil {
		t.lastRead.Store(e.clock())
	}
	return t, err
}

// awaitNews returns when the topic has something for the cursor, the wait is
// over, or the client or the server goes away. The reader registers under the
// same lock as it looks, so no commit slips between.
func (e *Engine) awaitNews(ctx context.Context, name string, req *api.DiffRequest) error {
	timer := time.NewTimer(time.Duration(req.WaitMS) * time.Millisecond)
	defer timer.Stop()
	for first := true; ; first = false {
		if err := e.catchUp(ctx, name); err != nil {
			return err
		}
		t, err := e.lock(name)
		if err != nil {
			return err
		}
		if first {
			t.lastRead.Store(e.clock())
		}
		if req.FromSeq != t.Head {
			t.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			return nil
		case <-e.drain:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// diff is one answer in the making.
type diff struct {
	e     *Engine
	t     *entry
	req   *api.DiffRequest
	visit func(*api.Record)
	nodes []string
	res   api.DiffResult
	from  uint64 // cursor behind the tombstone, if there is one
	pos   uint64 // last number examined
	end   uint64 // reading goes no further
	upTo  uint64 // if set, nor further than this
	n     int    // records visited
	bytes int64
	full  bool // the limit or the byte budget is used up
}

// start resolves the cursor (contract 5.3). The topic's lock is held.
func (d *diff) start() {
	t, from := d.t, d.req.FromSeq
	d.res.HeadSeq, d.res.EarliestSeq = t.Head, t.Earliest()
	d.pos = from
	switch lost, inside := t.RangeAt(from); {
	case from > t.Head:
		tomb := &api.Tombstone{GapFrom: 1, GapTo: t.Head, Reason: api.ReasonRecreated, MissedEstimate: t.Head, EarliestSeq: d.res.EarliestSeq}
		d.res.Tombstone = tomb
		d.pos = d.res.EarliestSeq - 1
	case from < t.Loss:
		d.tombstone(from+1, t.Loss, t.Reason(from+1))
		d.pos = t.Loss
	case inside:
		d.tombstone(from+1, lost.To, lost.Reason())
		d.pos = lost.To
	}
	if d.res.Tombstone != nil {
		d.res.Tombstone.HeadSeq = t.Head
	}
	d.from = d.pos
	d.bound()
}

// resume fits the answer to what went while the lock was not held: the cursor
// must not pass a loss that it has not announced.
func (d *diff) resume() {
	_, inside := d.t.RangeAt(d.pos)
	switch {
	case d.pos >= d.t.Loss && !inside:
		d.bound()
	case d.pos == d.req.FromSeq && d.res.Tombstone == nil:
		d.start()
	default:
		d.end = d.pos // the next read announces it
	}
}

func (d *diff) tombstone(from, to uint64, reason api.TombstoneReason) {
	d.res.Tombstone = &api.Tombstone{GapFrom: from, GapTo: to, Reason: reason, MissedEstimate: to - from + 1, EarliestSeq: to + 1}
}

// bound says how far this answer may read: to the head as it was at the first
// look, or to the front of the next kept range, which the next read announces.
func (d *diff) bound() {
	d.end = d.res.HeadSeq
	if l, ok := d.t.RangeAbove(d.pos); ok {
		d.end = min(d.end, l.From-1)
	}
	if l, ok := d.t.RangeAt(d.pos); ok && d.res.Tombstone != nil && l.From-1 == d.pos {
		d.end = d.pos
	}
	if d.upTo > 0 {
		d.end = min(d.end, max(d.upTo, d.pos))
	}
}

// run reads piece by piece, each planned under the lock and read without it.
func (d *diff) run(ctx context.Context) (api.DiffResult, error) {
	p := plans.Get().(*plan)
	defer plans.Put(p)
	var tries replans
	for {
		p.piece(d.t, d.pos, d.end, d.req.Limit-d.n)
		d.t.mu.Unlock()
		if len(p.ranges) == 0 {
			d.pos = max(d.pos, d.end)
			break
		}
		err := p.read(d.e, d.t, d.take)
		if ok, err := tries.again(d.e, d.t, d.pos+1, err); !ok {
			return d.res, err
		}
		if d.full {
			break
		}
		if ctx.Err() != nil {
			return d.res, ctx.Err()
		}
		d.t.mu.Lock()
		d.resume()
	}
	d.res.NextFromSeq = d.pos
	return d.res, nil
}

// take examines one record and reports whether reading goes on.
func (d *diff) take(r *api.Record) bool {
	for _, n := range d.nodes {
		if r.HasNode && string(r.Node) == n {
			d.pos = r.Seq
			d.res.RecordsScanned++
			return true
		}
	}
	size := int64(r.Size())
	if d.n > 0 && d.bytes+size > d.req.MaxBatchBytes {
		d.pos = r.Seq - 1 // what is in between is not live
		d.full = true
		return false
	}
	d.visit(r)
	d.pos = r.Seq
	d.res.RecordsScanned++
	d.n++
	d.bytes += size
	if d.n >= d.req.Limit {
		// What follows and is not live is passed over without reading.
		d.full = true
		return false
	}
	return true
}
