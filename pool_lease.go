package weir

import (
	"context"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

// extendLoop keeps the leases of waiting and running jobs: each is extended when
// a third of it is used up.
func (p *Pool) extendLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		select {
		case <-p.extend:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		next, err := p.extendDue(ctx)
		if failures++; err == nil {
			failures = 0
		} else {
			next = backoff(failures, reconnectMin, max(min(reconnectMax, p.cfg.ReclaimAfter/10), reconnectMin))
		}
		timer.Reset(next)
	}
}

// extendDue extends what is due, or everything while the leases are in doubt,
// and returns when to look again.
func (p *Pool) extendDue(ctx context.Context) (time.Duration, error) {
	due, doubts, doubted := p.dueLeases()
	for len(due) > 0 {
		n := min(len(due), maxSettle)
		if err := p.extendSome(ctx, due[:n]); err != nil {
			return 0, err
		}
		due = due[n:]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if doubted && p.mu.doubts == doubts {
		p.mu.doubted = false
		p.wake()
	}
	next := time.Now().Add(p.cfg.ReclaimAfter / 3)
	for j := p.mu.held.first; j != nil; j = j.next {
		if at := j.lease.Since.Add(p.cfg.ReclaimAfter / 3); j.extendable() && at.Before(next) {
			next = at
		}
	}
	p.mu.extendAt = next
	return max(time.Until(next), time.Millisecond), nil
}

func (j *job) extendable() bool {
	return !j.lost && !j.timedOut && (j.state == jobWaiting || j.state == jobRunning)
}

// dueLeases are the jobs to extend, those that are due soon included so that one
// call serves many.
func (p *Pool) dueLeases() (due []*job, doubts int, doubted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	soon := time.Now().Add(-p.cfg.ReclaimAfter/3 + p.cfg.ReclaimAfter/20)
	for j := p.mu.held.first; j != nil; j = j.next {
		if j.extendable() && (p.mu.doubted || !j.lease.Since.After(soon)) {
			due = append(due, j)
		}
	}
	return due, p.mu.doubts, p.mu.doubted
}

func (p *Pool) extendSome(ctx context.Context, jobs []*job) error {
	p.mu.Lock()
	// An earlier batch took its time: some may be settled by now, and used again.
	jobs = slices.DeleteFunc(jobs, func(j *job) bool { return j.lease.ID == "" || !j.extendable() })
	leases := appendLeases(make([]backend.Lease, 0, len(jobs)), jobs)
	p.mu.Unlock()
	if len(jobs) == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, min(callTimeout, p.cfg.ReclaimAfter/3))
	defer cancel()
	at := time.Now()
	lost, err := p.backend.Extend(call, leases, p.cfg.ReclaimAfter)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.answered(extendCalls, err)
	gone := setOf(lost) // also if others could not be extended
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, j := range jobs {
		switch {
		case j.lease.ID != leases[i].ID || j.lease.Token != leases[i].Token || j.lease.Attempt != leases[i].Attempt: // used again
		case j.state == jobSettling || j.state == jobAbandoned: // its ack may have been quicker
		case gone[j.lease.ID]:
			p.lose(j)
		case err == nil:
			j.lease.Since = at
		}
	}
	return err
}

// lose marks the lease as lost and cancels the handler; the lock is held.
func (p *Pool) lose(j *job) {
	if j.lost || j.state == jobSettling || j.state == jobAbandoned {
		return
	}
	j.lost = true
	j.stop(time.Now(), ErrLeaseLost)
	kick(p.watch)
}

// watchLoop ends handlers whose time is over and gives up those that do not listen.
func (p *Pool) watchLoop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.watch:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		stuck, next := p.watchJobs(time.Now())
		p.logStuck(stuck)
		timer.Reset(max(time.Until(next), time.Millisecond))
	}
}

// watchJobs looks at every handler and returns those that it gave up, and when
// to look again: no job that comes later needs it sooner.
func (p *Pool) watchJobs(now time.Time) (stuck []stuckHandler, next time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next = now.Add(p.cfg.ReclaimAfter / 4)
	if p.cfg.HandlerTimeout > 0 {
		next = earlier(next, now.Add(p.cfg.HandlerTimeout))
	}
	for j := p.mu.held.first; j != nil; {
		following := j.next // giving j up changes the list
		if at := p.watchJob(j, now, &stuck); !at.IsZero() {
			next = earlier(next, at)
		}
		j = following
	}
	if p.mu.blocked >= p.mu.workers {
		p.returnWaiting()
	}
	return stuck, next
}

// watchJob returns when j is to be looked at again; zero: never.
func (p *Pool) watchJob(j *job, now time.Time, stuck *[]stuckHandler) time.Time {
	if j.state != jobWaiting && j.state != jobRunning {
		return time.Time{}
	}
	end := j.end(p.cfg.ReclaimAfter)
	if !end.After(now) {
		p.lose(j)
	}
	switch {
	case j.state == jobWaiting && j.lost:
		return time.Time{}
	case j.state == jobWaiting:
		return end
	}
	if !p.mu.killed.IsZero() {
		j.stop(now, ErrStopped)
	}
	if at := j.started.Add(j.timeout); j.timeout > 0 && !at.After(now) && j.cancelled.IsZero() {
		j.timedOut = true
		j.stop(now, ErrHandlerTimeout)
	} else if j.timeout > 0 && j.cancelled.IsZero() {
		end = earlier(end, at)
	}
	if j.cancelled.IsZero() {
		return end
	}
	if at := j.cancelled.Add(p.grace()); at.After(now) {
		return at
	}
	*stuck = append(*stuck, p.abandon(j))
	return time.Time{}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// stuckHandler is a handler that was given up.
type stuckHandler struct {
	lease     backend.Lease
	parent    string // its header with the trace
	goroutine int64
	running   time.Duration
	replaced  bool
}

// abandon goes on without the handler of j: another job carries the message to
// its lane, and another worker takes the place of its worker if there is one left.
// The lock is held.
func (p *Pool) abandon(j *job) stuckHandler {
	own := &job{lease: j.lease, at: j.at, limit: j.limit, parent: j.parent, lost: j.lost, superseded: j.superseded, timedOut: j.timedOut, started: j.started, trace: j.trace}
	p.mu.held.remove(j)
	p.mu.held.add(own)
	p.mu.running--
	v := verdictFailed
	switch {
	case j.lost:
		v = verdictLost
	case j.timedOut:
		own.err = timeoutError(j.timeout, nil)
	default:
		v, own.err = verdictStopped, ErrStopped
	}
	p.leave(own, v)
	p.unpark(own, v)
	j.state = jobAbandoned
	if j.replaced = p.mu.stuck < p.cfg.mostWorkers() && !p.mu.stopping; j.replaced {
		p.mu.stuck++
		p.mu.live--
	} else {
		p.mu.blocked++
	}
	p.wake()
	p.roomMade()
	p.busyChanged()
	p.mu.ended.Broadcast()
	return stuckHandler{lease: j.lease, parent: j.parent, goroutine: j.goroutine, running: time.Since(j.started), replaced: j.replaced}
}
