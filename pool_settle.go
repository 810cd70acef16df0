package weir

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

// ackBatch is how many handled messages are acked without waiting for more.
const ackBatch = 500

// lane gathers jobs for one settling loop. jobs is guarded by the pool's lock.
type lane struct {
	jobs  []*job
	spare []*job
	kick  chan struct{}
	done  chan struct{} // closed when no job comes any more
}

func newLane() lane { return lane{kick: make(chan struct{}, 1), done: make(chan struct{})} }

func (l *lane) add(j *job) {
	l.jobs = append(l.jobs, j)
	if n := len(l.jobs); n == 1 || n == ackBatch {
		kick(l.kick)
	}
}

func (l *lane) close() { close(l.done) }

// drainLane takes what is in l. The slice is valid until the next call.
func (p *Pool) drainLane(l *lane) []*job {
	p.mu.Lock()
	defer p.mu.Unlock()
	jobs := l.jobs
	clear(l.spare)
	l.jobs, l.spare = l.spare[:0], jobs
	return jobs
}

func (p *Pool) laneLen(l *lane) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(l.jobs)
}

// ackLoop acks what workers have handled, in groups.
func (p *Pool) ackLoop(ctx context.Context) {
	linger := time.NewTimer(p.cfg.AckLinger)
	defer linger.Stop()
	var leases []backend.Lease
	for open := true; open; {
		open = p.gather(&p.acks, linger)
		jobs := p.drainLane(&p.acks)
		for len(jobs) > 0 {
			n := min(len(jobs), maxSettle)
			leases = appendLeases(leases[:0], jobs[:n])
			lost, ok := p.tell(ctx, jobs[:n], true, func(ctx context.Context) ([]string, error) {
				return p.backend.Ack(ctx, leases)
			})
			p.acked(jobs[:n], lost, ok)
			jobs = jobs[n:]
		}
	}
}

// acked lets go of handled jobs. What was handled and could not be acknowledged is
// remembered: if the message comes back it is acknowledged then, and not run again. A
// refused ack is remembered, too: the claim that took the lease may be this pool's own,
// with its answer still on the way. So is one in doubt, as of a server that has restarted
// without the lease, and hands the message out as if it were new.
func (p *Pool) acked(jobs []*job, lost []string, ok bool) {
	refused := setOf(lost)
	p.mu.Lock()
	p.mu.overdue = false
	for _, j := range jobs {
		if !ok || refused[j.lease.ID] || j.doubtful {
			p.mu.unacked.add(j.message())
		} else {
			p.mu.unacked.take(j.message())
		}
	}
	p.roomMade()
	p.mu.Unlock()
	p.settled(jobs, lost, ok, Acked)
}

// gather waits for a job, and then AckLinger for others, though not for as long as the leases
// might run out. It returns false when no more will come.
func (p *Pool) gather(l *lane, linger *time.Timer) (open bool) {
	select {
	case <-l.kick:
	case <-l.done:
		return false
	}
	if p.cfg.AckLinger <= 0 || p.laneLen(l) >= ackBatch {
		return true
	}
	linger.Reset(min(p.cfg.AckLinger, p.cfg.ReclaimAfter/4)) // nobody extends what is handled
	select {
	case <-linger.C:
	case <-l.kick:
	case <-l.done:
	case <-p.stopped:
	}
	return true
}

// returnLoop gives back what failed or was not begun, and buries what is dead.
func (p *Pool) returnLoop(ctx context.Context) {
	for open := true; open; {
		select {
		case <-p.returns.kick:
		case <-p.returns.done:
			open = false
		}
		jobs := p.drainLane(&p.returns)
		for len(jobs) > 0 {
			n := min(len(jobs), maxSettle)
			p.giveBack(ctx, jobs[:n])
			jobs = jobs[n:]
		}
	}
}

// giveBack sorts jobs by what becomes of them and tells the backend.
func (p *Pool) giveBack(ctx context.Context, jobs []*job) {
	var lost, retried, unstarted, dead []*job
	for _, j := range jobs {
		switch {
		case j.verdict == verdictLost:
			lost = append(lost, j)
		case j.verdict == verdictUnstarted:
			unstarted = append(unstarted, j)
		case j.verdict == verdictFailed && p.isDead(j):
			dead = append(dead, j)
		default:
			retried = append(retried, j)
		}
	}
	for _, j := range lost {
		if j.superseded {
			continue
		}
		p.logLost(j, "weir: lease lost: the message is somebody else's", j.err)
	}
	p.settled(lost, nil, true, Unsettled)
	p.nack(ctx, unstarted, Returned)
	p.nack(ctx, retried, Retried)
	p.buryEach(dead, func(j *job) { p.bury(ctx, j) })
}

// isDead reports whether no further delivery may be tried.
func (p *Pool) isDead(j *job) bool {
	return isPoison(j.err) || j.limit > 0 && j.lease.Attempt >= j.limit
}

func isPoison(err error) bool {
	var poison *PoisonError
	return errors.As(err, &poison)
}

func (p *Pool) nack(ctx context.Context, jobs []*job, o Outcome) {
	if len(jobs) == 0 {
		return
	}
	returns := make([]backend.Return, len(jobs))
	for i, j := range jobs {
		returns[i] = backend.Return{Lease: j.lease, NotStarted: j.verdict == verdictUnstarted}
		if j.verdict == verdictFailed {
			returns[i].Delay = p.retryDelay(j)
			if j.trace != nil {
				j.trace.delay = returns[i].Delay
			}
			p.logFailed(j, returns[i].Delay)
		}
		if j.err != nil {
			returns[i].Error = errorText(j.err)
		}
	}
	p.noteReturned(jobs)
	lost, ok := p.tell(ctx, jobs, false, func(ctx context.Context) ([]string, error) {
		return p.backend.Nack(ctx, returns)
	})
	p.settled(jobs, lost, ok, o)
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range returns {
		if !r.NotStarted { // the others are for another pool: this one stops
			p.mu.due.add(now.Add(r.Delay))
			p.mu.wait.cut(now.Add(r.Delay))
		}
	}
}

// noteReturned remembers what may come back to this pool without having been with any
// other worker.
func (p *Pool) noteReturned(jobs []*job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		p.mu.returned.add(j.message())
	}
}

// retryDelay is what the handler asked for; otherwise it grows with the deliveries.
func (p *Pool) retryDelay(j *job) time.Duration {
	var retry *RetryError
	if errors.As(j.err, &retry) {
		return max(retry.Delay, 0)
	}
	return backoff(j.lease.Attempt, p.cfg.RetryBase, p.cfg.RetryMax)
}

// errorText is the text of err as it is stored with a message.
func errorText(err error) string {
	text := fmt.Sprint(err) // which survives an error that panics now and did not before
	return strings.ToValidUTF8(text[:min(len(text), backend.MaxErrorBytes)], "")
}

// bury moves a message to the dead letters.
func (p *Pool) bury(ctx context.Context, j *job) {
	cause := backend.Cause{Reason: backend.ReasonMaxDeliveries, Error: errorText(j.err)}
	switch {
	case j.err == errSpent:
		cause.NotStarted = true
	case isPoison(j.err):
		cause.Reason = backend.ReasonPoison
	}
	lost, ok := p.moveDead(ctx, j, cause)
	if ok && len(lost) == 0 {
		p.logDead(j, cause)
	}
	p.settled([]*job{j}, lost, ok, Dead)
}

// moveDead stores a message in the dead letters. Its results are those of tell.
func (p *Pool) moveDead(ctx context.Context, j *job, cause backend.Cause) (lost []string, ok bool) {
	var delivery Delivery
	if j.delivery != nil {
		delivery = *j.delivery
	}
	delivery.Lease = j.lease
	if j.trace != nil {
		j.trace.reason = cause.Reason
	}
	return p.tell(ctx, []*job{j}, false, func(ctx context.Context) ([]string, error) {
		err := p.backend.DeadLetter(ctx, &delivery, p.cfg.DeadLetter, cause)
		if errors.Is(err, ErrLeaseLost) {
			return []string{j.lease.ID}, nil
		}
		return nil, err
	})
}

// tell repeats a call until the backend answers it, for as long as one of the leases
// may still be held, or for an ack until the pool ends: what is done is done, and unless
// another worker has claimed it meanwhile, it is still this pool's. Nothing is claimed
// before that is known. ok is false if the call was never answered; whoever claims the
// messages next then decides what becomes of them.
//
// The repeat of a call whose answer was lost may learn that the leases are gone. Since
// nobody else can have them before they run out, the first attempt did it, or the server
// has forgotten them.
func (p *Pool) tell(ctx context.Context, jobs []*job, ack bool, call func(context.Context) ([]string, error)) (lost []string, ok bool) {
	unknown := false
	telling(jobs)
	for try := 1; ; try++ {
		single, cancel := context.WithTimeout(ctx, min(callTimeout, p.cfg.ReclaimAfter/3))
		lost, err := call(single)
		cancel()
		if err == nil {
			p.answered(settleCalls, nil)
			if unknown {
				lost = p.lostFor(jobs, lost)
			}
			return lost, true
		}
		unknown = unknown || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
		if ctx.Err() != nil || !p.tellsAgain(err, ack) || !ack && time.Now().After(p.latestEnd(jobs)) {
			p.gaveUp(err, len(jobs))
			return nil, false
		}
		if ack {
			p.holdClaims()
		}
		p.answered(settleCalls, err)
		_ = pause(ctx, retryDelay(try, err))
	}
}

// tellsAgain reports whether a call that ended with err may be repeated. An ack that is not
// permitted is, unless the pool stops: it may be by and by, and until then whatever is
// claimed would be handled and come again.
func (p *Pool) tellsAgain(err error, ack bool) bool {
	if !ack || !errors.Is(err, ErrForbidden) {
		return backend.Retryable(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.stopping
}

// holdClaims prevents claims until the acks in progress are answered.
func (p *Pool) holdClaims() {
	p.mu.Lock()
	p.mu.overdue = true
	p.mu.Unlock()
}

// lostFor leaves of the lost ones those whose leases have run out. The others are in doubt.
func (p *Pool) lostFor(jobs []*job, lost []string) []string {
	if len(lost) == 0 {
		return nil
	}
	now, gone := time.Now(), setOf(lost)
	over := make(map[string]bool)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, j := range jobs {
		if now.After(j.end(p.cfg.ReclaimAfter)) {
			over[j.lease.ID] = true
		} else {
			j.doubtful = gone[j.lease.ID]
		}
	}
	var left []string
	for _, id := range lost {
		if over[id] {
			left = append(left, id)
		}
	}
	return left
}

func (p *Pool) latestEnd(jobs []*job) time.Time {
	var t time.Time
	for _, j := range jobs {
		if end := j.end(p.cfg.ReclaimAfter); end.After(t) {
			t = end
		}
	}
	return t
}

func appendLeases(leases []backend.Lease, jobs []*job) []backend.Lease {
	for _, j := range jobs {
		leases = append(leases, j.lease)
	}
	return leases
}

// settled lets go of the jobs and counts them. Jobs whose call was cut off by the end
// of the pool stay held, for Run to report.
func (p *Pool) settled(jobs []*job, lost []string, ok bool, o Outcome) {
	if len(jobs) == 0 || !ok && p.calls.Err() != nil {
		return
	}
	p.traceEnd(jobs, lost, ok, o)
	gone, again := len(lost), 0
	if !ok {
		gone = len(jobs)
	}
	p.mu.Lock()
	for _, j := range jobs {
		if j.superseded {
			again++ // and lost, to the job that carries it now
		}
		if j.verdict != verdictAck && j.verdict != verdictExpired {
			p.mu.returning--
		}
		p.mu.held.remove(j)
		p.mu.free.give(j)
	}
	p.mu.settling -= len(jobs)
	done := len(jobs) - max(gone, again)
	gone = max(gone-again, 0)
	p.mu.stats.add(o, done)
	p.mu.stats.add(Unsettled, gone)
	if p.mu.settling < maxUnsettled {
		p.roomMade()
	}
	p.mu.Unlock()
	p.countHook(o, done)
	p.countHook(Unsettled, gone)
	if ok && gone > 0 {
		p.log.Warn("weir: leases lost before they were settled", "stream", p.name.Stream, "consumer", p.cfg.Consumer, "messages", gone, "message_id", lost[0])
	}
	kick(p.beat)
}

func (p *Pool) countHook(o Outcome, n int) {
	if n > 0 && p.cfg.Hooks.Settled != nil {
		p.cfg.Hooks.Settled(p.name, o, n)
	}
}

// add counts n messages.
func (s *PoolStats) add(o Outcome, n int) {
	switch o {
	case Acked:
		s.Acked += uint64(n)
	case Retried:
		s.Retried += uint64(n)
	case Returned:
		s.Returned += uint64(n)
	case Dead:
		s.Dead += uint64(n)
	case Expired:
		s.Expired += uint64(n)
	case Lost:
		s.Lost += uint64(n)
	case Unsettled:
		s.Unsettled += uint64(n)
	}
}
