package weir

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 2 * time.Second
	// emptyPause is the wait after a claim that came back empty before its Block was
	// over, so that a backend that does not wait is not asked in a busy loop.
	emptyPause = 10 * time.Millisecond
	// maxDue is how many due times of messages given back are remembered; any others are
	// found within Block.
	maxDue = 128
)

// claimer is the state of the claim loop.
type claimer struct {
	pool       *Pool
	worked     bool      // a claim has been answered
	failures   int       // calls in a row without an answer
	paused     bool      // as last seen by checkEmpty
	emptySince time.Time // when the stream was first seen empty; zero if it is not
}

// claimLoop keeps the workers supplied until the pool stops.
func (p *Pool) claimLoop(ctx context.Context) {
	c := claimer{pool: p}
	for {
		limit := p.awaitRoom()
		if limit == 0 {
			return
		}
		c.claim(ctx, limit)
	}
}

// maxAssists is how many claims besides claimLoop's are under way at most: more of them,
// measured, bring hardly anything.
const maxAssists = 5

// assists is how many claims besides claimLoop's fill all the room there may be.
func (p *Pool) assists() int {
	most := p.cfg.mostWorkers()
	if most == 1 {
		return 0 // it gets its messages in order
	}
	return min((most+2*p.cfg.Batch-1)/p.cfg.Batch, maxAssists)
}

// assistLoop makes further claims while the stream is busy: otherwise a round trip is
// lost between two claims. It never waits for messages, and leaves failures to
// claimLoop, except that of a group which is gone: a backend that makes it again says so to
// one claim only.
func (p *Pool) assistLoop(ctx context.Context) {
	for {
		limit := p.awaitBusy()
		if limit == 0 {
			return
		}
		call, cancel := context.WithTimeout(ctx, p.claimTimeout())
		begun := time.Now()
		got, err := p.backend.Claim(call, p.request(limit, 0))
		p.accept(call, begun, &got, limit)
		cancel()
		switch {
		case err == nil:
			kick(p.beat)
		case errors.Is(err, ErrGroupNotFound) && ctx.Err() == nil:
			p.answered(claimCalls, err)
		}
	}
}

// awaitBusy is awaitRoom for assistLoop: it also waits until the last claim came back full.
func (p *Pool) awaitBusy() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.mu.stopping {
		if p.mu.busy {
			if n := p.reserve(); n > 0 {
				return n
			}
		}
		p.mu.hasRoom.Wait()
	}
	return 0
}

// aheadFor is how soon what is claimed ahead is to be begun: later than any claim is
// answered, so that no worker waits for one. What lies longer in a pool is hidden from
// guards that hold the wait and from the order of priorities, and other pools may be idle.
const aheadFor = 100 * time.Millisecond

// ahead is how many messages may be claimed besides one for each worker: as many as are
// begun within aheadFor, a batch at most. It is one until a handler has shown how long it
// takes. The lock is held.
func (p *Pool) ahead(workers int) int {
	begun := 1.0
	if p.mu.took > 0 {
		begun = math.Ceil(float64(workers) * float64(aheadFor) / float64(p.mu.took))
	}
	return int(max(min(begun, float64(p.cfg.Batch)), 1))
}

// room is how many messages may be claimed now: a message for each worker and those
// ahead, or twice as many while they do not last until the next claim is answered. A claim
// for fewer than least is not worth its call. The lock is held.
func (p *Pool) room() (room, least int) {
	workers := p.mu.workers - p.mu.blocked
	if workers <= 0 || p.mu.settling >= maxUnsettled || p.mu.returning >= maxReturning || p.mu.overdue {
		return 0, 1
	}
	ahead := p.ahead(workers)
	least = (ahead + 1) / 2
	if p.mu.dry {
		ahead *= 2
	}
	return workers + ahead - p.mu.running - p.mu.waiting.len() - p.mu.claiming, least
}

// reserve takes the room for a claim, 0 if there is not enough of it. The lock is held.
func (p *Pool) reserve() int {
	n, least := p.room()
	if n < least {
		return 0
	}
	n = min(n, cmp.Or(p.mu.most, p.cfg.Batch))
	p.mu.claiming += n
	return n
}

// roomMade wakes the claimers if a claim is worth its call.
func (p *Pool) roomMade() {
	if n, least := p.room(); n >= least {
		p.mu.hasRoom.Broadcast()
	}
}

// awaitRoom returns how many messages to claim, 0 once the pool stops.
func (p *Pool) awaitRoom() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.mu.stopping {
		if n := p.reserve(); n > 0 {
			return n
		}
		p.mu.hasRoom.Wait()
	}
	return 0
}

// claim asks once, passes on what it gets, and waits if asking again at once is
// pointless.
func (c *claimer) claim(ctx context.Context, limit int) {
	p := c.pool
	start, most := time.Now(), c.mostBlock()
	call, cancel := context.WithTimeout(ctx, most+p.claimTimeout())
	block, enough := p.beginWait(most)
	req := p.request(limit, block)
	req.Enough, req.Slack = enough, claimSlack
	got, err := p.backend.Claim(call, req)
	cut := p.endWait()
	p.accept(call, start, &got, limit)
	cancel()
	switch {
	case err != nil:
		c.failed(ctx, err)
		return
	case len(got.Deliveries)+len(got.Dead)+len(got.Lost) > 0:
		c.emptySince = time.Time{}
	default:
		c.checkEmpty(ctx)
		if !cut && time.Since(start) < req.Block/2 {
			c.pause(emptyPause)
		}
	}
	p.partly(got.Failed)
	c.worked, c.failures = true, 0
	p.answered(claimCalls, nil)
	kick(p.beat)
}

// claimTimeout bounds a claim, not counting its Block. A large answer may take as long
// as its leases hold; a backend that hears nothing ends the call itself.
func (p *Pool) claimTimeout() time.Duration { return max(callTimeout, p.cfg.ReclaimAfter) }

// learn bounds the claims that follow one whose time was over before its answer had come, as
// over a slow link: what was in it comes again when its leases end, and would fail again. They
// ask for one message, and for twice as many after each full one that took a quarter of its
// time at most. The lock is held.
func (p *Pool) learn(call context.Context, took time.Duration, limit, got int) {
	switch {
	case got == 0 && limit > 1 && errors.Is(call.Err(), context.DeadlineExceeded):
		p.mu.most = 1
	case p.mu.most > 0 && got == limit && took <= p.claimTimeout()/4:
		if p.mu.most *= 2; p.mu.most >= p.cfg.Batch {
			p.mu.most = 0
		}
	}
}

func (p *Pool) request(limit int, block time.Duration) backend.ClaimRequest {
	return backend.ClaimRequest{
		Consumer: p.cfg.Consumer, Max: limit, Block: block, ReclaimAfter: p.cfg.ReclaimAfter,
		MaxDeliveries: max(p.cfg.MaxDeliveries, 0), DeadLetter: p.cfg.DeadLetter,
	}
}

// failed deals with a claim that was not answered, or refused.
func (c *claimer) failed(ctx context.Context, err error) {
	p := c.pool
	if ctx.Err() != nil {
		return // the pool stops
	}
	c.emptySince = time.Time{}
	if errors.Is(err, ErrClosed) || !c.worked && !backend.Retryable(err) {
		p.fail(err)
		return
	}
	// A pool that has worked does not end because of what happens to its server.
	p.answered(claimCalls, err)
	c.failures++
	c.pause(retryDelay(c.failures, err))
}

// pause waits for d or until the pool stops.
func (c *claimer) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.pool.stopped:
	}
}

// mostBlock is how long a claim waits if nothing is due before: never so long that a
// lease's age would be in doubt, or that the signal, which its end renews, runs out.
func (c *claimer) mostBlock() time.Duration {
	p := c.pool
	d := min(p.cfg.Block, p.cfg.ReclaimAfter/4, p.cfg.LagTTL/3)
	if p.cfg.UntilEmpty > 0 {
		d = min(d, max(p.cfg.UntilEmpty/2, emptyPause))
	}
	return d
}

// accept turns the result of call, a claim of at most limit since begun, into jobs, releases
// the room that it had reserved, and wakes the workers.
func (p *Pool) accept(call context.Context, begun time.Time, got *backend.Claimed, limit int) {
	took := time.Since(begun)
	taken := p.takenOver(got)
	p.noteClaimed(got, len(taken))
	contexts := make([]jobContext, len(got.Deliveries))
	for i := range contexts {
		contexts[i].pool = p
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.claiming -= limit
	p.learn(call, took, limit, len(got.Deliveries))
	full := len(got.Deliveries) == limit
	p.mu.dry = full && p.mu.busy && p.mu.idle > 0 && p.mu.waiting.len() == 0
	p.mu.busy = full
	defer p.roomMade()
	if len(got.Deliveries) == 0 {
		return
	}
	p.mu.stats.Reclaimed += uint64(len(taken))
	known := p.supersede(p.perhapsAgain(got))
	for i, d := range got.Deliveries {
		j := p.mu.free.take()
		j.delivery, j.lease, j.ctx = d, d.Lease, &contexts[i]
		j.at, j.limit, j.parent = d.Enqueued.UnixNano(), limitOf(d, p.cfg.MaxDeliveries), d.Headers[backend.HeaderTrace]
		if p.traced {
			j.trace = &jobTrace{reclaimed: taken[d.ID]}
		}
		p.mu.held.add(j)
		switch known[j.message()] {
		case handled:
			p.leave(j, verdictAck)
		case underWay:
			p.park(j)
		default:
			p.mu.waiting.push(j)
		}
	}
	if p.mu.stopping {
		p.returnWaiting()
		return
	}
	if got.Deliveries[0].Since.Add(p.cfg.ReclaimAfter / 3).Before(p.mu.extendAt) {
		kick(p.extend)
	}
	p.wake()
}

// takenOver returns the IDs of the deliveries that were another worker's, or this pool's
// and given up: not of those that it gave back itself, nor of those given back by others,
// or by the backend, which no handler has begun.
func (p *Pool) takenOver(got *backend.Claimed) map[string]bool {
	if got.Reclaimed == 0 {
		return nil
	}
	var taken map[string]bool
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range got.Deliveries[:got.Reclaimed] {
		if p.mu.returned.take(messageOf(d)) || d.Attempt == 1 {
			continue
		}
		if taken == nil {
			taken = make(map[string]bool, got.Reclaimed)
		}
		taken[d.ID] = true
	}
	return taken
}

// claimWait is the claim in progress, for whoever has to end it before its Block is over.
type claimWait struct {
	until  time.Time     // when it ends by itself
	enough chan struct{} // nil: there is none
	ended  bool          // enough is closed
}

// cut ends the claim if it would still be waiting when a message is due.
func (w *claimWait) cut(due time.Time) {
	if w.enough != nil && !w.ended && due.Before(w.until) {
		w.ended = true
		close(w.enough)
	}
}

// beginWait returns how long a claim may wait: at most d, and not past the time when a
// message that this pool gave back is due. One given back from now on, and the end of the
// pool, close enough.
func (p *Pool) beginWait(d time.Duration) (block time.Duration, enough <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d = p.mu.due.until(d)
	now := time.Now()
	p.mu.wait = claimWait{until: now.Add(d), enough: make(chan struct{})}
	if p.mu.stopping {
		p.mu.wait.cut(now)
	}
	return d, p.mu.wait.enough
}

// endWait reports whether the claim that has ended was cut short.
func (p *Pool) endWait() (cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut = p.mu.wait.ended
	p.mu.wait = claimWait{}
	return cut
}

// fate is what has become of a message that this pool is given again.
type fate uint8

const (
	underWay fate = iota + 1 // its handler still runs
	handled                  // its ack did not get through
)

// perhapsAgain returns the deliveries that this pool may have had before: those taken over,
// and if the server was away, or did not take an ack, the new ones as well, because it may
// have forgotten that it had handed them out. The lock is held.
func (p *Pool) perhapsAgain(got *backend.Claimed) []*Delivery {
	if p.mu.doubts > 0 || !p.mu.unacked.empty() {
		return got.Deliveries
	}
	return got.Deliveries[:got.Reclaimed]
}

// supersede gives up what this pool holds of messages that it has just been given again,
// and returns their fates: what was handled must not run again, and no message may have
// two handlers at a time. The lock is held.
func (p *Pool) supersede(again []*Delivery) map[message]fate {
	if len(again) == 0 {
		return nil
	}
	known := make(map[message]fate, len(again))
	for _, d := range again {
		m := messageOf(d)
		known[m] = 0
		if p.mu.unacked.has(m) {
			known[m] = handled
		}
	}
	for j := p.mu.held.first; j != nil; j = j.next {
		was, again := known[j.message()]
		switch {
		case !again:
		case j.state == jobSettling && j.verdict == verdictAck:
			j.superseded, known[j.message()] = true, handled
		case j.state == jobRunning:
			known[j.message()] = max(was, underWay)
			j.superseded = true
			p.lose(j)
		case j.state == jobWaiting:
			j.superseded = true
			p.lose(j)
		}
	}
	return known
}

// park keeps j until the handler that has its message ends. The lock is held.
func (p *Pool) park(j *job) {
	if older := p.mu.parked[j.message()]; older != nil {
		p.leave(older, verdictLost)
	}
	if p.mu.parked == nil {
		p.mu.parked = map[message]*job{}
	}
	p.mu.parked[j.message()] = j
}

// unpark continues with what was parked behind j, whose handler has ended or was given
// up. The lock is held.
func (p *Pool) unpark(j *job, v verdict) {
	next := p.mu.parked[j.message()]
	if next == nil {
		return
	}
	delete(p.mu.parked, j.message())
	switch {
	case v == verdictAck:
		p.leave(next, verdictAck)
	case next.lost:
		p.leave(next, verdictLost)
	case p.mu.stopping:
		p.leave(next, verdictUnstarted)
	default:
		p.mu.waiting.push(next)
		p.wake()
	}
}

// checkEmpty ends the pool once the stream has been empty for UntilEmpty. A claim has
// just found nothing to take.
func (c *claimer) checkEmpty(ctx context.Context) {
	p := c.pool
	if p.cfg.UntilEmpty <= 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pressure, err := p.stream.Pressure(call)
	left, _ := pressure.Backlog()
	if paused := err == nil && pressure.Paused; paused != c.paused {
		if c.paused = paused; paused {
			p.log.Warn("weir: the stream is paused, so what it holds stays; weir queue resume lets the workers go on", "stream", p.name.Stream)
		}
	}
	if err != nil || left > 0 {
		c.emptySince = time.Time{}
		return
	}
	now := time.Now()
	if c.emptySince.IsZero() {
		c.emptySince = now
	}
	if now.Sub(c.emptySince) < p.cfg.UntilEmpty {
		return
	}
	if pressure.Delayed > 0 {
		p.log.Warn("weir: the stream is empty but for messages that are not due yet; they stay for the next pool", "stream", p.name.Stream, "messages", pressure.Delayed)
	}
	p.stop()
}

// retryDelay is how long to wait after a failed call: at least as long as the server
// asks, and longer with each failure.
func retryDelay(failures int, err error) time.Duration {
	d := backoff(failures, reconnectMin, reconnectMax)
	var full *backend.FullError
	if errors.As(err, &full) {
		d = max(d, full.RetryAfter)
	}
	return d
}

// backoff doubles base with each further try, up to most, and takes ±50 % of it.
func backoff(try int, base, most time.Duration) time.Duration {
	d := most
	if shift := try - 1; shift < 32 && base<<shift < most && base<<shift > 0 {
		d = base << shift
	}
	return d/2 + rand.N(d+1)
}

// dueTimes are the times when messages given back are due, earliest first.
type dueTimes struct{ at []time.Time }

func (t *dueTimes) add(at time.Time) {
	i, _ := slices.BinarySearchFunc(t.at, at, time.Time.Compare)
	if i < maxDue {
		t.at = slices.Insert(t.at[:min(len(t.at), maxDue-1)], i, at)
	}
}

// until is the time to the first one, at most d, and forgets what is over.
func (t *dueTimes) until(d time.Duration) time.Duration {
	now := time.Now()
	for len(t.at) > 0 && !t.at[0].After(now) {
		t.at = t.at[1:]
	}
	if len(t.at) > 0 {
		// One millisecond more, for servers that count in them.
		d = min(d, t.at[0].Sub(now)+time.Millisecond)
	}
	return max(d, time.Millisecond)
}
