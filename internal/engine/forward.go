package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

const (
	// forwardStep is the most source records of one operation.
	forwardStep = 1024
	// forwardBytes is about the most data and meta of one operation.
	forwardBytes = 1 << 20
)

// errFull says that the destination, or the disk, has no room.
var errFull = errors.New("engine: the destination of a router is full")

// routing is the topics of a shard whose routers are to go on, in the order in which they were
// visited.
type routing struct {
	mu     sync.Mutex
	topics []*entry
	in     map[*entry]struct{} // the same
	ready  chan struct{}       // holds one signal: there may be something
}

func (q *routing) init() { q.in, q.ready = make(map[*entry]struct{}), make(chan struct{}, 1) }

// add takes in a topic that was visited, unless it waits already.
func (q *routing) add(t *entry) {
	q.mu.Lock()
	if _, ok := q.in[t]; !ok {
		q.in[t] = struct{}{}
		q.topics = append(q.topics, t)
	}
	q.mu.Unlock()
	signal(q.ready)
}

// next takes out the topic whose turn it is, nil if there is none.
func (q *routing) next() *entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.topics) == 0 {
		return nil
	}
	t := q.topics[0]
	q.topics[0] = nil
	if q.topics = q.topics[1:]; len(q.topics) == 0 {
		q.topics = nil
	}
	delete(q.in, t) // a visit from here on may have seen more
	return t
}

// routeLoop advances the routers of the topics that a shard's worker has visited.
func (e *Engine) routeLoop(q *routing) {
	for e.stop.Err() == nil {
		t := q.next()
		if t == nil {
			select {
			case <-e.stop.Done():
			case <-q.ready:
			}
			continue
		}
		begin := time.Now()
		more := e.forward(e.stop, t, visitBudget)
		e.work.routing.Add(int64(time.Since(begin)))
		if more {
			e.sched.Again(&t.rank.task, e.mono())
		}
	}
}

// forward advances all routers of the source up to its head as it is now, each
// by at most budget records, and reports whether there is more. A router that somebody
// else is moving is left to them.
func (e *Engine) forward(ctx context.Context, t *entry, budget int) (more bool) {
	for _, r := range listOf(&t.routes.out) {
		if !r.turn.try() {
			r.passed.Store(true)
			if !r.turn.try() {
				continue // who lets go of the turn finds the mark
			}
		}
		left, err := e.advanceHeld(ctx, r, budget)
		e.letGo(r)
		if err != nil && ctx.Err() == nil {
			e.opt.Logger.Warn("a router could not copy; it goes on with the next change of its topics", "router", r.name, "error", err)
		}
		more = more || left && err == nil
	}
	return more
}

// unlimited is a budget that no router uses up.
const unlimited = int(^uint(0) >> 1)

// catchUp brings a destination up to what its sources have acknowledged, before
// it is read. A topic that no router feeds costs one look. What cannot be
// copied is left for later; only the end of ctx is an error.
func (e *Engine) catchUp(ctx context.Context, name string) error {
	t := e.reg.get(name)
	if t == nil || t.routes.in.Load() == nil {
		return nil
	}
	e.catchUpInto(ctx, t, map[*entry]bool{t: true})
	return ctx.Err()
}

func (e *Engine) catchUpInto(ctx context.Context, t *entry, seen map[*entry]bool) {
	for _, r := range listOf(&t.routes.in) {
		if !seen[r.source] {
			seen[r.source] = true
			e.catchUpInto(ctx, r.source, seen)
		}
		if err := e.advanceRouter(ctx, r); err != nil && ctx.Err() == nil {
			e.opt.Logger.Debug("a reader goes on without the copies that could not be made", "router", r.name, "error", err)
		}
	}
}

// advanceRouter copies up to the head of the source as it is now.
func (e *Engine) advanceRouter(ctx context.Context, r *router) error {
	if err := r.turn.take(ctx); err != nil {
		return err
	}
	defer e.letGo(r)
	_, err := e.advanceHeld(ctx, r, unlimited)
	return err
}

// letGo gives back the turn of a router. If a visit has come meanwhile there is another one.
func (e *Engine) letGo(r *router) {
	r.turn.Unlock()
	if r.passed.Swap(false) {
		e.mark(r.source)
	}
}

// copyLast makes the copies of what was acknowledged before the router or its source ends. What cannot
// be copied stays behind; only the end of ctx is an error. The router's turn is held.
func (e *Engine) copyLast(ctx context.Context, r *router) error {
	if _, err := e.advanceHeld(ctx, r, unlimited); err != nil && ctx.Err() == nil {
		e.opt.Logger.Warn("a router ends before it could copy everything", "router", r.name, "error", err)
	}
	return ctx.Err()
}

// advanceHeld copies up to the head of the source as it is now, at most budget source
// records, and reports whether there is more. A destination without room is no error: the
// router goes on once there is some. The router's turn is held.
func (e *Engine) advanceHeld(ctx context.Context, r *router, budget int) (more bool, err error) {
	r.source.mu.Lock()
	e.dropExpired(r.source)
	head := r.source.Head
	r.source.mu.Unlock()
	var tries replans
	for r.begun.Load() && !r.gone.Load() && r.pos.Load() < head {
		if budget <= 0 {
			return true, nil
		}
		n, err := e.forwardOnce(r, head, min(budget, forwardStep))
		budget -= n
		switch {
		case err == errFull:
			if e.hooks.noRoom != nil {
				e.hooks.noRoom(r.name)
			}
			e.giveUp(r)
			return false, nil
		case err != nil:
			if ok, err := tries.again(e, r.source, r.pos.Load()+1, err); !ok {
				return false, err
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
	r.waiting.Store(false)
	return false, nil
}

// copying is one step of a router: what it copies, and where it stands then.
type copying struct {
	r       *router
	records []api.Record
	seqs    []uint64 // of the records, in the source
	bytes   int
	pos     uint64 // last number of the source that is dealt with
}

// forwardOnce makes one step of at most n source records and returns how many
// it has looked at.
func (e *Engine) forwardOnce(r *router, head uint64, n int) (looked int, err error) {
	t := r.source
	p := plans.Get().(*plan)
	defer plans.Put(p)
	t.mu.Lock()
	pos, lost, end := e.planStep(r, p, head, n)
	t.mu.Unlock()
	if lost > 0 {
		if err := e.burn(r, lost, pos); err != nil {
			return 0, err
		}
	}
	c := copying{r: r, pos: pos}
	full := false
	if len(p.ranges) > 0 {
		err := p.read(e, t, func(rec *api.Record) bool {
			looked++
			c.take(rec)
			full = c.bytes >= forwardBytes
			return !full
		})
		if err != nil && (err != errMoved || looked == 0) {
			e.dropUnreadable(t, pos, err)
			return looked, err
		}
		full = full || err == errMoved
	}
	if !full {
		c.pos = max(c.pos, end)
	}
	if e.hooks.read != nil {
		e.hooks.read(r.name)
	}
	return max(looked, 1), e.copyOut(&c)
}

// planStep plans what the router looks at next: it stands at pos once the lost
// numbers are burnt, and at end once what p holds has been read. The source's
// lock is held.
func (e *Engine) planStep(r *router, p *plan, head uint64, n int) (pos, lost, end uint64) {
	t := r.source
	pos = r.pos.Load()
	p.ranges, p.places = p.ranges[:0], p.places[:0]
	if pos < t.Loss {
		gone, g, ok := t.routes.behind.next(pos, t.Loss)
		if ok && p.stillThere(t, g, n) {
			last := p.ranges[0].To
			return g.From - 1, gone, last
		}
		if !ok && g.From <= t.Loss {
			return g.From - 1, gone, g.From - 1
		}
		return t.Loss, t.Loss - pos, t.Loss
	}
	if l, inside := t.RangeAt(pos); inside {
		return l.To, l.To - pos, l.To
	}
	end = head
	if l, ok := t.RangeAbove(pos); ok {
		end = min(end, l.From-1)
	}
	p.piece(t, pos, end, n)
	if k := len(p.ranges); k > 0 {
		if last := p.ranges[k-1].To; t.NextLive(last) <= end {
			end = last
		}
	}
	return pos, 0, end
}

// stillThere plans the reading of a range that a cap took; false if part of it
// has gone with its segment of the log.
func (p *plan) stillThere(t *entry, g op.Range, n int) bool {
	g.To = min(g.To, g.From+uint64(n)-1)
	for seq := g.From; seq <= g.To; {
		ref, _, inLog, _ := t.Index.Find(seq)
		if !inLog || ref.First > seq {
			return false
		}
		seq = ref.Last() + 1
	}
	p.ranges = append(p.ranges, g)
	p.locate(t, g)
	return true
}

// take makes the copy of a record, if the router copies it.
func (c *copying) take(rec *api.Record) {
	c.pos = rec.Seq
	cfg := c.r.cfg.Load()
	if rec.Hops >= api.MaxHops || cfg.Filter != nil && !cfg.Filter.Match(rec.HasTag, rec.Tag) {
		return
	}
	d := api.Record{Data: slices.Clone(rec.Data), Hops: rec.Hops + 1, Tier: rec.Tier, FairKey: slices.Clone(rec.FairKey)}
	if cfg.PreserveNode && rec.HasNode {
		d.HasNode, d.Node = true, slices.Clone(rec.Node)
	}
	if cfg.PreserveTag && rec.HasTag {
		d.HasTag, d.Tag = true, slices.Clone(rec.Tag)
	}
	if cfg.Guarantee == api.ExactlyOnce {
		s := c.r.source
		d.Meta = api.AppendStampedMeta(nil, rec.Meta, &api.Origin{Router: c.r.name, Source: s.Name, ID: s.ID, Epoch: s.CreatedTS, Seq: rec.Seq})
	} else {
		d.Meta = slices.Clone(rec.Meta)
	}
	c.records = append(c.records, d)
	c.seqs = append(c.seqs, rec.Seq)
	c.bytes += d.Size()
}

// copyOut appends the copies to the destination and moves the router, in one
// operation: a restart finds both or neither, so no copy is made twice.
func (e *Engine) copyOut(c *copying) error {
	if len(c.records) == 0 {
		c.r.stopped.Store(false)
		return e.moveCursor(c.r, c.pos)
	}
	full := false
	for {
		b := newBatch(c.records)
		if e.space.room(int64(len(b.frames))) != nil {
			c.r.waitFor(c.seqs[0], b.sizes[0])
			if e.space.room(int64(len(b.frames))) != nil {
				b.put()
				return e.waitInFront(c)
			}
		}
		fits, err := e.appendCopies(c, b)
		b.put()
		switch {
		case err != nil:
			return err
		case fits == 0:
			return e.waitInFront(c)
		case fits < len(c.records):
			full = true
			c.pos = c.seqs[fits] - 1
			c.records, c.seqs = c.records[:fits], c.seqs[:fits]
			continue
		}
		c.r.total.Add(uint64(len(c.records)))
		c.r.stopped.Store(false)
		e.movedTo(c.r, c.pos)
		if full {
			return errFull
		}
		return nil
	}
}

// waitInFront moves the router to the record that has no room. What lies in front of that it does not
// copy, whatever its filter is by the time there is room.
func (e *Engine) waitInFront(c *copying) error {
	if err := e.moveCursor(c.r, c.seqs[0]-1); err != nil {
		return err
	}
	return errFull
}

// movedTo notes the router's new position.
func (e *Engine) movedTo(r *router, pos uint64) {
	r.pos.Store(pos)
	e.releaseBehind(r.source)
}

// cursorAt is the operation that moves the router, behind so many more copies.
func (r *router) cursorAt(pos uint64, copies int) op.Part {
	return op.Part{Kind: op.KindCursor, Topic: r.source.ID, Router: r.id, To: pos, Count: r.total.Load() + uint64(copies)}
}

// appendCopies appends the copies and moves the router's position in the log;
// fits is how many of the copies have room, and nothing is done unless all have.
func (e *Engine) appendCopies(c *copying, b *batch) (fits int, err error) {
	err = e.changeAgain(e.stop, c.r.dest, func(d *entry) (ticket, error) {
		now := e.clock()
		if err := e.expire(d, now); err != nil {
			return ticket{}, err
		}
		if fits = d.roomForFirst(b.sizes); fits < b.n {
			c.r.waitFor(c.seqs[fits], b.sizes[fits])
			e.awaitExpiry(d)
			e.noteStop(c.r, fits == 0 && topic.OverCap(d.plannedConfig(), 1, uint64(b.sizes[0])), c.seqs[0])
			return ticket{}, nil
		}
		a := appending{batch: b, now: now, before: []op.Part{c.r.cursorAt(c.pos, b.n)}}
		tk, _, err := e.stageAppend(d, &a, nil)
		if needs, ok := err.(*cold); ok {
			needs.brief = true // readers of the destination wait for the router's turn
		}
		if err == nil {
			d.lastWrite = now
		}
		return tk, err
	})
	if errors.Is(err, errSlow) {
		time.AfterFunc(fetchPatience, func() { e.mark(c.r.source) })
	}
	return fits, err
}

// noteStop notes whether the next record is larger than the destination, as
// configured, can ever hold, and logs it once.
func (e *Engine) noteStop(r *router, stopped bool, seq uint64) {
	if r.stopped.Swap(stopped) == stopped || !stopped {
		return
	}
	e.opt.Logger.Warn("a router has stopped: its destination can never hold the next record; raise cap_bytes of the destination, or delete the record",
		"router", r.name, "source", r.source.Name, "seq", seq, "destination", r.dest.Name)
}

// roomForFirst returns how many records of these sizes the topic takes now.
func (t *entry) roomForFirst(sizes []uint32) int {
	caps := t.plannedConfig()
	if caps.Discard != api.DiscardReject {
		return len(sizes)
	}
	bytes := t.PlannedBytes()
	for i, size := range sizes {
		bytes += uint64(size)
		if topic.OverCap(caps, t.PlannedCount()+uint64(i)+1, bytes) {
			return i
		}
	}
	return len(sizes)
}

// moveCursor moves a router over what it does not copy. If a crash loses the
// move, the router skips the same numbers again.
func (e *Engine) moveCursor(r *router, pos uint64) error {
	if pos <= r.pos.Load() {
		return nil
	}
	part := r.cursorAt(pos, 0)
	if _, _, err := e.log.AppendUnslotted(e.log.Gen(), part.Encode(nil), nil, noFrames, wal.Memory); err != nil {
		return storageError(err)
	}
	e.movedTo(r, pos)
	return nil
}

// burn takes n numbers of the destination for as many that the source lost, and
// moves the router to pos.
func (e *Engine) burn(r *router, n, pos uint64) error {
	err := e.changeAgain(e.stop, r.dest, func(d *entry) (ticket, error) { return e.stageBurn(d, r, n, pos) })
	if err == nil {
		r.stopped.Store(false)
		e.movedTo(r, pos)
	}
	return err
}

// stageBurn logs and stages a burn. The destination's lock is held.
func (e *Engine) stageBurn(d *entry, r *router, n, pos uint64) (ticket, error) {
	from := d.PlannedHead() + 1
	to := from + n - 1
	reserved := d.reserve
	head, safe := e.reserveHead(nil, d, to)
	need := max(classOf(d.Config.Durability), safe)
	lose := op.Part{Kind: op.KindLose, Topic: d.ID, From: from, To: to, Cause: op.CauseTrim}
	if d.Config.Durability != api.Ephemeral {
		head = lose.Encode(head)
	}
	cursor := r.cursorAt(pos, 0)
	tk, _, err := e.append(d, cursor.Encode(head), nil, noFrames, need, nil)
	if err != nil {
		d.reserve = reserved
		return ticket{}, err
	}
	d.reserve.logged(tk.lsn, tk.gen)
	if d.Config.Durability != api.Ephemeral {
		d.loggedHead = to
	}
	return d.stage(topic.Staged{LSN: tk.lsn, Gen: tk.gen, Need: uint8(tk.need), Parts: []op.Part{lose}}), nil
}
