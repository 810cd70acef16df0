package engine

import (
	"context"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// removal is a set of live numbers that a delete, an ack or a dead letter
// takes, and what they count.
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

// DeleteRecords removes the records that match at the time of the call.
func (e *Engine) DeleteRecords(ctx context.Context, name string, req *api.DeleteRequest) (api.DeleteResult, error) {
	defer guard()
	for {
		t, err := e.lock(name)
		if err != nil {
			return api.DeleteResult{}, err
		}
		rm, err := e.planDelete(t, req)
		if err != nil {
			t.mu.Unlock()
			return api.DeleteResult{}, err
		}
		if rm.n == 0 {
			res := api.DeleteResult{TopicCounters: t.counters()}
			t.mu.Unlock()
			return res, nil
		}
		tk, err := e.stageRemoval(t, &rm, nil)
		t.mu.Unlock()
		if err == wal.ErrStale {
			e.unstale(t)
			continue
		}
		if err != nil {
			return api.DeleteResult{}, err
		}
		if err := e.commit(t, tk); err != nil {
			return api.DeleteResult{}, storageError(err)
		}
		t.mu.Lock()
		res := api.DeleteResult{Deleted: rm.n, TopicCounters: t.counters()}
		t.mu.Unlock()
		return res, nil
	}
}

// planDelete finds what the selectors mean now. The topic's lock is held.
func (e *Engine) planDelete(t *entry, req *api.DeleteRequest) (removal, error) {
	var rm removal
	end := t.Head
	if req.HasBefore {
		end = min(end, max(req.BeforeSeq, 1)-1)
	}
	if req.Match == nil && end == t.Head && t.Idle() && !t.Index.InMemory() {
		if t.Count > 0 {
			rm = removal{ranges: []op.Range{{From: t.Earliest(), To: t.Head}}, n: t.Count, bytes: t.Bytes, loggedN: t.Count, loggedBytes: t.Bytes}
		}
		return rm, nil
	}
	for seq := t.NextFree(0); seq <= end; {
		last := seq
		err := e.readBatch(t, seq, func(r *api.Record) bool {
			if r.Seq > end || r.Seq > t.NextFree(last) {
				return false // what lies between is held elsewhere
			}
			last = max(last, r.Seq)
			if r.Seq >= seq && t.Free(r.Seq) && (req.Match == nil || req.Match.Match(r.HasTag, r.Tag)) {
				rm.add(item{seq: r.Seq, ts: r.TS, size: uint32(r.Size()), logged: t.isLogged(r.Seq)})
			}
			return true
		})
		if err != nil {
			return rm, err
		}
		seq = t.NextFree(max(last, seq))
	}
	return rm, nil
}

func (t *entry) isLogged(seq uint64) bool {
	if !t.Index.InMemory() {
		return true
	}
	ref, _, inLog, _ := t.Index.Find(seq)
	return !(inLog && ref.Segment == topic.InMemory)
}

// stageRemoval logs and stages a removal; undo takes back what planning it
// marked elsewhere. The topic's lock is held.
func (e *Engine) stageRemoval(t *entry, rm *removal, undo func()) (ticket, error) {
	st := e.removalOf(t, rm, undo)
	if rm.loggedN > 0 || rm.dead > 0 {
		part := removalPart(t, rm)
		if err := e.logPart(t, &st, &part, classOf(t.Config.Durability)); err != nil {
			return ticket{}, err
		}
	}
	return e.stageDoomed(t, rm, st), nil
}

func removalPart(t *entry, rm *removal) op.Part {
	return op.Part{Kind: op.KindDelete, Topic: t.ID, Ranges: rm.ranges, N: rm.loggedN, Bytes: rm.loggedBytes, Dead: rm.dead}
}

// removalOf is the staged change that makes a removal visible.
func (e *Engine) removalOf(t *entry, rm *removal, undo func()) topic.Staged {
	r := *rm
	return topic.Staged{Undo: func() {
		if t.q != nil {
			t.q.Rewind(r.ranges[0].From)
		}
		if undo != nil {
			undo()
		}
	}, Apply: func() {
		if t.q != nil {
			for _, g := range r.ranges {
				t.q.ForgetRange(g.From, g.To)
			}
		}
		t.State.Delete(r.ranges, r.n, r.bytes)
		t.DeadLettered += r.dead
		t.Index.Trim(t.Start)
	}}
}

// stageDoomed stages a removal that is in the log.
func (e *Engine) stageDoomed(t *entry, rm *removal, st topic.Staged) ticket {
	t.Doom(rm.ranges, rm.n, rm.bytes)
	tk := t.stage(st)
	e.account(t)
	return tk
}
