package engine

import (
	"context"
	"slices"
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

// settle makes the change of a worker's ack, nack or extend, and fills in the
// queue's counters. plan is given the time that leases live by.
func (e *Engine) settle(ctx context.Context, name string, res *api.SettleResult, plan func(t *entry, now int64) (ticket, error)) error {
	var now int64
	t, err := e.changeFound(ctx, func() (t *entry, err error) {
		t, now, err = e.lockQueue(name)
		return t, err
	}, func(t *entry) (ticket, error) {
		*res = api.SettleResult{}
		return plan(t, now)
	})
	if err != nil {
		*res = api.SettleResult{}
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.jobs.settled = now
	c := t.jobCounters(e.leaseClock())
	res.Ready, res.InFlight = c.Ready, c.InFlight
	return nil
}

// Ack completes leased jobs: they are permanently deleted.
func (e *Engine) Ack(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	defer guard()
	var res api.SettleResult
	var rm removal
	var tk ticket
	var begin time.Time
	err := e.settle(ctx, name, &res, func(t *entry, _ int64) (_ ticket, err error) {
		if rm, err = e.planAck(t, req, &res); err != nil || rm.n == 0 {
			return ticket{}, err
		}
		abort := func() { rm.eachSeq(t.jobs.q.Abort) }
		if tk, err = e.stageRemoval(t, &rm, abort); err != nil {
			abort()
			e.wakeWorkers(t)
		}
		begin = time.Now()
		return tk, err
	})
	if err != nil || rm.n == 0 {
		return res, err
	}
	if res.Synced = tk.need >= wal.Synced; res.Synced {
		res.SyncMS = ms(time.Since(begin))
	}
	res.Done = int(rm.n)
	return res, nil
}

// planAck marks the jobs that the node holds as settling. The topic's lock is
// held.
func (e *Engine) planAck(t *entry, req *api.SettleRequest, res *api.SettleResult) (removal, error) {
	var rm removal
	var needs *cold
	var free op.Range // of numbers that are free, if it is one
	for i, seq := range req.Seqs {
		size, ok := t.jobs.q.Settle(seq, req.Node, leaseIDAt(req, i))
		if ok && (seq < free.From || seq > free.To) {
			if free.From, free.To = t.FreeRange(seq-1, seq+uint64(len(req.Seqs)-i)); seq != free.From {
				t.jobs.q.Abort(seq) // a delete on its way to the log takes it
				ok = false
			}
		}
		if !ok {
			res.Skipped = append(res.Skipped, seq)
			continue
		}
		it := item{seq: seq, size: size, logged: true}
		if size == 0 || t.Index.InMemory() {
			var err error
			it, err = e.itemOrGuess(t, seq)
			if c, ok := err.(*cold); ok {
				needs = c.and(needs)
				continue
			}
			if err != nil {
				t.jobs.q.Abort(seq)
				rm.eachSeq(t.jobs.q.Abort)
				needs.eachSeq(t.jobs.q.Abort)
				return removal{}, err
			}
		}
		rm.add(it)
	}
	if needs != nil {
		rm.eachSeq(t.jobs.q.Abort)
		needs.eachSeq(t.jobs.q.Abort)
		return removal{}, needs
	}
	sortRanges(&rm)
	return rm, nil
}

// Nack gives leased jobs back, at once or after req.DelayMS.
func (e *Engine) Nack(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	defer guard()
	var res api.SettleResult
	err := e.settle(ctx, name, &res, func(t *entry, now int64) (ticket, error) {
		until := now + int64(req.DelayMS)
		if t.logsLeases() {
			return e.nackDurably(t, req, now, until, &res)
		}
		for i, seq := range req.Seqs {
			if !t.jobs.q.Held(seq, req.Node, leaseIDAt(req, i)) {
				res.Skipped = append(res.Skipped, seq)
				continue
			}
			t.jobs.q.Nack(seq, now, until, req.NotStarted)
			res.Done++
		}
		e.wakeWorkers(t)
		return ticket{}, nil
	})
	return res, err
}

// nackDurably gives jobs back once the log has it: somebody else may have them
// then, so there is no way back. The topic's lock is held.
func (e *Engine) nackDurably(t *entry, req *api.SettleRequest, now, until int64, res *api.SettleResult) (ticket, error) {
	var back []op.Lease
	for i, seq := range req.Seqs {
		if _, ok := t.jobs.q.Settle(seq, req.Node, leaseIDAt(req, i)); !ok {
			res.Skipped = append(res.Skipped, seq)
			continue
		}
		id, n := t.jobs.q.Lease(seq)
		if req.NotStarted && n > 0 {
			n--
		}
		l := op.Lease{Seq: seq, ID: id, Deliveries: n}
		if req.DelayMS > 0 {
			l.Deadline = until
		}
		back = append(back, l)
	}
	res.Done = len(back)
	return e.settleLeases(t, op.KindRelease, "", back, topic.Staged{Then: func() {
		for _, l := range back {
			t.jobs.q.Release(l.Seq, e.leaseClock(), until, req.NotStarted)
		}
	}, Undo: func() {
		for _, l := range back {
			t.jobs.q.Abort(l.Seq)
		}
	}})
}

// Extend sets the deadline of leased jobs to now plus req.LeaseMS. The jobs have
// it at once, so that an ack finds them, and the old one again if the log cannot
// keep it.
func (e *Engine) Extend(ctx context.Context, name string, req *api.SettleRequest) (api.SettleResult, error) {
	defer guard()
	var res api.SettleResult
	err := e.settle(ctx, name, &res, func(t *entry, now int64) (ticket, error) {
		var kept []op.Lease
		deadline := now + int64(req.LeaseMS)
		wall := e.wallOf(deadline, now)
		before := make(map[uint64]int64)
		logged := t.logsLeases()
		if logged {
			for i, seq := range req.Seqs {
				if t.jobs.q.Held(seq, req.Node, leaseIDAt(req, i)) {
					before[seq] = t.jobs.q.Deadline(seq)
				}
			}
		}
		var done []uint64
		done, res.Skipped = t.jobs.q.Extend(nil, nil, req.Seqs, req.LeaseIDs, req.Node, deadline)
		res.Done = len(done)
		for _, seq := range done {
			res.Deadlines = append(res.Deadlines, api.Deadline{Seq: seq, At: wall})
			if logged {
				id, n := t.jobs.q.Lease(seq)
				kept = append(kept, op.Lease{Seq: seq, ID: id, Deadline: deadline, Deliveries: n})
			}
		}
		return e.settleLeases(t, op.KindLease, req.Node, kept, topic.Staged{Undo: func() {
			for _, l := range kept {
				t.jobs.q.Unextend(l.Seq, l.ID, deadline, before[l.Seq])
			}
		}})
	})
	return res, err
}

// settleLeases logs and stages lease events if there are any; after an error
// nothing has changed. The topic's lock is held.
func (e *Engine) settleLeases(t *entry, kind op.Kind, node string, leases []op.Lease, st topic.Staged) (tk ticket, err error) {
	if len(leases) > 0 {
		if tk, err = e.stageLeases(t, kind, node, leases, st); err != nil {
			st.Undo()
		}
	}
	e.wakeWorkers(t)
	return tk, err
}

// stageReleases logs, if leases are durable, that nobody holds these jobs any more. They are
// given back already, and with the lock free commitReleases has to follow. The topic's lock is held.
func (e *Engine) stageReleases(t *entry, seqs []uint64) (ticket, error) {
	if !t.logsLeases() || len(seqs) == 0 || t.gone || t.dropped {
		return ticket{}, nil
	}
	back := make([]op.Lease, len(seqs))
	for i, seq := range seqs {
		id, n := t.jobs.q.Lease(seq)
		back[i] = op.Lease{Seq: seq, ID: id, Deliveries: n}
	}
	return e.stageLeases(t, op.KindRelease, "", back, topic.Staged{})
}

// commitReleases waits for what stageReleases has returned.
func (e *Engine) commitReleases(t *entry, tk ticket, err error, jobs int) {
	if err == nil {
		err = e.commitIf(t, tk)
	}
	if err != nil {
		e.opt.Logger.Warn("the end of leases could not be logged; after a restart they last until their deadline", "topic", t.Name, "jobs", jobs, "error", err)
	}
}

// logsLeases reports whether what becomes of leases is logged: also while a configuration is
// on its way that makes them durable, or ends that. The topic's lock is held.
func (t *entry) logsLeases() bool { return t.Config.LeasesDurable || t.plannedConfig().LeasesDurable }

// leasesStated is how many leases one operation states at most.
const leasesStated = 1000

// stateLeases logs how each job stands that was ever claimed, in front of a configuration
// that makes leases durable: what the log has of them may be from an earlier time. The
// topic's lock is held.
func (e *Engine) stateLeases(t *entry) error {
	t.jobs.q.Expire(e.leaseClock())
	held := make(map[string][]op.Lease) // by node; of none: they are claimable, now or later
	t.jobs.q.Each(func(seq uint64, node string, id uint64, deadline int64, deliveries uint64) {
		if id == 0 {
			return // the log has its delay
		}
		held[node] = append(held[node], op.Lease{Seq: seq, ID: id, Deadline: deadline, Deliveries: deliveries})
	})
	for _, seq := range t.jobs.outdated {
		if id, _ := t.jobs.q.Lease(seq); id == 0 && t.Live(seq) {
			held[""] = append(held[""], op.Lease{Seq: seq})
		}
	}
	for node, leases := range held {
		kind := op.KindLease
		if node == "" {
			kind = op.KindRelease
		}
		for some := range slices.Chunk(leases, leasesStated) {
			if _, err := e.stageLeases(t, kind, node, some, topic.Staged{}); err != nil {
				return err
			}
		}
	}
	return nil
}
