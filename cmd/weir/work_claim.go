package main

import (
	"context"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/client"
)

// claimLoop keeps the waiting channel filled until the pool drains. A claim
// that is under way is never cut off by a drain: its jobs would stay leased to
// nobody until the lease ends.
func (p *pool) claimLoop(ctx context.Context) {
	defer close(p.waiting)
	c := claimer{pool: p}
	for c.waitForRoom() {
		n, err := c.claim(ctx)
		if err != nil && !client.Retryable(err) {
			err = p.createIfAbsent(ctx, err)
		}
		switch {
		case err == nil && n > 0:
			c.emptySince, c.cursorKnown = time.Time{}, false
		case err == nil:
			c.idle(p.draining)
		case ctx.Err() != nil:
			return
		case !client.Retryable(err):
			p.fail(err)
			return
		default:
			c.failures++
			p.setAway(err)
			wait := max(client.Backoff(c.failures, reconnectMin, reconnectMax), client.RetryAfter(err))
			_ = client.Sleep(p.draining, wait) // a drain is seen by waitForRoom
		}
	}
}

// claimer is the state of the claim loop.
type claimer struct {
	pool     *pool
	failures int // calls in a row without an answer

	// cursor is a head that was read before the last claim found nothing: a
	// record above it has not been looked for.
	cursor      uint64
	cursorKnown bool
	emptySince  time.Time // when the queue was first seen empty; zero if it is not
}

// waitForRoom waits until a claim is worth its request: half of the channel is
// free. It returns false once the pool drains.
func (c *claimer) waitForRoom() bool {
	p := c.pool
	for len(p.waiting) > cap(p.waiting)/2 {
		select {
		case <-p.taken:
		case <-p.draining.Done():
			return false
		}
	}
	return !p.stopping()
}

// claim leases what there is room for and hands it to the workers.
func (c *claimer) claim(ctx context.Context) (int, error) {
	p := c.pool
	at := time.Now()
	res, err := p.client.Claim(ctx, p.topic, client.Claim{
		Node: p.node, Max: cap(p.waiting) - len(p.waiting), LeaseMS: p.opt.lease.Milliseconds(),
	})
	if err != nil {
		return 0, err
	}
	c.failures = 0
	p.setAway(nil)
	jobs := make([]*heldJob, len(res.Claimed))
	p.mu.Lock()
	for i := range res.Claimed {
		jobs[i] = &heldJob{Job: res.Claimed[i], deadline: at.Add(p.opt.lease)}
		if old := p.mu.held[jobs[i].Seq]; old != nil {
			old.giveUp() // a server that restarted has forgotten the older lease
		}
		p.mu.held[jobs[i].Seq] = jobs[i]
	}
	p.mu.Unlock()
	for _, j := range jobs {
		p.waiting <- j // there is room: only this goroutine adds
	}
	return len(jobs), nil
}

// idle waits after a claim that found nothing: for a new record, for a job that
// this pool gave back, or for --block, after which leases of others may have
// ended. The cursor has to be older than the claim that found nothing; the first
// time it is read here and the caller claims again before it waits.
func (c *claimer) idle(ctx context.Context) {
	p := c.pool
	if !c.cursorKnown || p.opt.untilEmpty > 0 {
		st, err := p.client.Topic(ctx, p.topic)
		if err != nil {
			c.cursorKnown = false
			_ = client.Sleep(ctx, reconnectMin) // the next claim meets the same trouble and deals with it
			return
		}
		c.checkEmpty(st)
		if !c.cursorKnown {
			c.cursor, c.cursorKnown = st.HeadSeq, true
			return
		}
	}
	res, err := p.client.Diff(ctx, p.topic, client.Diff{
		FromSeq: c.cursor, Limit: 1, MaxBatchBytes: 1, WaitMS: max(c.patience().Milliseconds(), 1),
	})
	if err != nil {
		c.cursorKnown = false
		if !client.IsCode(err, api.CodeTopicNotFound) {
			_ = client.Sleep(ctx, reconnectMin)
		}
		return
	}
	c.cursor, c.cursorKnown = res.NextFromSeq, res.CaughtUp
}

// patience is how long an idle claimer waits at most.
func (c *claimer) patience() time.Duration {
	p := c.pool
	wait := p.opt.block
	if p.opt.untilEmpty > 0 {
		wait = min(wait, max(p.opt.untilEmpty/2, 10*time.Millisecond))
	}
	p.mu.Lock()
	due := p.mu.nextDue
	p.mu.Unlock()
	if left := time.Until(due); left > 0 {
		wait = min(wait, left)
	}
	return wait
}

// checkEmpty drains the pool once the queue has held no job, neither ready nor
// leased nor put off, for --until-empty.
func (c *claimer) checkEmpty(st client.TopicState) {
	p := c.pool
	if p.opt.untilEmpty == 0 || st.Count > 0 {
		c.emptySince = time.Time{}
		return
	}
	now := time.Now()
	if c.emptySince.IsZero() {
		c.emptySince = now
	}
	if now.Sub(c.emptySince) >= p.opt.untilEmpty {
		p.stopClaiming()
	}
}
