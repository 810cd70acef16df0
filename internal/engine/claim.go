package engine

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/queue"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
)

// leased is what a queue keeps of its jobs.
type leased struct {
	q        *queue.Queue
	window   *claimWindow // nil unless claims are being gathered
	workers  *workers     // nil unless jobs are pushed
	produced produced
	overload *overload               // nil unless writes are refused by their wait
	claimed  int64                   // when a worker asked last, by the lease clock; 0: none has
	settled  int64                   // when a worker acked, nacked or extended last, likewise
	lease    int64                   // ms, that a worker asked for last
	oldest   atomic.Pointer[written] // what OldestReady has read last
	dead     uint64                  // its dead letters when the engine was opened
	outdated []uint64                // jobs of which the log has leases that ended when they were not durable

	unmoved     int   // moves of dead letters that have failed since the log was told
	tellUnmoved int64 // when it may be told again, by the lease clock
}

// recovered ends a recovery: only durable leases outlive it.
func (l *leased) recovered(t *entry) {
	if !t.Config.LeasesDurable {
		l.outdated = l.q.ForgetLeases()
	}
	l.q.Recovered(&t.Topic)
	l.dead = t.DeadLettered
}

// jobRoom hands the jobs of a queue to its workers.
type jobRoom struct{ e *Engine }

func (j jobRoom) published(t *entry, what outcome) {
	if t.jobs == nil {
		return
	}
	if what.undone {
		t.jobs.q.Rewind(1) // claims may have passed over what was to go
	}
	j.e.wakeWorkers(t)
}

// appended gives jobs their place in the queue's order.
func (jobRoom) appended(t *entry, flows []op.Span) {
	if t.jobs != nil {
		t.jobs.q.Add(flows, t.Count, &t.Topic)
	}
}

// evicting drops the leases of what is about to go.
func (jobRoom) evicting(t *entry, gone op.Range, _ bool) {
	if t.jobs != nil {
		t.jobs.q.ForgetRange(gone.From, gone.To)
	}
}

// awaitsRoom reports whether jobs lie claimable though a work stream that holds some is there: it
// holds as many as it may.
func (j jobRoom) awaitsRoom(t *entry) bool {
	return t.jobs != nil && t.jobs.streams() > 0 && t.jobs.q.InFlight() > 0 && t.claimable(j.e.leaseClock()) > 0
}

// ended lets the work streams and the claims that wait find that their queue has ended.
func (jobRoom) ended(t *entry) {
	if t.jobs == nil || t.jobs.workers == nil {
		return
	}
	for w := range t.jobs.workers.all {
		signal(w.ready)
	}
}

// lockQueue is lock for a queue topic, after giving back expired leases; now is
// a time of the lease clock.
func (e *Engine) lockQueue(name string) (t *entry, now int64, err error) {
	t, err = e.lock(name)
	if err != nil {
		return nil, 0, err
	}
	if t.jobs == nil {
		t.mu.Unlock()
		return nil, 0, notAQueue(name)
	}
	now = e.leaseClock()
	t.jobs.q.Expire(now)
	return t, now, nil
}

func notAQueue(name string) error {
	return api.Errorf(api.CodeNotAQueue, "topic %q is a log; jobs can be claimed only from a topic of type queue", name).With("topic", name)
}

// Claim leases up to req.Max jobs, expired and returned ones first. visit is
// called for each job in ascending order of seq; the job is valid only during
// the call, which may lower req.MaxBytes. If there is none it waits up to req.WaitMS for one; a wait that ends,
// or is ended by Drain, is answered with none.
func (e *Engine) Claim(ctx context.Context, name string, req *api.ClaimRequest, visit func(*api.Job)) (api.ClaimResult, error) {
	defer guard()
	if err := e.catchUp(ctx, name); err != nil {
		return api.ClaimResult{}, err
	}
	if req.WaitMS > 0 {
		return e.claimWaiting(ctx, name, req, visit)
	}
	for {
		c, err := e.claimNow(ctx, name, req, nil)
		if err != nil {
			return api.ClaimResult{}, err
		}
		res, err := c.deliver(ctx, visit)
		if err != nil || res.Count > 0 || !c.lost { // if damage was met there may be others
			return res, err
		}
	}
}

// claimNow picks what is claimable. If that is nothing, w, unless it is nil, stands in
// line afterwards.
func (e *Engine) claimNow(ctx context.Context, name string, req *api.ClaimRequest, w *waiter) (*claim, error) {
	t, now, err := e.lockQueue(name)
	if err != nil {
		return nil, err
	}
	if err := api.CheckClaim(req, &e.opt.Limits); err != nil {
		t.mu.Unlock()
		return nil, err
	}
	t.jobs.claimed, t.jobs.lease = now, int64(cmp.Or(req.LeaseMS, t.Config.LeaseMS))
	c := &claim{e: e, t: t, req: req, wait: w, asked: now}
	if w != nil {
		c.asked = w.since
	}
	if t.Config.ClaimJitterMS > 0 {
		return c, c.joinWindow(name, now)
	}
	return c, c.take(ctx, name, now)
}

// claim is one claim in the making.
type claim struct {
	e        *Engine
	t        *entry
	req      *api.ClaimRequest
	work     *Work   // nil unless it is a work stream that refills
	wait     *waiter // nil unless it waits for jobs
	lined    bool    // it has stood in line
	asked    int64   // when the claimer began to wait, or came, by the lease clock
	picks    []queue.Pick
	since    int64 // when the first of them was leased, by the lease clock
	deadline int64 // Unix ms, as the claimer is told
	until    int64 // the same on the lease clock
	ready    uint64
	lost     bool   // some of picks were damaged
	log      ticket // durable leases: what to wait for
	err      error
	dealt    chan error // nil unless it is in a window: says that picks is final
}

// mostDead is how many dead jobs one claim moves: whoever asked for jobs does not wait for a
// million letters.
const mostDead = 8 * forwardStep

// pick leases up to max more jobs and returns some of those that are dead, no more than
// bury. The topic's lock is held.
func (c *claim) pick(max, bury int, now int64) (dead []queue.Pick) {
	t, cfg := c.t, &c.t.Config
	lease := cfg.LeaseMS
	if c.req.HasLease {
		lease = c.req.LeaseMS
	}
	limit := cfg.MaxDeliveries
	if !cfg.HasDeadLetter {
		limit = 0
	}
	before := len(c.picks)
	if before == 0 {
		c.since = now
	}
	if cfg.Paused {
		return nil // nobody gets anything, and nothing is found dead
	}
	deadline := now + int64(lease)
	c.picks, dead = t.jobs.q.Claim(c.picks, nil, &queue.Claim{Node: c.req.Node, Max: max, Deadline: deadline, Limit: limit, Dead: min(bury, forwardStep),
		FirstID: c.e.nextLease.Add(uint64(max)) - uint64(max), Head: t.Head, Live: t.Count, Records: &t.Topic})
	if len(c.picks) == before {
		return dead
	}
	if told := c.e.wallOf(deadline, now); before == 0 || told < c.deadline {
		c.deadline, c.until = told, deadline // moving dead letters takes time; the first picks end first
	}
	if before > 0 {
		slices.SortFunc(c.picks, func(a, b queue.Pick) int {
			if a.Seq < b.Seq {
				return -1
			}
			return 1
		})
	}
	return dead
}

// take claims now. The topic's lock is held and released.
func (c *claim) take(ctx context.Context, name string, now int64) error {
	var failed []queue.Pick
	most := min(c.req.Max, c.t.fitting(api.MaxClaimBytes))
	for bury := mostDead; ; {
		dead := c.pick(most-len(c.picks), bury, now)
		if len(dead) == 0 {
			break
		}
		c.t.mu.Unlock()
		left := c.e.tryMoveDead(ctx, c.t, name, dead)
		failed = append(failed, left...)
		if err := c.e.relock(c.t); err != nil {
			return err
		}
		now = c.e.leaseClock()
		if len(c.picks) >= most || ctx.Err() != nil {
			break
		}
		bury = buryOn(bury, len(dead), len(left))
	}
	for _, p := range failed {
		c.t.jobs.q.Abort(p.Seq)
	}
	c.ready = c.t.jobCounters(now).Ready
	c.book()
	err := c.logLeases()
	c.e.watchLeases(c.t)
	c.t.mu.Unlock()
	return err
}

// buryOn is how many more dead jobs a claim moves once it has tried with some: none if all of
// these are left, since the others would fare no better.
func buryOn(bury, tried, left int) int {
	if left == tried {
		return 0
	}
	return bury - tried
}

// logLeases logs what was picked if the queue's leases are durable. The
// topic's lock is held.
func (c *claim) logLeases() error {
	if !c.t.logsLeases() || len(c.picks) == 0 {
		return nil
	}
	leases := make([]op.Lease, len(c.picks))
	for i, p := range c.picks {
		leases[i] = op.Lease{Seq: p.Seq, ID: p.ID, Deadline: c.until, Deliveries: p.Deliveries}
	}
	tk, err := c.e.stageLeases(c.t, op.KindLease, c.req.Node, leases, topic.Staged{})
	if err != nil {
		c.t.jobs.q.Unclaim(c.picks)
		return storageError(err)
	}
	c.log = tk
	return nil
}

// stageLeases logs lease events of a queue whose leases are durable; st says
// what to do once the log has them, and what if it fails.
func (e *Engine) stageLeases(t *entry, kind op.Kind, node string, leases []op.Lease, st topic.Staged) (ticket, error) {
	part := op.Part{Kind: kind, Topic: t.ID, Node: node, Leases: leases}
	if err := e.logPart(t, &st, &part, classOf(t.Config.Durability)); err != nil {
		return ticket{}, err
	}
	return t.stage(st), nil
}

// deliver reads the picked jobs and hands them to visit, up to c.req.MaxBytes: the others
// are given back. If one cannot be read, all are.
func (c *claim) deliver(ctx context.Context, visit func(*api.Job)) (api.ClaimResult, error) {
	if err := c.e.commitIf(c.t, c.log); err != nil {
		c.log = ticket{} // which has none of it
		c.giveBack(c.picks)
		return api.ClaimResult{}, storageError(err)
	}
	if ctx.Err() != nil {
		c.giveBack(c.picks)
		return api.ClaimResult{}, ctx.Err()
	}
	job := api.Job{Deadline: c.deadline}
	p := plans.Get().(*plan)
	defer plans.Put(p)
	var tries replans
	at, n, bytes, full := 0, 0, int64(0), false
	sizes := make([]uint32, len(c.picks))
	for at < len(c.picks) {
		c.locate(p, at)
		if len(p.ranges) == 0 {
			break
		}
		err := p.read(c.e, c.t, func(r *api.Record) bool {
			for c.picks[at].Seq < r.Seq {
				at++
			}
			size := int64(r.Size())
			if full = n > 0 && bytes+size > cmp.Or(c.req.MaxBytes, api.MaxClaimBytes); full {
				return false
			}
			job.Record, job.LeaseID, job.Deliveries = *r, c.picks[at].ID, c.picks[at].Deliveries
			visit(&job)
			sizes[at] = uint32(size)
			bytes += size
			at++
			n++
			return true
		})
		if err == nil {
			break
		}
		if ok, err := tries.again(c.e, c.t, c.picks[at].Seq, err); !ok {
			c.giveBack(c.picks)
			return api.ClaimResult{}, err
		}
		c.lost = c.lost || err != errMoved
	}
	if full {
		c.giveBack(c.picks[at:])
	}
	c.t.mu.Lock()
	if c.lost || full {
		c.ready = c.t.jobCounters(c.e.leaseClock()).Ready
	}
	for i := range c.picks[:at] {
		c.picks[i].SetSize(sizes[i])
	}
	c.t.mu.Unlock()
	return api.ClaimResult{Count: n, Ready: c.ready}, nil
}

// giveBack takes picks of the claim back, and out of the log.
func (c *claim) giveBack(picks []queue.Pick) {
	c.t.mu.Lock()
	back := c.t.jobs.q.Unclaim(picks)
	if c.log.lsn == 0 {
		back = nil
	}
	tk, err := c.e.stageReleases(c.t, back)
	c.e.wakeWorkers(c.t)
	c.t.mu.Unlock()
	c.e.commitReleases(c.t, tk, err, len(back))
}

// locate plans the reading of the picks from number at on that are still live.
func (c *claim) locate(p *plan, at int) {
	p.ranges, p.places = p.ranges[:0], p.places[:0]
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	for picks := c.picks[at:]; len(picks) > 0; {
		n := 1
		for n < len(picks) && picks[n].Seq == picks[n-1].Seq+1 {
			n++
		}
		for pos, end := picks[0].Seq-1, picks[n-1].Seq; pos < end; {
			from, to := c.t.LiveRange(pos, end)
			if from > end {
				break
			}
			p.ranges = append(p.ranges, op.Range{From: from, To: to})
			pos = to
		}
		picks = picks[n:]
	}
	for _, r := range p.ranges {
		p.locate(c.t, r)
	}
}

// claimWindow gathers the claims that arrive within a queue's claim_jitter_ms.
type claimWindow struct {
	claims []*claim
}

// joinWindow joins the queue's open window, or opens one, and returns when the
// jobs have been dealt. The topic's lock is held and released.
func (c *claim) joinWindow(name string, now int64) error {
	t := c.t
	dealt := make(chan error, 1)
	c.dealt = dealt
	if w := t.jobs.window; w != nil {
		w.claims = append(w.claims, c)
		t.mu.Unlock()
		return <-dealt // the opener deals within the window, whatever happens
	}
	w := &claimWindow{claims: []*claim{c}}
	t.jobs.window = w
	jitter := time.Duration(t.Config.ClaimJitterMS) * time.Millisecond
	t.mu.Unlock()
	timer := time.NewTimer(jitter)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.e.drain:
	}
	w.deal(c.e, t, name)
	return <-dealt
}

// deal ends the window and answers everyone who is in it.
func (w *claimWindow) deal(e *Engine, t *entry, name string) {
	// First the window is closed, under the lock that joinWindow joins it under:
	// from here on w.claims is nobody else's, and whoever comes later opens a
	// window of their own. Everyone who joined is answered, also if the queue has
	// ended or the engine closes: they wait for nothing but dealt.
	t.mu.Lock()
	t.jobs.window = nil
	t.mu.Unlock()
	err := e.usable()
	if err == nil {
		err = e.relock(t)
	}
	if err == nil {
		now := e.leaseClock()
		t.jobs.q.Expire(now)
		lined := t.takeFromLine(now)
		all := slices.Concat(lined, w.claims)
		slices.SortStableFunc(all, func(a, b *claim) int { return cmp.Compare(a.asked, b.asked) })
		if err = e.share(t, name, now, all); err != nil {
			t.notDealt(lined, err)
		}
	}
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, c := range w.claims {
			c.answer(err)
		}
	}
}

// answer tells a claim in a window that it has been dealt to: from then on, if it waits,
// others may deal to it. The topic's lock is held.
func (c *claim) answer(err error) {
	if c.dealt != nil {
		c.dealt <- err
		c.dealt = nil
	}
}

// share gives the jobs out round-robin, one at a time in the order of the claims,
// to each claimer up to its own max. An error is for all of them. The topic's lock is
// held and released.
func (e *Engine) share(t *entry, name string, now int64, claims []*claim) error {
	// Burying dead jobs lets go of the lock, so others may claim between two
	// rounds; picks are leased as they are made and stay so. Jobs that could not be
	// buried go back only when all is dealt: they would be picked again at once.
	var failed []queue.Pick
	most, bury := t.fitting(api.MaxClaimBytes), mostDead
	for more := true; more; {
		more = false
		for _, c := range claims {
			if len(c.picks) >= min(c.req.Max, most) {
				continue
			}
			had := len(c.picks)
			dead := c.pick(1, bury, now)
			if len(dead) > 0 {
				t.mu.Unlock()
				left := e.tryMoveDead(context.Background(), t, name, dead)
				failed = append(failed, left...)
				if err := e.relock(t); err != nil {
					return err
				}
				now = e.leaseClock()
				bury = buryOn(bury, len(dead), len(left))
			}
			more = more || len(dead) > 0 || len(c.picks) > had
		}
	}
	for _, p := range failed {
		t.jobs.q.Abort(p.Seq)
	}
	ready := t.jobCounters(now).Ready
	for _, c := range claims {
		c.ready = ready
		c.book()
		c.err = c.logLeases()
		c.answer(c.err)
	}
	e.watchLeases(t)
	t.mu.Unlock()
	return nil
}
