package engine

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/queue"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

func sortRanges(rm *removal) {
	byFrom := func(a, b op.Range) int { return cmp.Compare(a.From, b.From) }
	if !slices.IsSortedFunc(rm.ranges, byFrom) {
		slices.SortFunc(rm.ranges, byFrom)
	}
}

// tryMoveDead is moveDead for a claim, which goes on without the jobs that
// could not be moved: it returns them, still settling, for the claim's end.
func (e *Engine) tryMoveDead(ctx context.Context, t *entry, name string, dead []queue.Pick) (left []queue.Pick) {
	left, err := e.moveDead(ctx, t, dead)
	if err != nil {
		switch {
		case t.isGone(): // the claim will notice
		case api.IsCode(err, api.CodeDiskFull): // the log says so once for all
		default:
			if tries := t.unmoved(e.leaseClock()); tries > 0 {
				e.opt.Logger.Warn("dead letters could not be moved; the jobs stay ready", "topic", name, "jobs", len(dead), "tries", tries, "error", err)
			}
		}
	}
	return left
}

// unmovedEvery is how often, in ms, the log is told that a queue's dead letters cannot be moved:
// every claim tries, and one that waits four times a second.
const unmovedEvery = 60_000

// unmoved counts a move that has failed, and returns how many have since the log was told last;
// 0: it is not told now.
func (t *entry) unmoved(now int64) (tries int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j := t.jobs
	j.unmoved++
	if now < j.tellUnmoved {
		return 0
	}
	tries, j.unmoved = j.unmoved, 0
	j.tellUnmoved = now + unmovedEvery
	return tries
}

// moveDead moves settling jobs to the dead-letter topic: one operation appends
// them there and deletes them here. It returns those that are still settling: all
// after an error, for then nothing has moved, and else those that a delete on its way to
// the log takes, which may fail.
func (e *Engine) moveDead(ctx context.Context, t *entry, dead []queue.Pick) (left []queue.Pick, err error) {
	slices.SortFunc(dead, func(a, b queue.Pick) int { return cmp.Compare(a.Seq, b.Seq) })
	for {
		records, rm, taken, err := e.readDead(t, dead)
		if err != nil {
			return dead, err
		}
		if rm.n == 0 {
			return taken, nil
		}
		if err := e.relock(t); err != nil {
			return dead, err
		}
		target, cfg := t.Config.DeadLetter, api.DefaultConfig()
		cfg.Durability = t.Config.Durability
		t.mu.Unlock()
		d, err := e.ensureTopic(ctx, target, cfg)
		if err != nil {
			return dead, err
		}
		b := newBatch(records)
		if err = e.space.room(int64(len(b.frames))); err == nil {
			err = e.logDead(t, d, b, &rm)
		}
		b.put()
		switch {
		case e.again(err, t, d):
		case err != nil:
			return dead, err
		default:
			return taken, nil
		}
	}
}

// readDead makes the copies of those jobs that still exist and that no delete takes.
func (e *Engine) readDead(t *entry, dead []queue.Pick) (records []api.Record, rm removal, taken []queue.Pick, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range dead {
		if !t.Free(p.Seq) {
			taken = append(taken, p)
			continue
		}
		it, err := e.item(t, p.Seq)
		if err == nil {
			err = e.readBatch(t, p.Seq, func(r *api.Record) bool {
				if r.Seq == p.Seq {
					records = append(records, deadLetter(t.Name, p, r))
				}
				return r.Seq < p.Seq
			})
		}
		if err != nil {
			if err = e.stepOverHeld(t, err); err != nil {
				return nil, rm, nil, err
			}
			continue // it is lost, and no letter
		}
		rm.add(it)
		rm.dead++
	}
	return records, rm, taken, nil
}

// deadLetter is the copy of a job; its meta says where the job comes from.
func deadLetter(queueName string, p queue.Pick, r *api.Record) api.Record {
	c := api.Record{HasNode: r.HasNode, HasTag: r.HasTag, Node: slices.Clone(r.Node), Tag: slices.Clone(r.Tag), Data: slices.Clone(r.Data),
		Tier: r.Tier, FairKey: slices.Clone(r.FairKey)}
	meta := []byte{'{'}
	if len(r.Meta) > 2 {
		meta = append(meta, r.Meta[1:len(r.Meta)-1]...)
		meta = append(meta, ',')
	}
	meta = append(meta, `"$dead_letter_from":`...)
	meta = api.AppendString(meta, queueName)
	meta = append(meta, `,"$dead_letter_deliveries":"`...)
	meta = strconv.AppendUint(meta, p.Deliveries, 10)
	meta = append(meta, `","$dead_letter_src_seq":"`...)
	meta = strconv.AppendUint(meta, p.Seq, 10)
	c.Meta = append(meta, '"', '}')
	return c
}

// ensureTopic returns the topic, creating it durably if it is absent.
func (e *Engine) ensureTopic(ctx context.Context, name string, cfg api.Config) (*entry, error) {
	for {
		if t := e.reg.get(name); t != nil {
			t.mu.Lock()
			if e.ready(t) {
				t.mu.Unlock()
				return t, nil
			}
			continue
		}
		if _, err := e.PutTopic(ctx, name, cfg); err != nil && !api.IsCode(err, api.CodeTopicExistsIncompatible) {
			return nil, err
		}
	}
}

// logDead logs and stages the move in both topics and waits for both.
func (e *Engine) logDead(t, d *entry, b *batch, rm *removal) error {
	lockBoth(t, d)
	tk, dtk, err := e.stageDead(t, d, b, rm)
	unlockBoth(t, d)
	if err != nil {
		return err
	}
	if err := e.commit(d, dtk); err != nil {
		return err
	}
	return e.commit(t, tk)
}

func (e *Engine) stageDead(t, d *entry, b *batch, rm *removal) (tk, dtk ticket, err error) {
	for _, x := range []*entry{t, d} {
		if _, blocked := x.blocked(); blocked {
			return tk, dtk, wal.ErrStale // it has ended or changes its class meanwhile: look again
		}
	}
	e.advance(t)
	e.advance(d)
	for _, g := range rm.ranges {
		for seq := g.From; seq <= g.To; seq++ {
			if !t.Free(seq) {
				return tk, dtk, wal.ErrStale // evicted or deleted meanwhile: look again
			}
		}
	}
	now := e.clock()
	if err := e.roomFor(d, b, now); err != nil {
		return tk, dtk, err
	}
	// One operation serves both topics, so it needs what either waits for:
	// else a log that fails could keep it in one and undo it in the other.
	least := classOf(t.Config.Durability)
	if _, gen, need := t.Pending(); !t.Idle() {
		if gen != e.log.Gen() {
			return tk, dtk, wal.ErrStale
		}
		least = max(least, wal.Class(need))
	}
	a := appending{batch: b, now: now, before: []op.Part{rm.logged(t)}, least: least}
	dtk, _, err = e.stageAppend(d, &a, nil)
	e.account(d)
	if err != nil {
		return tk, dtk, err
	}
	d.lastWrite = now
	tk = t.stage(topic.Staged{LSN: dtk.lsn, Gen: dtk.gen, Need: uint8(max(classOf(t.Config.Durability), dtk.need)), Parts: []op.Part{rm.part(t)}})
	e.account(t)
	return tk, dtk, nil
}

// lockBoth takes two topics' locks in the order of their numbers.
func lockBoth(a, b *entry) {
	if a.ID > b.ID {
		a, b = b, a
	}
	a.mu.Lock()
	b.mu.Lock()
}

func unlockBoth(a, b *entry) {
	a.mu.Unlock()
	b.mu.Unlock()
}
