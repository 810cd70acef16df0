package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	// cutDelay is how long to wait for the backend once handlers have been cancelled.
	cutDelay = 5 * time.Second
	// claimSlack is how much later than it was told that a claim may end.
	claimSlack = 250 * time.Millisecond
	// claimGrace is how long a claim in progress may go on once the pool stops: one
	// that is cut off can leave messages unhandled for ReclaimAfter, so only a backend
	// that does not answer takes so long.
	claimGrace = 2 * time.Second
	// callTimeout bounds one call of the backend, not counting a claim's Block.
	callTimeout = 10 * time.Second
	// stuckGrace is how long a cancelled handler may take to return before it is
	// given up, or a third of ReclaimAfter if that is less.
	stuckGrace = 5 * time.Second
	// maxSettle is how many messages one ack, nack or extend names at most.
	maxSettle = 1000
	// maxRemembered is how many messages are remembered whose acks were refused, or which
	// this pool has given back itself.
	maxRemembered = 10_000
	// maxUnsettled is how many messages may wait to be settled before claiming stops.
	maxUnsettled = 4 * maxSettle
	// maxReturning is how many of these may have failed: a dead letter is a call of its own,
	// and the others' leases run out meanwhile, so that their handlers would run again.
	maxReturning = 32 * buryAtOnce
)

// Pool runs a handler for the messages of a stream. One reader claims for all workers,
// and a second one helps while the stream is busy: first what crashed workers left,
// then what is new. A pool with one worker has one reader, so that it gets new messages
// in order.
//
// The lease of a message is extended while it waits or is being handled. A pool claims no
// further ahead than its workers begin soon: what lies in a pool no other can do. With
// AutoWorkers it sets the number of workers by what they get done.
//
// A handler that ignores its context cannot be stopped. The pool gives it up: its
// message goes elsewhere and another worker takes its place, for at most as many
// handlers at a time as there are Workers (with AutoWorkers, MaxWorkers). Any further one that hangs costs a worker,
// and a pool without workers claims nothing until a handler returns.
type Pool struct {
	stream  *Stream
	backend backend.Backend
	handler Handler
	cfg     PoolConfig
	name    StreamName
	log     *slog.Logger
	traced  bool // somebody wants to know of single deliveries

	started  atomic.Bool
	stopped  chan struct{} // closed when nothing new may begin
	killed   chan struct{} // closed by Cancel
	stopOnce sync.Once
	killOnce sync.Once

	work    context.Context // the parent of the handlers' contexts
	calls   context.Context // what settles ends with it
	endWork context.CancelCauseFunc
	acks    lane // handled messages
	returns lane // failed, unstarted and lost ones
	expired lane // what no handler began in time
	extend  chan struct{}
	watch   chan struct{}
	beat    chan struct{}

	outage seldom // the backend does not answer
	parts  seldom // a part of the stream did not answer the last claim

	// A message goes claimer → waiting → worker → acks or returns. It is in held from its
	// claim to the answer of its ack or nack.
	mu struct {
		sync.Mutex
		hasWork sync.Cond // workers wait for a message
		hasRoom sync.Cond // the claimer waits for room
		ended   sync.Cond // Run waits for the last worker

		waiting   jobQueue
		claiming  int  // asked for in claims under way
		most      int  // that a claim asks for, after one whose answer took too long; 0: a batch
		busy      bool // the last claim came back full
		dry       bool // the last two did, and workers were already out of messages
		held      jobList
		free      freeJobs
		running   int              // handlers under way, those given up not counted
		settling  int              // jobs in a lane or in its call
		returning int              // of these, those in returns
		overdue   bool             // an ack is not answered; nothing is claimed before it is
		unacked   messageSet       // handled messages whose acks were given up or refused
		parked    map[message]*job // claimed again while their handlers still run
		returned  messageSet       // messages given back, not claimed again yet
		wait      claimWait
		workers   int  // how many there may be
		live      int  // workers, those with a replaced job not counted
		idle      int  // of these, waiting for work
		waking    bool // an idle or new worker is on its way to the queue
		stuck     int  // handlers given up whose workers have been replaced
		blocked   int  // live workers whose handlers were given up and who were not replaced
		stopping  bool
		killed    time.Time // when the handlers were told to stop
		doubts    int       // how often the leases came into doubt
		doubted   bool      // they are; nothing begins until they are confirmed
		away      trouble   // calls that the backend does not answer
		due       dueTimes
		failures  lineLimit     // of the lines about failed deliveries
		expiries  lineLimit     // of those about expired messages
		remakes   lineLimit     // of those about a group that was made again
		extendAt  time.Time     // when the heartbeat looks next
		took      time.Duration // how long handlers take lately; 0: none has ended
		work      workload      // what the workers do, for AutoWorkers
		fatal     error         // why the pool ends by itself
		stats     PoolStats
	}
}

// PoolStats counts what a pool has done and says what it is doing.
type PoolStats struct {
	Acked       uint64 // handled
	Retried     uint64 // failed and given back
	Returned    uint64 // given back before their handlers began
	Dead        uint64 // moved to the dead letters, the expired ones not counted
	Expired     uint64 // set aside: their deadlines passed before their handlers began
	Lost        uint64 // their data was gone before they were done
	Unsettled   uint64 // another worker had them by then, or the backend did not answer: handled elsewhere or again
	Reclaimed   uint64 // deliveries taken over from other workers
	Redelivered uint64 // handlers started for messages that had been delivered before

	Workers int // PoolConfig.Workers, or how many AutoWorkers has found best so far
	Busy    int // running handlers
	Waiting int // messages claimed ahead
	Stuck   int // handlers that ignore their context
}

// NewPool returns a pool of workers for s. The error names the invalid field of c.
func NewPool(s *Stream, h Handler, c PoolConfig) (*Pool, error) {
	switch {
	case s == nil:
		return nil, errors.New("weir: NewPool: the stream is nil")
	case h == nil:
		return nil, errors.New("weir: NewPool: the handler is nil")
	}
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("weir: PoolConfig: %w", err)
	}
	if err := s.checkDeadLetter(c.DeadLetter); err != nil {
		return nil, fmt.Errorf("weir: PoolConfig: DeadLetter: %w", err)
	}
	p := &Pool{
		stream: s, backend: s.backend, handler: h, cfg: c, log: c.Logger,
		name:    StreamName{Kind: s.info.Kind, Stream: s.info.Stream, Group: s.info.Group},
		traced:  c.Tracing.Attempt != nil || c.Tracing.Settled != nil,
		stopped: make(chan struct{}), killed: make(chan struct{}),
		acks: newLane(), returns: newLane(), expired: newLane(),
		extend: make(chan struct{}, 1), watch: make(chan struct{}, 1), beat: make(chan struct{}, 1),
	}
	p.mu.workers = c.firstWorkers()
	p.mu.hasWork.L, p.mu.hasRoom.L, p.mu.ended.L = &p.mu, &p.mu, &p.mu
	return p, nil
}

// Consumer returns the name under which the pool claims.
func (p *Pool) Consumer() string { return p.cfg.Consumer }

// Stats returns the current counts.
func (p *Pool) Stats() PoolStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.mu.stats
	s.Workers, s.Busy, s.Waiting, s.Stuck = p.mu.workers, p.mu.running, p.mu.waiting.len(), p.mu.stuck+p.mu.blocked
	return s
}

// Cancel stops the pool at once: handlers are cancelled and their messages given
// back. It does not wait; Run returns when it is done.
func (p *Pool) Cancel() {
	p.killOnce.Do(func() { close(p.killed) })
	p.stop()
}

// Run works until ctx ends or, with UntilEmpty, until the stream is empty. Then it
// claims no more, gives back what no handler has begun, and waits up to DrainTimeout
// for the running handlers; those still running then are cancelled and their messages
// given back. Handlers get the values of ctx, but not its cancellation.
//
// The error is nil unless the first claim is refused for a permanent reason, or
// something could not be stopped or settled in time. A pool runs only once.
func (p *Pool) Run(ctx context.Context) error {
	if p.started.Swap(true) {
		return errors.New("weir: this pool has run; a pool runs once")
	}
	defer p.stream.join(p)()
	p.work, p.endWork = context.WithCancelCause(context.WithoutCancel(ctx))
	defer p.endWork(context.Canceled)
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	p.calls = calls
	claims, cutClaims := context.WithCancel(calls)
	defer cutClaims()
	rest, stopRest := context.WithCancel(calls)
	defer stopRest()

	var claimer, settlers, others sync.WaitGroup
	claimer.Go(func() { p.claimLoop(claims) })
	for range p.assists() {
		claimer.Go(func() { p.assistLoop(claims) })
	}
	settlers.Go(func() { p.ackLoop(calls) })
	settlers.Go(func() { p.returnLoop(calls) })
	settlers.Go(func() { p.expireLoop(calls) })
	others.Go(func() { p.extendLoop(rest) })
	others.Go(func() { p.watchLoop(rest) })
	others.Go(func() { p.beatLoop(rest, calls) })
	if p.cfg.Workers == AutoWorkers {
		others.Go(func() { p.autoLoop(rest) })
	}
	p.startPeriodic(rest, &others)
	others.Go(func() { p.stopLoop(ctx, rest, cutClaims, cut) })

	claimer.Wait()
	p.awaitWorkers()
	p.acks.close()
	p.returns.close()
	p.expired.close()
	settlers.Wait()
	stopRest()
	others.Wait()
	return p.result()
}

// awaitWorkers returns when no worker is left but those that cannot be ended.
func (p *Pool) awaitWorkers() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mu.live > p.mu.blocked {
		p.mu.ended.Wait()
	}
}

// result is what Run returns once all is done.
func (p *Pool) result() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.mu.fatal
	if n := p.mu.stuck + p.mu.blocked; n > 0 {
		err = errors.Join(err, fmt.Errorf("weir: %d handlers ignore their context and still run", n))
	}
	if n := p.mu.held.len; n > 0 {
		err = errors.Join(err, fmt.Errorf("weir: the backend did not answer in time for %d messages; others get them after %s", n, p.cfg.ReclaimAfter))
	}
	return err
}

// stopLoop turns the end of ctx into a drain, and Cancel or the end of
// DrainTimeout into the end of the handlers.
func (p *Pool) stopLoop(ctx, done context.Context, cutClaims, cut func()) {
	select {
	case <-ctx.Done():
		p.stop()
	case <-p.stopped:
	}
	grace := time.AfterFunc(claimGrace, cutClaims)
	defer grace.Stop()
	timeout := time.NewTimer(p.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case <-p.killed:
	case <-timeout.C:
	case <-done.Done():
		return
	}
	p.kill()
	last := time.NewTimer(p.grace() + cutDelay)
	defer last.Stop()
	select {
	case <-last.C:
		cut()
	case <-done.Done():
	}
}

// stop lets nothing begin any more and gives back what waits; stopLoop does the rest.
func (p *Pool) stop() {
	p.stopOnce.Do(func() {
		close(p.stopped)
		p.drain()
	})
}

func (p *Pool) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.stopping = true
	p.mu.wait.cut(time.Now())
	p.returnWaiting()
	p.mu.hasWork.Broadcast()
	p.mu.hasRoom.Broadcast()
}

// returnWaiting gives back every message that no handler has begun; the lock is held.
func (p *Pool) returnWaiting() {
	for p.mu.waiting.len() > 0 {
		j := p.mu.waiting.pop()
		if j.lost {
			p.leave(j, verdictLost)
		} else {
			p.leave(j, verdictUnstarted)
		}
	}
}

// kill cancels the handlers.
func (p *Pool) kill() {
	p.mu.Lock()
	p.mu.killed = time.Now()
	n := p.mu.running
	p.mu.Unlock()
	if n > 0 {
		p.log.Warn("weir: pool stops: cancelling handlers", "stream", p.name.Stream, "consumer", p.cfg.Consumer, "handlers", n)
	}
	p.endWork(ErrStopped)
	kick(p.watch)
}

// fail ends the pool because of err.
func (p *Pool) fail(err error) {
	p.mu.Lock()
	if p.mu.fatal == nil {
		p.mu.fatal = err
	}
	p.mu.Unlock()
	p.stop()
}

// grace is how long a cancelled handler may take to return.
func (p *Pool) grace() time.Duration { return min(stuckGrace, p.cfg.ReclaimAfter/3) }

// kick wakes the one who waits on c; a kick that is there already is enough.
func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
