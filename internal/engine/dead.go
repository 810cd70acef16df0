package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"

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

// moveDead moves settling jobs to the dead-letter topic, some at a time. It returns those
// that are still settling: those that have no room there, behind an error all that have not
// moved, and those that a delete on its way to the log takes, which may fail.
func (e *Engine) moveDead(ctx context.Context, t *entry, dead []queue.Pick) (left []queue.Pick, err error) {
	slices.SortFunc(dead, func(a, b queue.Pick) int { return cmp.Compare(a.Seq, b.Seq) })
	for len(dead) > 0 {
		done, stay, refused := e.moveSome(ctx, t, dead)
		left, dead = append(left, stay...), dead[done:]
		if refused != nil {
			err = refused
		}
		if refused != nil && !api.IsCode(refused, api.CodeRecordTooLarge) {
			break // what stays is not to blame, and the others would fare no better
		}
	}
	return append(left, dead...), err
}

// letters are jobs that move to the dead letters in one operation, which appends them there
// and deletes them here.
type letters struct {
	picks   []queue.Pick
	records []api.Record
	items   []item
	bytes   int
}

// full reports whether no more should be in one operation.
func (l *letters) full() bool { return len(l.records) >= forwardStep || l.bytes >= forwardBytes }

// removal is what the queue loses if the first n move.
func (l *letters) removal(n int) (rm removal) {
	for _, it := range l.items[:n] {
		rm.add(it)
	}
	rm.dead = uint64(n)
	return rm
}

// moveSome moves as many of the jobs as one operation takes. done is how many it has dealt
// with; of these, stay are still settling.
func (e *Engine) moveSome(ctx context.Context, t *entry, dead []queue.Pick) (done int, stay []queue.Pick, err error) {
	for try := 1; ; try++ {
		l, done, taken, err := e.readDead(t, dead)
		if _, ok := err.(*cold); ok {
			l, done, taken, err = e.fetchDead(ctx, t, dead)
		}
		if err != nil {
			return 0, nil, err
		}
		if len(l.picks) == 0 {
			return done, taken, nil
		}
		d, err := e.deadLetters(ctx, t)
		if err != nil {
			return 0, nil, err
		}
		large, refused := l.leaveOut(d)
		moved, err := e.logDead(t, d, &l)
		if needs, ok := err.(*cold); ok {
			needs.brief = true // the claim has other jobs
		}
		retry, err := e.again(ctx, try, err, t, d)
		if !retry {
			return done, slices.Concat(taken, large, l.picks[moved:]), cmp.Or(err, refused)
		}
	}
}

// readDead makes the copies of as many of the jobs as one operation takes, and says how many
// it has looked at: those that a delete takes are taken. If only the disk has one of them, that
// is a *cold.
func (e *Engine) readDead(t *entry, dead []queue.Pick) (l letters, done int, taken []queue.Pick, err error) {
	rd := getReader()
	defer rd.put()
	t.mu.Lock()
	defer t.mu.Unlock()
	for done < len(dead) && !l.full() {
		if !t.Free(dead[done].Seq) {
			taken = append(taken, dead[done])
			done++
			continue
		}
		before := done
		ok, err := rd.resident(e, t, dead[done].Seq, func(r *api.Record) bool {
			if r.Seq < dead[done].Seq {
				return true
			}
			if r.Seq > dead[done].Seq || !t.Free(r.Seq) {
				return false
			}
			l.add(t.Name, dead[done], r, t.isLogged(r.Seq))
			done++
			return done < len(dead) && !l.full()
		})
		switch {
		case err == nil && !ok:
			err = &cold{t: t, seqs: []uint64{dead[done].Seq}}
		case err == nil && done == before:
			err = unreadable(t, dead[done].Seq, nil)
		}
		if err != nil {
			return l, 0, nil, err
		}
	}
	return l, done, taken, nil
}

// fetchDead is readDead for jobs of which only the disk has some.
func (e *Engine) fetchDead(ctx context.Context, t *entry, dead []queue.Pick) (l letters, done int, taken []queue.Pick, err error) {
	k := fetchKey{t: t, seq: dead[0].Seq, letters: true}
	for {
		r := &deadReading{e: e, t: t, dead: dead}
		f, own := e.begin(k, r.read)
		if err = f.wait(ctx, e.fetches.patience()); err == errSlow {
			err = unreadable(t, k.seq, err)
		}
		if err != nil {
			return letters{}, 0, nil, err
		}
		if own {
			return r.letters, r.done, r.taken, nil
		}
	}
}

// deadReading is a fetchDead in the making. It reads without the topic's lock, as a diff does: what
// goes meanwhile, stageDead finds.
type deadReading struct {
	e    *Engine
	t    *entry
	dead []queue.Pick
	lost []op.Range // announced, no letters

	letters
	done   int
	taken  []queue.Pick
	at     []int  // in dead, of those that are read
	logged []bool // of these
}

func (r *deadReading) read() error {
	p := plans.Get().(*plan)
	defer plans.Put(p)
	var tries replans
	for {
		r.plan(p)
		n := 0
		err := p.read(r.e, r.t, func(rec *api.Record) bool {
			r.add(r.t.Name, r.dead[r.at[n]], rec, r.logged[n])
			n++
			return !r.full()
		})
		var d *damaged
		switch {
		case errors.As(err, &d):
			err = r.stepOver(d)
		case err != nil:
			_, err = tries.again(r.e, r.t, r.dead[r.at[n]].Seq, err)
		default:
			if n < len(r.at) {
				r.upTo(r.at[n-1] + 1)
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// plan plans the reading of as many of the jobs as one operation takes at most.
func (r *deadReading) plan(p *plan) {
	r.letters, r.done, r.taken, r.at, r.logged = letters{}, 0, nil, r.at[:0], r.logged[:0]
	p.ranges, p.places = p.ranges[:0], p.places[:0]
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	for ; r.done < len(r.dead) && len(r.at) < forwardStep; r.done++ {
		pick := r.dead[r.done]
		if r.t.Free(pick.Seq) {
			r.at, r.logged = append(r.at, r.done), append(r.logged, r.t.isLogged(pick.Seq))
			p.ranges = append(p.ranges, op.Range{From: pick.Seq, To: pick.Seq})
		} else if !slices.ContainsFunc(r.lost, func(g op.Range) bool { return g.From <= pick.Seq && pick.Seq <= g.To }) {
			r.taken = append(r.taken, pick)
		}
	}
	for _, g := range p.ranges {
		p.locate(r.t, g)
	}
}

// upTo leaves the jobs from number done on for another operation.
func (r *deadReading) upTo(done int) {
	r.taken = slices.DeleteFunc(r.taken, func(p queue.Pick) bool { return p.Seq > r.dead[done-1].Seq })
	r.done = done
}

// stepOver announces the loss of damaged jobs.
func (r *deadReading) stepOver(d *damaged) error {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	r.lost = append(r.lost, op.Range{From: d.from, To: d.to})
	return r.e.stepOverHeld(r.t, d)
}

// add makes the letter of a job.
func (l *letters) add(queueName string, p queue.Pick, r *api.Record, logged bool) {
	l.picks = append(l.picks, p)
	l.records = append(l.records, deadLetter(queueName, p, r))
	l.items = append(l.items, item{seq: r.Seq, size: uint32(r.Size()), logged: logged})
	l.bytes += r.Size()
}

// leaveOut takes the letters out that their topic, as it is configured, can never hold, and
// returns their jobs and what is to be said of them.
func (l *letters) leaveOut(d *entry) (large []queue.Pick, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := letters{bytes: l.bytes}
	for i := range l.records {
		if refused := d.neverHolds(1, uint64(l.records[i].Size())); refused != nil {
			large, err = append(large, l.picks[i]), refused
			continue
		}
		kept.picks, kept.records, kept.items = append(kept.picks, l.picks[i]), append(kept.records, l.records[i]), append(kept.items, l.items[i])
	}
	*l = kept
	return large, err
}

// deadLetters returns the topic that a queue's dead letters go to now.
func (e *Engine) deadLetters(ctx context.Context, t *entry) (*entry, error) {
	if err := e.relock(t); err != nil {
		return nil, err
	}
	target, cfg := t.Config.DeadLetter, api.DefaultConfig()
	cfg.Durability = t.Config.Durability
	t.mu.Unlock()
	return e.ensureTopic(ctx, target, cfg)
}

// deadLetter is the copy of a job; its meta says where the job comes from.
func deadLetter(queueName string, p queue.Pick, r *api.Record) api.Record {
	return api.Record{HasNode: r.HasNode, HasTag: r.HasTag, Node: slices.Clone(r.Node), Tag: slices.Clone(r.Tag), Data: slices.Clone(r.Data),
		Tier: r.Tier, FairKey: slices.Clone(r.FairKey), Meta: api.AppendLetterMeta(nil, r.Meta, queueName, p.Deliveries, p.Seq)}
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

// logDead logs and stages the move of as many letters as there is room for in both topics,
// and waits for both. It returns how many have moved, and what is in the way of the others.
func (e *Engine) logDead(t, d *entry, l *letters) (moved int, err error) {
	n := len(l.records)
	for n > 0 {
		fits, tk, dtk, refused := e.planDead(t, d, l, n)
		if fits == n {
			if err := e.commit(d, dtk); err != nil {
				return 0, err
			}
			return n, cmp.Or(e.commit(t, tk), err)
		}
		n, err = fits, refused
	}
	return 0, err
}

// planDead stages the move of the first n letters if there is room for all of them, and
// returns for how many there is, and if that are fewer why.
func (e *Engine) planDead(t, d *entry, l *letters, n int) (fits int, tk, dtk ticket, err error) {
	b, rm := newBatch(l.records[:n]), l.removal(n)
	defer b.put()
	if err := e.space.room(int64(len(b.frames))); err != nil {
		return 0, tk, dtk, err
	}
	lockBoth(t, d)
	defer unlockBoth(t, d)
	return e.stageDead(t, d, b, &rm)
}

func (e *Engine) stageDead(t, d *entry, b *batch, rm *removal) (fits int, tk, dtk ticket, err error) {
	for _, x := range []*entry{t, d} {
		if _, blocked := x.blocked(); blocked {
			return 0, tk, dtk, wal.ErrStale // it has ended or changes its class meanwhile: look again
		}
	}
	e.advance(t)
	e.advance(d)
	for _, g := range rm.ranges {
		for seq := g.From; seq <= g.To; seq++ {
			if !t.Free(seq) {
				return 0, tk, dtk, wal.ErrStale // evicted or deleted meanwhile: look again
			}
		}
	}
	now := e.clock()
	if err := e.expire(d, now); err != nil {
		return 0, tk, dtk, err
	}
	if fits = d.roomForFirst(b.sizes); fits < b.n {
		return fits, tk, dtk, d.isFull()
	}
	// One operation serves both topics, so it needs what either waits for:
	// else a log that fails could keep it in one and undo it in the other.
	least := classOf(t.Config.Durability)
	if _, gen, need := t.Pending(); !t.Idle() {
		if gen != e.log.Gen() {
			return 0, tk, dtk, wal.ErrStale
		}
		least = max(least, wal.Class(need))
	}
	a := appending{batch: b, now: now, before: []op.Part{rm.logged(t)}, least: least}
	dtk, _, err = e.stageAppend(d, &a, nil)
	e.account(d)
	if err != nil {
		return 0, tk, dtk, err
	}
	d.lastWrite = now
	tk = t.stage(topic.Staged{LSN: dtk.lsn, Gen: dtk.gen, Need: uint8(max(classOf(t.Config.Durability), dtk.need)), Parts: []op.Part{rm.part(t)}})
	e.account(t)
	return fits, tk, dtk, nil
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
