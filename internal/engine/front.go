package engine

import (
	"sort"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// item is what a plan has to know of one record.
type item struct {
	seq    uint64
	ts     int64
	size   uint32
	logged bool // its append is in the log
}

// front holds the items of the batch or chunk that the last plan looked at:
// caps and the time to live take the oldest, one after the other.
type front struct {
	items []item
	at    int // where the last look ended
}

func (f *front) find(seq uint64) (item, bool) {
	if f.at < len(f.items) && f.items[f.at].seq == seq {
		return f.items[f.at], true
	}
	i := sort.Search(len(f.items), func(i int) bool { return f.items[i].seq >= seq })
	if i == len(f.items) || f.items[i].seq != seq {
		return item{}, false
	}
	f.at = i + 1
	return f.items[i], true
}

// item returns what a plan has to know of a visible live record, reading the
// batch it lies in if need be. The topic's lock is held.
func (e *Engine) item(t *entry, seq uint64) (item, error) {
	if it, ok := t.front.find(seq); ok {
		return it, nil
	}
	t.front.items, t.front.at = t.front.items[:0], 0
	logged := true
	if ref, _, inLog, _ := t.Index.Find(seq); inLog && ref.Segment == topic.InMemory {
		logged = false
	}
	err := e.readBatch(t, seq, func(r *api.Record) bool {
		t.front.items = append(t.front.items, item{r.Seq, r.TS, uint32(r.Size()), logged})
		return true
	})
	if err != nil {
		return item{}, err
	}
	it, ok := t.front.find(seq)
	if !ok {
		return item{}, unreadable(t, seq, nil)
	}
	return it, nil
}

// readBatch visits every record of the batch or chunk that holds seq, as long
// as visit wants more. The topic's lock is held.
func (e *Engine) readBatch(t *entry, seq uint64, visit func(*api.Record) bool) error {
	ref, run, inLog, sealed := t.Index.Find(seq)
	rd := getReader()
	defer rd.put()
	err := errMoved
	switch {
	case inLog:
		err = rd.batch(e, t, ref, visit)
	case sealed:
		err = rd.chunk(e, t, run.Segment, seq, visit)
	}
	if err == errMoved { // nothing moves while the topic's lock is held
		err = unreadable(t, seq, nil)
	}
	return err
}

// planCap plans what the caps take once add records have come, whose sizes
// sizes holds: the oldest first, the new ones last.
func (e *Engine) planCap(t *entry, cfg *api.Config, add int, addBytes uint64, sizes []uint32) (topic.Eviction, error) {
	var ev topic.Eviction
	count, bytes := t.PlannedCount()+uint64(add), t.PlannedBytes()+addBytes
	if cfg.Discard != api.DiscardOld {
		return ev, nil
	}
	head := t.PlannedHead()
	for seq := uint64(0); topic.OverCap(cfg, count, bytes); {
		if seq < head {
			seq = t.NextFree(seq)
		} else {
			seq++
		}
		size, logged := uint32(0), cfg.Durability != api.Ephemeral
		switch {
		case seq <= t.Head:
			it, err := e.item(t, seq)
			if err != nil {
				return ev, err
			}
			size, logged = it.size, it.logged
		case seq <= head:
			size = t.StagedSize(seq)
		default:
			size = sizes[seq-head-1]
		}
		ev.Take(seq, size, logged)
		count--
		bytes -= uint64(size)
	}
	return ev, nil
}

// expire plans the loss of what has outlived its time. If an earlier change is
// still on its way to the disk, the loss becomes visible behind it; then
// t.expiring says what to wait for.
func (e *Engine) expire(t *entry, now int64) error {
	ttl := t.Config.TTLMS
	if ttl == 0 || t.PlannedCount() == 0 || now <= t.nextExpiry {
		return nil
	}
	var ev topic.Eviction
	next := t.nextExpiry
	for seq := t.NextFree(0); seq <= t.Head; seq = t.NextFree(seq) {
		it, err := e.item(t, seq)
		if err != nil {
			return err
		}
		if now <= it.ts || uint64(now-it.ts) <= ttl {
			next = it.ts + int64(min(ttl, 1<<62))
			break
		}
		ev.Take(seq, it.size, it.logged)
	}
	if ev.To > 0 {
		if err := e.stageEvict(t, ev, op.CauseTTL, now); err != nil {
			return err
		}
	}
	t.nextExpiry = next
	return nil
}

// stageEvict logs and stages the loss of the oldest records by itself.
func (e *Engine) stageEvict(t *entry, ev topic.Eviction, cause op.Cause, now int64) error {
	st := topic.Staged{EvictTo: ev.To, EvictN: ev.N, EvictBytes: ev.Bytes, Undo: func() { t.nextExpiry = 0 }, Apply: func() {
		e.forgetJobs(t, ev.To)
		t.Evict(ev.To, cause, ev.N, ev.Bytes)
		t.Index.Trim(t.Start)
	}}
	if ev.LoggedN > 0 {
		part := op.Part{Kind: op.KindEvict, Topic: t.ID, To: ev.LoggedTo, Cause: cause, N: ev.LoggedN, Bytes: ev.LoggedBytes, TS: now}
		if err := e.logPart(t, &st, &part, wal.Memory); err != nil {
			return err
		}
	}
	tk := t.stage(st)
	e.advance(t)
	if !t.Idle() {
		t.expiring = tk
	}
	return nil
}

// forgetJobs drops the leases of what an eviction takes.
func (e *Engine) forgetJobs(t *entry, to uint64) {
	if t.q != nil && to > t.Start {
		t.q.ForgetRange(t.Start+1, to)
	}
}
