package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

const (
	// maxClaim is the most jobs per claim: as many as an answer can hold if each is of
	// the maximum record size.
	maxClaim = 200
	// recheck is how often a waiting claim looks for what nothing announces: a job
	// whose delay, or whose holder's lease, has ended.
	recheck = 250 * time.Millisecond
	// recount is how long such looks go on before it is counted again whether there is
	// anything of the kind.
	recount = 2 * time.Second
)

// idle is what is known about the queue while there is nothing to claim.
type idle struct {
	sync.Mutex
	cursor uint64 // a head that was read before a claim that found nothing
	known  bool
	live   bool          // there may be leased or delayed jobs
	read   time.Time     // when that was found out
	due    time.Time     // when the first job this process delayed becomes claimable; zero: none known
	back   chan struct{} // closed when this process gives back jobs that are due soon
}

func (i *idle) init() { i.back = make(chan struct{}) }

// forget makes the next empty claim read the head again.
func (i *idle) forget() {
	i.Lock()
	defer i.Unlock()
	i.known = false
}

// returned notes that jobs were given back, claimable after delay. It interrupts a
// waiting claim only if that would not look in time by itself, since over HTTP that
// costs a connection.
func (i *idle) returned(delay time.Duration) {
	i.Lock()
	defer i.Unlock()
	i.live = true
	delay += time.Millisecond // the server counts in whole milliseconds
	if due := time.Now().Add(delay); i.due.Before(time.Now()) || due.Before(i.due) {
		i.due = due
	}
	if delay < recheck {
		close(i.back)
		i.back = make(chan struct{})
	}
}

// Claim leases jobs, previously delivered ones first. The server does not distinguish a
// job given back from one whose lease ended: both count as reclaimed. A waiting claim
// wakes at once for every job; with Enough and no Slack, or on a server too old to wait,
// only for a new job and for one this process gives back, and within 250 ms for those
// others gave back or lost. ReclaimAfter is clamped to 100 ms … 24 h.
func (b *Backend) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Claimed{}, err
	}
	defer leave()
	if req.Consumer == "" || req.Max < 1 || req.ReclaimAfter <= 0 {
		return backend.Claimed{}, errors.New("a claim needs a Consumer, and Max and ReclaimAfter above 0")
	}
	b.reclaimAfter.Store(int64(req.ReclaimAfter))
	end := time.Now().Add(req.Block)
	for {
		b.idle.Lock()
		back := b.idle.back // before looking, so that nothing is missed
		b.idle.Unlock()
		wait := mayWait(&req, end)
		out, waited, err := b.claimOnce(ctx, &req, wait)
		if len(out.Deliveries) > 0 || len(out.Dead) > 0 || err != nil || time.Until(end) <= 0 || req.HasEnough() {
			return out, err
		}
		if waited > 0 && waited >= wait/2 {
			continue
		}
		// The service did not wait: an older server, or one that is stopping.
		err = b.await(ctx, end, back, req.Enough)
		if req.HasEnough() {
			return out, b.fail(ctx.Err(), false)
		}
		if err != nil {
			// The claim was answered; an error during the wait is left for the next one
			// to report.
			b.idle.forget()
			sleep(ctx, min(time.Until(end), recheck))
			return out, b.fail(ctx.Err(), false)
		}
	}
}

// mayWait is how long the service may wait for a job: no longer than the caller's Slack if
// that may have enough, since what is leased while a call is broken off is nobody's until
// the lease ends.
func mayWait(req *backend.ClaimRequest, end time.Time) time.Duration {
	wait := min(max(time.Until(end), 0), api.MaxWaitMS*time.Millisecond)
	switch {
	case req.HasEnough():
		return 0
	case req.Enough != nil:
		return min(wait, req.Slack)
	}
	return wait
}

// claimOnce claims; if the service can, it waits up to wait for the first job. Jobs past
// the limit go to the dead letters; if there was nothing else, others are claimed in their
// place.
func (b *Backend) claimOnce(ctx context.Context, req *backend.ClaimRequest, wait time.Duration) (out backend.Claimed, waited time.Duration, err error) {
	want := min(req.Max, maxClaim)
	for {
		l, err := b.lease(ctx, req, want, wait)
		wait, waited = 0, waited+l.waited
		for i := range l.jobs {
			d := delivery(&l.jobs[i], req.Consumer, l.since)
			if req.MaxDeliveries > 0 && d.Attempt > req.MaxDeliveries {
				err = errors.Join(err, b.moveInClaim(ctx, &out, d.Lease, req.DeadLetter))
				continue
			}
			out.Deliveries = append(out.Deliveries, d)
		}
		// What is held already waits while others are moved: not longer than for one round.
		if err != nil || len(l.jobs) < want || len(out.Deliveries) > 0 || req.HasEnough() {
			if len(out.Deliveries) > 0 || len(out.Dead) > 0 {
				// A persistent error shows up on the next claim. A job that cannot be moved
				// stays leased, and is retried when its lease ends.
				err = nil
			}
			b.firstReclaimed(&out)
			return out, waited, err
		}
	}
}

// leased is what one claim got.
type leased struct {
	jobs   []api.HeldJob
	waited time.Duration
	since  time.Time // when the leases began, or a little earlier
}

// lease makes one claim, creating the queue if it is absent.
func (b *Backend) lease(ctx context.Context, req *backend.ClaimRequest, limit int, wait time.Duration) (l leased, err error) {
	call := api.ClaimRequest{Node: req.Consumer, Max: max(limit, 1), LeaseMS: leaseMS(req.ReclaimAfter), HasLease: true,
		WaitMS: uint32((wait + time.Millisecond - 1).Milliseconds())}
	if err := api.CheckClaim(&call, &b.opt.Limits); err != nil {
		return l, err
	}
	l.since = time.Now()
	l.jobs, l.waited, err = b.svc.Claim(ctx, b.opt.Topic, &call)
	if api.IsCode(err, api.CodeTopicNotFound) {
		if err = b.create(ctx); err == nil {
			l.since = time.Now()
			l.jobs, l.waited, err = b.svc.Claim(ctx, b.opt.Topic, &call)
		}
	}
	if err != nil {
		return l, b.fail(err, false)
	}
	if len(l.jobs) > 0 {
		b.idle.forget()
		// The server began to wait after it was asked, so the leases are no older.
		l.since = l.since.Add(min(l.waited, time.Since(l.since)))
	}
	return l, nil
}

func leaseMS(d time.Duration) uint64 {
	return uint64(min(max(d.Milliseconds(), api.MinLeaseMS), api.MaxLeaseMS))
}

func delivery(j *api.HeldJob, consumer string, since time.Time) *backend.Delivery {
	d := &backend.Delivery{
		Lease:    backend.Lease{ID: formatSeq(j.Seq), Token: j.Lease, Consumer: consumer, Attempt: int(j.Deliveries), Since: since},
		Enqueued: at(j.TS),
	}
	d.Data, d.Headers = decode(&j.Record)
	d.Deadline = backend.DeadlineOf(d.Headers)
	return d
}

// firstReclaimed moves redeliveries to the front.
func (b *Backend) firstReclaimed(out *backend.Claimed) {
	slices.SortStableFunc(out.Deliveries, func(x, y *backend.Delivery) int {
		return rank(x) - rank(y)
	})
	for out.Reclaimed < len(out.Deliveries) && out.Deliveries[out.Reclaimed].Attempt > 1 {
		out.Reclaimed++
	}
}

func rank(d *backend.Delivery) int {
	if d.Attempt > 1 {
		return 0
	}
	return 1
}

// moveInClaim moves a job past the limit to the dead letters; its last holder is
// unknown. If the move takes longer than the lease, the next claim continues it.
func (b *Backend) moveInClaim(ctx context.Context, out *backend.Claimed, l backend.Lease, to string) error {
	l.Attempt-- // this delivery was never handed to anyone
	letter, err := b.moveDead(ctx, l, "", to, backend.Cause{Reason: backend.ReasonMaxDeliveries, Error: b.errs.get(l.ID)})
	switch {
	case err == nil:
		out.Dead = append(out.Dead, letter)
	case errors.Is(err, backend.ErrLeaseLost):
		return nil // it is not there any more
	}
	return err
}

// await returns when a claim may find something, at end at the latest. back is closed
// when this process gives something back, enough when the caller need not wait any longer.
func (b *Backend) await(ctx context.Context, end time.Time, back, enough <-chan struct{}) error {
	i := &b.idle
	i.Lock()
	known := i.known
	i.Unlock()
	if !known {
		// The cursor has to be older than a claim that finds nothing: it is read now,
		// and the caller claims once more before it waits.
		st, err := b.svc.Topic(ctx, b.opt.Topic)
		if err != nil {
			return err
		}
		i.Lock()
		i.cursor, i.known, i.live, i.read = st.HeadSeq, true, st.Count > 0, time.Now()
		i.Unlock()
		return nil
	}
	i.Lock()
	wait, cursor := time.Until(end), i.cursor
	if i.live {
		wait = min(wait, recheck)
	}
	if left := time.Until(i.due); left > 0 {
		wait = min(wait, left)
	}
	i.Unlock()
	return b.awaitNews(ctx, cursor, max(wait, time.Millisecond), back, enough)
}

// awaitNews waits for a record after the cursor, for back or enough, or for d.
func (b *Backend) awaitNews(ctx context.Context, cursor uint64, d time.Duration, back, enough <-chan struct{}) error {
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	woken := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-back:
			close(woken)
			cancel()
		case <-enough:
			close(woken)
			cancel()
		case <-wait.Done():
		}
	}()
	begin := time.Now()
	_, res, err := b.svc.Diff(wait, b.opt.Topic, &api.DiffRequest{
		FromSeq: cursor, Limit: 1, OmitData: true, MaxBatchBytes: 1, WaitMS: uint32(min((d + time.Millisecond - 1).Milliseconds(), api.MaxWaitMS)),
	})
	if err == nil && res.NextFromSeq == cursor && time.Since(begin) < d/2 {
		sleep(wait, min(d, minPause)) // the server answers long polls at once: it is draining
	}
	cancel()
	<-stopped
	b.idle.Lock()
	defer b.idle.Unlock()
	select {
	case <-woken:
		return ctx.Err()
	default:
	}
	if err != nil {
		b.idle.known = false
		if api.IsCode(err, api.CodeTopicNotFound) {
			return nil // the next claim creates it
		}
		return err
	}
	switch {
	case res.HeadSeq != cursor || res.NextFromSeq != cursor:
		b.idle.cursor, b.idle.known, b.idle.live, b.idle.read = res.NextFromSeq, res.CaughtUp(), true, time.Now()
	case b.idle.live && time.Since(b.idle.read) >= recount:
		b.idle.known = false
	}
	return nil
}

// minPause is the shortest time between two unprompted looks.
const minPause = 20 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
