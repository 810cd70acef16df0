package engine

import (
	"context"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// How every verb changes a topic:
//
//	lock the topic                                   // lock, relock; change does all of this
//	plan: what is there, what is staged, what may be // from PlannedHead and plannedConfig
//	append the operation to the log                  // append: into memory, never waits
//	stage the change with its place in the log       // stage
//	unlock the topic
//	wait until the class holds at that place         // commit: without a lock, the first waiter works for all
//	lock the topic, apply what is due, unlock it     // advance: in the order of the log
//	answer
//
// What has to hold meanwhile:
//
//   - append and stage follow each other under one hold of the topic's lock, so
//     the order of the log is the order of the staged changes and of the numbers.
//   - A change needs at least the class of those staged before it. If the log
//     fails, all of a topic's changes from some place on have failed.
//   - A plan that builds on what a failed log undid gets wal.ErrStale. change
//     lets go of the lock, waits until that is undone, and plans again.
//   - A plan never reads the disk. What it needs of it is the error, a *cold,
//     for which change does the same: nothing may be staged before it is known
//     that all is there.
//   - Nobody sees a change before advance has applied it, and whoever holds the
//     lock may call advance: the waiter is not always the first to look.
//   - What waits for the topic (long polls, streams, workers) is told by advance
//     alone.

// change makes one change of the topic of that name, in the way above, and
// returns the topic. plan stages the change with the topic's lock held and
// returns what to wait for; it may be called more than once, each time on what
// is there by then.
func (e *Engine) change(ctx context.Context, name string, plan func(*entry) (ticket, error)) (*entry, error) {
	return e.changeFound(ctx, func() (*entry, error) { return e.lock(name) }, plan)
}

// changeAgain is change for a verb that had the topic before and let go of it.
func (e *Engine) changeAgain(ctx context.Context, t *entry, plan func(*entry) (ticket, error)) error {
	_, err := e.changeFound(ctx, func() (*entry, error) { return t, e.relock(t) }, plan)
	return err
}

// changeFound is change of the topic that find returns with its lock held; find
// may register it.
func (e *Engine) changeFound(ctx context.Context, find func() (*entry, error), plan func(*entry) (ticket, error)) (*entry, error) {
	t, tk, err := e.stageFound(ctx, find, plan)
	if err != nil {
		return t, err
	}
	return t, e.settleFound(t, tk)
}

// stageFound is the part of changeFound that needs the topic's lock; settleFound has to
// follow it.
func (e *Engine) stageFound(ctx context.Context, find func() (*entry, error), plan func(*entry) (ticket, error)) (*entry, ticket, error) {
	for try := 1; ; try++ {
		t, err := find()
		if err != nil {
			return nil, ticket{}, err
		}
		tk, err := plan(t)
		// Also after an error: what the plan took from the totals goes back.
		e.account(t)
		e.countKeys(t)
		stillborn := err != nil && !t.begun()
		if stillborn {
			t.dropped = true // before the lock is free: somebody may wait for it
		} else if err == nil && tk.lsn == 0 {
			e.advance(t) // nothing to wait for
		}
		t.mu.Unlock()
		if stillborn {
			e.reg.remove(t)
		}
		retry, err := e.again(ctx, try, err, t)
		if !retry {
			return t, tk, err
		}
	}
}

// settleFound waits for what stageFound has staged.
func (e *Engine) settleFound(t *entry, tk ticket) error {
	if tk.lsn == 0 {
		return nil
	}
	err := storageError(e.commit(t, tk))
	if err != nil && !t.created.Load() {
		e.unregister(t)
	}
	return err
}

// again reports whether a plan of these topics is to be made again after err: the
// log has failed what it built on, which by then is undone, or what it lacked was
// on the disk, and has been read. Otherwise it returns the error to answer with. try
// counts from 1. The locks are free.
func (e *Engine) again(ctx context.Context, try int, err error, topics ...*entry) (bool, error) {
	if c, ok := err.(*cold); ok {
		if try > maxFetches {
			return false, unreadable(c.t, c.seqs[0], c)
		}
		err := e.fetch(ctx, c)
		return err == nil, err
	}
	if err != wal.ErrStale {
		return false, err
	}
	for _, t := range topics {
		e.unstale(t)
	}
	return true, nil
}

// lock returns the topic of that name with its lock held, its staged changes
// applied as far as the log allows, and what has expired taken out. It waits
// for a creation or an end that is on its way, so that nobody acts on what is
// not durable.
func (e *Engine) lock(name string) (*entry, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		t := e.reg.get(name)
		if t == nil {
			return nil, api.TopicNotFound(name)
		}
		t.mu.Lock()
		if !e.ready(t) {
			continue
		}
		err := e.expire(t, e.clock())
		if err == nil && t.expiring.lsn == 0 {
			return t, nil
		}
		wait := t.expiring
		if _, needs := err.(*cold); err != nil && err != wal.ErrStale && (!needs || try > maxFetches) {
			// While nothing can be logged, reads go on with what is there; a
			// write meets the same error itself.
			return t, nil
		}
		t.mu.Unlock()
		if retry, _ := e.again(e.stop, try, err, t); !retry {
			e.unblock(t, wait)
		}
	}
}

// look is lock for somebody who watches over the server and does not wait for the log: what
// is on its way to it is not seen yet.
func (e *Engine) look(name string) (*entry, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	t := e.reg.get(name)
	if t == nil {
		return nil, api.TopicNotFound(name)
	}
	t.mu.Lock()
	if !t.created.Load() || t.gone {
		t.mu.Unlock()
		return nil, api.TopicNotFound(name)
	}
	e.dropExpired(t)
	if t.gone {
		t.mu.Unlock()
		return nil, api.TopicNotFound(name)
	}
	return t, nil
}

// ready applies what is due to the topic, whose lock is held, and reports
// whether it can be used. If it cannot, ready has let go of the lock and waited
// for what blocks it: the caller looks again.
func (e *Engine) ready(t *entry) bool {
	if wait, ok := t.blocked(); ok {
		t.mu.Unlock()
		e.unblock(t, wait)
		return false
	}
	e.advance(t)
	return true
}

// blocked reports what has to be waited for before the topic can be used.
func (t *entry) blocked() (ticket, bool) {
	if t.dropped {
		return t.end, true
	}
	if !t.created.Load() {
		return t.begin.synced(), true
	}
	if t.leaving.lsn != 0 {
		return t.leaving, true
	}
	return ticket{}, false
}

// relock takes the lock of a topic again after a verb let go of it. Without an
// error the lock is held and the topic still exists; otherwise, with
// topic_not_found, it has ended.
func (e *Engine) relock(t *entry) error {
	for {
		t.mu.Lock()
		if t.gone {
			t.mu.Unlock()
			return api.TopicNotFound(t.Name)
		}
		if e.ready(t) {
			return nil
		}
	}
}

// unblock waits for what blocks the topic, applies it, and removes a topic that
// has ended, or never began, from the registry.
func (e *Engine) unblock(t *entry, wait ticket) error {
	err := e.wait(wait)
	t.mu.Lock()
	e.advance(t)
	if err != nil && t.dropped && t.end == wait {
		t.dropped = false // its end is not in the log: it goes on
	}
	gone := t.dropped || !t.created.Load()
	if t.expiring == wait {
		t.expiring = ticket{}
	}
	if t.leaving == wait {
		t.leaving = ticket{}
	}
	t.mu.Unlock()
	if gone {
		e.unregister(t)
	}
	return err
}

// A listener is a room that follows the topics: push, routes and jobs. The
// kernel calls it with the topic's lock held and knows no more of it. It looks
// at what the topic shows and at its own part of the entry, and stages nothing.
type listener interface {
	// published tells that staged changes took effect, or never will.
	published(t *entry, what outcome)
	// appended tells that records have come that are not plain jobs, also while
	// the log is replayed.
	appended(t *entry, flows []op.Span)
	// evicting tells that numbers are about to go. They are still there; capped
	// says that a cap takes them.
	evicting(t *entry, gone op.Range, capped bool)
	// awaitsRoom reports whether somebody goes on once a record of the topic has gone.
	awaitsRoom(t *entry) bool
	// ended tells that the topic has left the registry. What a room keeps of it,
	// leases too, goes with the entry.
	ended(t *entry)
}

// outcome is what advance has done.
type outcome struct {
	news   bool // the head has moved
	undone bool // the log has failed some of what was staged
}

// ticket is a place in the log and the class that has to hold there.
type ticket struct {
	lsn, gen uint64
	need     wal.Class
}

// logPlace is one in the log, of an operation that has to be synced.
type logPlace struct{ lsn, gen uint64 }

func (p logPlace) synced() ticket { return ticket{p.lsn, p.gen, wal.Synced} }

// append puts one operation of a topic into the log; once the topic has ended
// it refuses with topic_not_found. It needs at least the class of what is
// staged before it, so that both meet the same fate if the log fails. *slot
// says whether the caller holds a slot of the ingest queue, and is cleared once
// the log has it. The topic's lock is held.
func (e *Engine) append(t *entry, head, frames []byte, crc uint32, need wal.Class, slot *bool) (ticket, wal.Pos, error) {
	if t.dropped {
		return ticket{}, wal.Pos{}, api.TopicNotFound(t.Name)
	}
	gen := e.log.Gen()
	if _, pendingGen, pending := t.Pending(); !t.Idle() {
		if pendingGen != gen {
			return ticket{}, wal.Pos{}, wal.ErrStale
		}
		need = max(need, wal.Class(pending))
	}
	log := e.log.AppendUnslotted
	if slot != nil && *slot {
		log, *slot = e.log.Append, false
	}
	lsn, pos, err := log(gen, head, frames, crc, need)
	if err != nil {
		return ticket{}, wal.Pos{}, storageOr(err)
	}
	e.ingested.Add(int64(len(head) + len(frames)))
	return ticket{lsn, gen, need}, pos, nil
}

var noFrames = wal.Checksum(nil)

// logPart logs one part without a slot, for a change that is staged with it.
func (e *Engine) logPart(t *entry, st *topic.Staged, part *op.Part, class wal.Class) error {
	tk, _, err := e.append(t, part.Encode(nil), nil, noFrames, class, nil)
	st.LSN, st.Gen, st.Need = tk.lsn, tk.gen, uint8(tk.need)
	return err
}

// stage queues a change of the topic and returns what to wait for.
func (t *entry) stage(s topic.Staged) ticket {
	lsn, gen, need := t.Stage(s)
	return ticket{lsn, gen, wal.Class(need)}
}

// commit waits until the class holds at the ticket's place and applies what is
// due; after nil the change is visible, after an error it never will be.
func (e *Engine) commit(t *entry, tk ticket) error {
	err := e.wait(tk)
	t.mu.Lock()
	e.advance(t)
	t.mu.Unlock()
	return err
}

// commitIf is commit for a verb that may have logged nothing.
func (e *Engine) commitIf(t *entry, tk ticket) error {
	if tk.lsn == 0 {
		return nil
	}
	return e.commit(t, tk)
}

// wait returns once the class holds at the ticket's place; a ticket without a
// place needs no wait.
func (e *Engine) wait(tk ticket) error {
	if tk.lsn == 0 {
		return nil
	}
	if err := e.log.Wait(tk.lsn, tk.gen, tk.need); err != nil {
		return err
	}
	if e.fenced.Load() { // what this server still does counts no more
		return errFenced()
	}
	return nil
}

// unstale waits until it is decided what a failed log keeps, before a plan that
// built on it is made again.
func (e *Engine) unstale(t *entry) {
	t.mu.Lock()
	lsn, gen, need := t.Pending()
	t.mu.Unlock()
	e.commit(t, ticket{lsn, gen, wal.Class(need)})
}

// advance applies what the log has met and undoes what it has failed. The
// topic's lock is held.
func (e *Engine) advance(t *entry) {
	if t.Idle() {
		return
	}
	count, head, applied := t.Count, t.Head, false
	undone := t.Advance(func(s *topic.Staged) (ok, failed bool) {
		if s.LSN == 0 {
			return true, false
		}
		return e.log.Check(s.LSN, s.Gen, wal.Class(s.Need))
	}, func(s *topic.Staged) {
		applied = true
		e.applyStaged(t, s)
	})
	if undone {
		t.replan()
	}
	if d := int64(t.Count - count); d != 0 && !t.gone {
		e.records.Add(d)
		if d < 0 {
			e.markDirty(t)
		}
	}
	e.account(t)
	e.countKeys(t)
	if !applied && !undone {
		return // whoever looks at the topic comes by here, and would wake all that wait for it
	}
	news := t.Head > head
	if news {
		t.wake()
	}
	for _, l := range e.listeners {
		l.published(t, outcome{news, undone})
	}
}

// evicting tells the rooms what is about to go.
func (e *Engine) evicting(t *entry, from, to uint64, capped bool) {
	if from > to {
		return
	}
	for _, l := range e.listeners {
		l.evicting(t, op.Range{From: from, To: to}, capped)
	}
}

// applyStaged lets a staged change take effect.
func (e *Engine) applyStaged(t *entry, s *topic.Staged) {
	if s.N > 0 {
		p := s.Append()
		e.apply(t, &p, s.LSN, s.Ref)
	}
	for i := range s.Parts {
		e.apply(t, &s.Parts[i], s.LSN, topic.Ref{})
	}
	if s.Then != nil {
		s.Then()
	}
}

// apply lets one part of an operation take effect on its topic: while the
// engine runs once its class holds, and in a recovery as the log has it. There
// is no other way to change what a restart has to find again, but for two
// things: leases, which have effect before the log has them, so that no job is
// handed out twice, and a router's position, which belongs to whoever moves it.
func (e *Engine) apply(t *entry, p *op.Part, lsn uint64, ref topic.Ref) {
	if p.Kind == op.KindAppend && p.EvictTo > 0 {
		// In two steps, of which p becomes the second: what a cap takes may have
		// come just now, and is kept for the routers all the same.
		to, n, bytes := p.EvictTo, p.EvictN, p.EvictBytes
		p.EvictTo = 0
		e.apply(t, p, lsn, ref)
		p.Kind, p.To, p.Cause, p.N, p.Bytes = op.KindEvict, to, op.CauseCap, n, bytes
	}
	switch p.Kind {
	case op.KindDelete:
		if p.Dead > 0 {
			e.buried.add(burial{lsn, t.ID, p.Dead})
		}
		for _, g := range p.Ranges {
			e.evicting(t, g.From, g.To, false)
		}
	case op.KindEvict:
		e.evicting(t, t.Start+1, p.To, p.Cause == op.CauseCap)
	case op.KindLose:
		e.evicting(t, p.From, p.To, false)
	}
	t.Apply(p, ref)
	if len(p.Flows) > 0 {
		for _, l := range e.listeners {
			l.appended(t, p.Flows)
		}
		p.Flows = nil
	}
}

// replan takes back what planning has marked beside the staged changes that the
// log has failed.
func (t *entry) replan() {
	if !t.created.Load() {
		t.dropped = true // its creation is among them
	}
	t.next = nil
	t.nextExpiry = 0
}

// markDirty notes that records of the topic went, and their space with them.
// Its lock is held.
func (e *Engine) markDirty(t *entry) {
	if !t.dirty {
		t.dirty = true
		signal(e.shrink)
	}
}

// account carries a change of the topic's planned bytes over to the total.
func (e *Engine) account(t *entry) {
	if d := int64(t.PlannedBytes() - t.accounted); d != 0 && !t.gone {
		t.accounted += uint64(d)
		e.bytes.Add(d)
	}
}

// countKeys carries a change of the topic's idempotency keys over to the total.
func (e *Engine) countKeys(t *entry) {
	if n := int64(t.Keys.Len()); n != t.keyed.Load() && !t.gone {
		e.keys.Add(n - t.keyed.Swap(n))
	}
}

func classOf(d api.Durability) wal.Class {
	switch d {
	case api.Disk:
		return wal.Written
	case api.Fsync:
		return wal.Synced
	}
	return wal.Memory
}
