package main

import (
	"context"
	"time"

	"github.com/weirmq/weir/internal/client"
)

// maxSettle is how many jobs one ack, nack or extend may name.
const maxSettle = 1000

// settleLoop gathers outcomes for the linger time and tells the server, until
// the channel is closed and everything is told.
func (p *pool) settleLoop(ctx context.Context) {
	for first := range p.finished {
		p.settle(ctx, p.gather(first))
	}
}

// gather takes what finishes within the linger time after the first.
func (p *pool) gather(first outcome) []outcome {
	group := []outcome{first}
	linger := time.NewTimer(p.opt.ackLinger)
	defer linger.Stop()
	for len(group) < maxSettle {
		select {
		case o, open := <-p.finished:
			if !open {
				return group
			}
			group = append(group, o)
		case <-linger.C:
			return group
		}
	}
	return group
}

// settle tells a group: one ack, one nack of unstarted jobs, one nack without
// delay, and one nack per number of deliveries.
func (p *pool) settle(ctx context.Context, group []outcome) {
	var acks, unstarted, killed []*heldJob
	failed := make(map[uint64][]*heldJob)
	for _, o := range group {
		switch {
		case o.ack:
			acks = append(acks, o.job)
		case !o.started:
			unstarted = append(unstarted, o.job)
		case !o.retry:
			killed = append(killed, o.job)
		default:
			failed[o.job.Deliveries] = append(failed[o.job.Deliveries], o.job)
		}
	}
	p.tell(ctx, acks, p.client.Ack, client.Settle{}, func(t *tally, n uint64) { t.acked += n })
	notStarted := false
	p.tell(ctx, unstarted, p.client.Nack, client.Settle{Started: &notStarted}, func(t *tally, n uint64) { t.returned += n })
	p.tell(ctx, killed, p.client.Nack, client.Settle{}, func(t *tally, n uint64) { t.nacked += n })
	for deliveries, jobs := range failed {
		delay := client.Backoff(int(min(deliveries, 64)), p.opt.retryBase, p.opt.retryMax)
		p.tell(ctx, jobs, p.client.Nack, client.Settle{DelayMS: delay.Milliseconds()}, func(t *tally, n uint64) { t.nacked += n })
		p.noteDue(time.Now().Add(delay))
	}
}

// noteDue remembers when the first job given back is due again.
func (p *pool) noteDue(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.nextDue.Before(time.Now()) || at.Before(p.mu.nextDue) {
		p.mu.nextDue = at
	}
}

type settleCall func(context.Context, string, client.Settle) (client.SettleResult, error)

// tell makes one call for the jobs, again and again while the server is away and
// one of their leases may still hold. What the server skips is lost: its lease
// had ended, or an earlier try had got through without an answer.
func (p *pool) tell(ctx context.Context, jobs []*heldJob, call settleCall, req client.Settle, count func(*tally, uint64)) {
	if len(jobs) == 0 {
		return
	}
	req.Node = p.node
	req.Seqs, req.LeaseIDs = names(jobs)
	for try := 1; ; try++ {
		res, err := call(ctx, p.topic, req)
		if err == nil {
			p.setAway(nil)
			p.settled(jobs, res.Skipped, count)
			return
		}
		if ctx.Err() != nil || !client.Retryable(err) || time.Now().After(latest(jobs)) {
			for _, j := range jobs {
				p.forget(j)
			}
			return
		}
		p.setAway(err)
		_ = client.Sleep(ctx, max(client.Backoff(try, reconnectMin, reconnectMax), client.RetryAfter(err)))
	}
}

func names(jobs []*heldJob) ([]uint64, []string) {
	seqs := make([]uint64, len(jobs))
	leases := make([]string, len(jobs))
	for i, j := range jobs {
		seqs[i], leases[i] = j.Seq, j.LeaseID
	}
	return seqs, leases
}

func latest(jobs []*heldJob) time.Time {
	var t time.Time
	for _, j := range jobs {
		if j.deadline.After(t) {
			t = j.deadline
		}
	}
	return t
}

// settled takes the jobs out of held and counts them.
func (p *pool) settled(jobs []*heldJob, skipped []uint64, count func(*tally, uint64)) {
	lost := make(map[uint64]bool, len(skipped))
	for _, seq := range skipped {
		lost[seq] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		if p.mu.held[j.Seq] == j {
			delete(p.mu.held, j.Seq)
		}
		if lost[j.Seq] {
			p.mu.tally.lost++
		} else {
			count(&p.mu.tally, 1)
		}
	}
}

// extendLoop keeps the leases of waiting and running jobs: each is extended once
// a third of it is used up.
func (p *pool) extendLoop(ctx context.Context) {
	tick := time.NewTicker(p.opt.lease / 10)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.extend(ctx, false)
		case <-p.doubt:
			p.extend(ctx, true)
		case <-ctx.Done():
			return
		}
	}
}

// extend renews what is due, or with all every lease, and gives up what is lost.
// Leases that were in doubt are confirmed once all are renewed.
func (p *pool) extend(ctx context.Context, all bool) {
	p.mu.Lock()
	gate := p.mu.gate
	p.mu.Unlock()
	all = all || gate != nil
	for due := p.due(all); len(due) > 0; {
		n := min(len(due), maxSettle)
		if err := p.extendSome(ctx, due[:n]); err != nil {
			return // the next tick tries again; the deadline decides
		}
		due = due[n:]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if gate != nil && gate == p.mu.gate && !p.mu.away {
		close(gate)
		p.mu.gate = nil
	}
}

// due are the jobs to extend; those whose time is over are given up.
func (p *pool) due(all bool) []*heldJob {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	var due []*heldJob
	for _, j := range p.mu.held {
		if j.state == jobSettling || j.lost {
			continue
		}
		if now.After(j.deadline) {
			j.giveUp()
		} else if all || j.deadline.Sub(now) <= p.opt.lease*2/3 {
			due = append(due, j)
		}
	}
	return due
}

func (p *pool) extendSome(ctx context.Context, jobs []*heldJob) error {
	req := client.Settle{Node: p.node, LeaseMS: p.opt.lease.Milliseconds()}
	req.Seqs, req.LeaseIDs = names(jobs)
	// A call that takes as long as the lease is of no use any more.
	call, cancel := context.WithTimeout(ctx, p.opt.lease/3)
	defer cancel()
	at := time.Now()
	res, err := p.client.Extend(call, p.topic, req)
	if ctx.Err() == nil {
		p.setAway(err)
	}
	if err != nil {
		return err
	}
	skipped := make(map[uint64]bool, len(res.Skipped))
	for _, seq := range res.Skipped {
		skipped[seq] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		switch {
		case j.state == jobSettling: // the ack may have been quicker
		case skipped[j.Seq]:
			j.giveUp()
		default:
			j.deadline = at.Add(p.opt.lease)
		}
	}
	return nil
}

// giveUp marks the lease as lost and kills the handler; the pool's mu is held.
func (j *heldJob) giveUp() {
	j.lost = true
	if j.cancel != nil {
		j.cancel(errLeaseLost)
	}
}
