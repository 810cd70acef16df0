package engine

import (
	"context"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

func leaseIDAt(req *api.SettleRequest, i int) uint64 {
	if len(req.LeaseIDs) == 0 {
		return 0
	}
	return req.LeaseIDs[i]
}

// Ack completes leased jobs: they are permanently deleted.
func (e *Engine) Ack(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	defer guard()
	for {
		t, _, err := e.lockQueue(name)
		if err != nil {
			return api.SettleResult{}, err
		}
		var res api.SettleResult
		rm, err := e.planAck(t, req, &res)
		if err != nil || rm.n == 0 {
			e.settleResult(t, &res)
			t.mu.Unlock()
			return res, err
		}
		abort := func() { rm.eachSeq(t.q.Abort) }
		tk, err := e.stageRemoval(t, &rm, abort)
		if err != nil {
			abort()
			e.wakeWorkers(t)
		}
		t.mu.Unlock()
		if err == wal.ErrStale {
			e.unstale(t)
			continue
		}
		if err != nil {
			return api.SettleResult{}, err
		}
		begin := time.Now()
		if err := e.commit(t, tk); err != nil {
			return api.SettleResult{}, storageError(err)
		}
		if res.Synced = tk.need == wal.Synced; res.Synced {
			res.SyncMS = ms(time.Since(begin))
		}
		res.Done = int(rm.n)
		t.mu.Lock()
		e.settleResult(t, &res)
		t.mu.Unlock()
		return res, nil
	}
}

// planAck marks the jobs that the node holds as settling. The topic's lock is
// held.
func (e *Engine) planAck(t *entry, req *api.SettleRequest, res *api.SettleResult) (removal, error) {
	var rm removal
	for i, seq := range req.Seqs {
		size, ok := t.q.Settle(seq, req.Node, leaseIDAt(req, i))
		if ok && !t.Free(seq) {
			t.q.Abort(seq) // a delete on its way to the log takes it
			ok = false
		}
		if !ok {
			res.Skipped = append(res.Skipped, seq)
			continue
		}
		it := item{seq: seq, size: size, logged: true}
		if size == 0 || t.Index.InMemory() {
			var err error
			if it, err = e.itemOrGuess(t, seq); err != nil {
				t.q.Abort(seq)
				rm.eachSeq(t.q.Abort)
				return removal{}, err
			}
		}
		rm.add(it)
	}
	sortRanges(&rm)
	return rm, nil
}

func (e *Engine) settleResult(t *entry, res *api.SettleResult) {
	c := t.jobs(e.leaseClock())
	res.Ready, res.InFlight = c.Ready, c.InFlight
}

// Nack gives leased jobs back, at once or after req.DelayMS.
func (e *Engine) Nack(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	defer guard()
	for {
		t, now, err := e.lockQueue(name)
		if err != nil {
			return api.SettleResult{}, err
		}
		until := now + int64(req.DelayMS)
		if t.Config.LeasesDurable {
			res, err := e.nackDurably(t, req, now, until)
			if err == wal.ErrStale {
				continue
			}
			return res, err
		}
		var res api.SettleResult
		for i, seq := range req.Seqs {
			if !t.q.Held(seq, req.Node, leaseIDAt(req, i)) {
				res.Skipped = append(res.Skipped, seq)
				continue
			}
			t.q.Nack(seq, now, until, req.NotStarted)
			res.Done++
		}
		e.settleResult(t, &res)
		e.wakeWorkers(t)
		t.mu.Unlock()
		return res, nil
	}
}

// nackDurably gives jobs back once the log has it: somebody else may have them
// then, so there is no way back. The topic's lock is held and released.
func (e *Engine) nackDurably(t *entry, req *api.SettleRequest, now, until int64) (api.SettleResult, error) {
	var res api.SettleResult
	var back []op.Lease
	for i, seq := range req.Seqs {
		if _, ok := t.q.Settle(seq, req.Node, leaseIDAt(req, i)); !ok {
			res.Skipped = append(res.Skipped, seq)
			continue
		}
		id, n := t.q.Lease(seq)
		if req.NotStarted && n > 0 {
			n--
		}
		l := op.Lease{Seq: seq, ID: id, Deliveries: n}
		if req.DelayMS > 0 {
			l.Deadline = e.wallOf(until, now)
		}
		back = append(back, l)
	}
	res.Done = len(back)
	return e.finishLeases(t, op.KindRelease, "", back, res, topic.Staged{Apply: func() {
		for _, l := range back {
			t.q.Release(l.Seq, e.leaseClock(), until, req.NotStarted)
		}
	}, Undo: func() {
		for _, l := range back {
			t.q.Abort(l.Seq)
		}
	}})
}

// Extend sets the deadline of leased jobs to now plus req.LeaseMS.
func (e *Engine) Extend(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	defer guard()
	for {
		res, err := e.extend(name, req)
		if err != wal.ErrStale {
			return res, err
		}
	}
}

// extend is one attempt. The jobs have the new deadline at once, so that an ack
// finds them, and the old one again if the log cannot keep it.
func (e *Engine) extend(name string, req *api.SettleRequest) (api.SettleResult, error) {
	t, now, err := e.lockQueue(name)
	if err != nil {
		return api.SettleResult{}, err
	}
	var res api.SettleResult
	var kept []op.Lease
	deadline := now + int64(req.LeaseMS)
	wall := e.wallOf(deadline, now)
	before := make(map[uint64]int64)
	if t.Config.LeasesDurable {
		for i, seq := range req.Seqs {
			if t.q.Held(seq, req.Node, leaseIDAt(req, i)) {
				before[seq] = t.q.Deadline(seq)
			}
		}
	}
	var done []uint64
	done, res.Skipped = t.q.Extend(nil, nil, req.Seqs, req.LeaseIDs, req.Node, deadline)
	res.Done = len(done)
	for _, seq := range done {
		res.Deadlines = append(res.Deadlines, api.Deadline{Seq: seq, At: wall})
		if t.Config.LeasesDurable {
			id, n := t.q.Lease(seq)
			kept = append(kept, op.Lease{Seq: seq, ID: id, Deadline: wall, Deliveries: n})
		}
	}
	return e.finishLeases(t, op.KindLease, req.Node, kept, res, topic.Staged{Apply: func() {}, Undo: func() {
		for _, l := range kept {
			t.q.Unextend(l.Seq, l.ID, deadline, before[l.Seq])
		}
	}})
}

// finishLeases logs lease events if there are any, and fills in the counters.
// After an error nothing has changed; wal.ErrStale asks for another attempt.
// The topic's lock is held and released.
func (e *Engine) finishLeases(t *entry, kind op.Kind, node string, leases []op.Lease, res api.SettleResult, st topic.Staged) (api.SettleResult, error) {
	var tk ticket
	var err error
	if len(leases) > 0 {
		if tk, err = e.stageLeases(t, kind, node, leases, st); err != nil {
			st.Undo()
		}
	}
	e.wakeWorkers(t)
	t.mu.Unlock()
	if err == wal.ErrStale {
		e.unstale(t)
		return api.SettleResult{}, err
	}
	if err == nil {
		err = e.commitIf(t, tk)
	}
	if err != nil {
		return api.SettleResult{}, storageError(err)
	}
	t.mu.Lock()
	e.settleResult(t, &res)
	t.mu.Unlock()
	return res, nil
}
