package weir

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
)

type jobState uint8

const (
	jobWaiting   jobState = iota // claimed ahead, no handler began
	jobRunning                   // a handler has it
	jobAbandoned                 // its handler ignores its context; the message was given back without it
	jobSettling                  // its ack, nack or dead letter is under way; the heartbeat leaves it alone
)

// verdict is how a job left its worker.
type verdict uint8

const (
	verdictAck       verdict = iota
	verdictFailed            // tried again after a delay, or dead
	verdictStopped           // cancelled by the end of the pool: due again at once
	verdictUnstarted         // given back without counting
	verdictExpired           // its deadline passed before a handler began
	verdictLost              // somebody else has it
)

// job is a delivery that this pool holds. Its fields are guarded by the pool's
// lock, but for what the worker alone uses while it runs. It is used again for
// another delivery once it is settled; the handler never sees it.
type job struct {
	delivery *Delivery // nil once a handler has it: what is in it is the handler's then
	lease    backend.Lease
	at       int64       // of publication, Unix ns
	limit    int         // of its deliveries; 0: none
	parent   string      // its header with the trace
	ctx      *jobContext // the handler's

	next, prev *job // in the list of what is held
	state      jobState
	verdict    verdict
	lost       bool
	superseded bool          // claimed once more while this pool had it: another job carries that
	timedOut   bool          // its heartbeat has stopped
	doubtful   bool          // its ack had no answer, and its lease was gone then
	replaced   bool          // abandoned, and another worker took the place of its worker
	started    time.Time     // when its handler began
	timeout    time.Duration // how long it may run; 0: without end
	cancelled  time.Time     // when its handler was told to stop; zero if it was not
	goroutine  int64         // number of its worker, to find its stack
	err        error         // what the handler returned
	trace      *jobTrace     // nil: it is not traced
}

// message says which message a delivery is of, as far as a pool has to know. IDs alone do not:
// the numbers of a stream that is deleted and made again begin anew.
type message struct {
	id string
	at int64 // of publication, Unix ns
}

func messageOf(d *Delivery) message { return message{d.ID, d.Enqueued.UnixNano()} }

func (j *job) message() message { return message{j.lease.ID, j.at} }

// end is when the lease runs out at the earliest, by this process's clock.
func (j *job) end(reclaimAfter time.Duration) time.Time { return j.lease.Since.Add(reclaimAfter) }

// stop cancels the handler; the pool's lock is held.
func (j *job) stop(now time.Time, cause error) {
	if j.cancelled.IsZero() {
		j.cancelled = now
	}
	j.ctx.cancel(cause)
}

// jobContext is the context of one handler. Most of a context's price, its
// channel and its place in its parent's list, is paid only by handlers that look
// at it. It behaves as the one of context.WithCancelCause that it then makes.
type jobContext struct {
	pool     *Pool
	deadline time.Time                    // zero: none
	state    atomic.Pointer[contextState] // nil until somebody looks or it has ended
}

// contextState has at least one of its parts: what was ended before anybody looked has
// a cause only, and gets a context that has ended when somebody does.
type contextState struct {
	context.Context
	stop  context.CancelCauseFunc
	cause error
}

// unseen is the state of most contexts: nobody had looked when the handler returned.
var unseen = &contextState{cause: context.Canceled}

// Deadline is when the pool cancels the context for HandlerTimeout. It has a monotonic
// reading: to what compares it with the time, a step of the wall clock must not be its end.
func (c *jobContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

func (c *jobContext) Done() <-chan struct{} { return c.standard().Done() }
func (c *jobContext) Err() error            { return c.standard().Err() }

// Value answers for the inner context, so that context.Cause finds its cause.
func (c *jobContext) Value(key any) any { return c.standard().Value(key) }

func (c *jobContext) standard() context.Context {
	for {
		was := c.state.Load()
		if was != nil && was.Context != nil {
			return was.Context
		}
		inner, stop := context.WithCancelCause(c.pool.work)
		if was != nil {
			stop(was.cause)
		}
		if c.state.CompareAndSwap(was, &contextState{Context: inner, stop: stop}) {
			return inner
		}
		stop(nil) // somebody else has looked or ended it meanwhile
	}
}

// cancel ends the context; the first cause stays.
func (c *jobContext) cancel(cause error) {
	end := unseen
	if cause != context.Canceled {
		end = &contextState{cause: cause}
	}
	if c.state.CompareAndSwap(nil, end) {
		return
	}
	if is := c.state.Load(); is.stop != nil {
		is.stop(cause)
	}
}

// jobList is a list of jobs; the zero value is empty.
type jobList struct {
	first *job
	len   int
}

func (l *jobList) add(j *job) {
	j.next, j.prev = l.first, nil
	if l.first != nil {
		l.first.prev = j
	}
	l.first = j
	l.len++
}

func (l *jobList) remove(j *job) {
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		l.first = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	}
	j.next, j.prev = nil, nil
	l.len--
}

// setOf makes a set of IDs. It is nil if there are none.
func setOf(ids []string) map[string]bool {
	if len(ids) == 0 {
		return nil
	}
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// messageSet is a set of messages, at most maxRemembered of them and at least half as
// many of the last: when the young ones are that many, the old ones are forgotten.
type messageSet struct{ young, old map[message]struct{} }

func (s *messageSet) has(m message) bool {
	_, young := s.young[m]
	_, old := s.old[m]
	return young || old
}

func (s *messageSet) empty() bool { return len(s.young)+len(s.old) == 0 }

func (s *messageSet) add(m message) {
	if len(s.young) >= maxRemembered/2 {
		s.old, s.young = s.young, nil
	}
	if s.young == nil {
		s.young = map[message]struct{}{}
	}
	s.young[m] = struct{}{}
}

// take removes a message and reports whether it was there.
func (s *messageSet) take(m message) bool {
	if s.empty() {
		return false
	}
	was := s.has(m)
	delete(s.young, m)
	delete(s.old, m)
	return was
}

// jobQueue hands out jobs in the order in which they came.
type jobQueue struct {
	jobs []*job
	head int
}

func (q *jobQueue) len() int { return len(q.jobs) - q.head }

func (q *jobQueue) push(j *job) {
	if q.head > 0 && len(q.jobs) == cap(q.jobs) {
		n := copy(q.jobs, q.jobs[q.head:])
		clear(q.jobs[n:])
		q.jobs, q.head = q.jobs[:n], 0
	}
	q.jobs = append(q.jobs, j)
}

func (q *jobQueue) pop() *job {
	j := q.jobs[q.head]
	q.jobs[q.head] = nil
	q.head++
	if q.head == len(q.jobs) {
		q.jobs, q.head = q.jobs[:0], 0
	}
	return j
}

// freeJobs are jobs to be used again.
type freeJobs struct{ first *job }

func (f *freeJobs) take() *job {
	j := f.first
	if j == nil {
		return new(job)
	}
	f.first, j.next = j.next, nil
	return j
}

// give takes back a job that nothing points to any more but a heartbeat under way.
func (f *freeJobs) give(j *job) {
	*j = job{next: f.first}
	f.first = j
}
