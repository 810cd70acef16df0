package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/client"
)

const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 2 * time.Second
)

type jobState uint8

const (
	jobWaiting jobState = iota // claimed, no handler began
	jobRunning
	jobSettling // its ack or nack is under way; the extender leaves it alone
)

// heldJob is a message this process has a lease on.
type heldJob struct {
	client.Job
	state    jobState
	deadline time.Time // when the lease ends at the earliest, by our clock
	lost     bool
	cancel   context.CancelCauseFunc // of the running handler
}

// tally are the numbers of the summary.
type tally struct {
	acked     uint64
	nacked    uint64 // failed and given back
	reclaimed uint64 // begun with an earlier delivery behind them
	lost      uint64 // leases that ended before the ack or nack was confirmed
	returned  uint64 // given back unstarted
}

// pool claims, runs and settles. Its goroutines are the claimer, the workers,
// the settler and the extender; run starts them and waits for all.
//
// A job goes claimer → waiting → worker → finished → settler. It is in held from
// the claim to the answer of its ack or nack, and the extender keeps its lease.
type pool struct {
	opt     *workOptions
	client  *client.Client
	topic   string
	node    string
	config  client.Config
	handler *handler
	log     io.Writer

	waiting  chan *heldJob // holds opt.batch: what is claimed ahead
	finished chan outcome
	taken    chan struct{} // a worker took a job: room to claim
	// draining ends when nothing new may begin.
	draining     context.Context
	stopClaiming context.CancelFunc
	doubt        chan struct{} // the server is back: the leases have to be confirmed

	mu struct {
		sync.Mutex
		held    map[uint64]*heldJob
		tally   tally
		nextDue time.Time // when the first job this pool gave back is due again
		fatal   error     // why the pool ends by itself
		away    bool      // the server does not answer
		// gate is there while leases are in doubt, and closed when they are
		// confirmed: a server that restarts forgets leases, and what begins under
		// a forgotten one is done twice.
		gate chan struct{}
	}
}

// outcome is how a job left its worker.
type outcome struct {
	job     *heldJob
	ack     bool
	started bool // false: given back unstarted
	retry   bool // given back with a delay
}

func newPool(opt *workOptions, c *client.Client, topic, node string, cfg client.Config) *pool {
	p := &pool{
		opt: opt, client: c, topic: topic, node: node, config: cfg,
		waiting:  make(chan *heldJob, opt.batch),
		finished: make(chan outcome, opt.batch),
		taken:    make(chan struct{}, 1),
		doubt:    make(chan struct{}, 1),
	}
	p.draining, p.stopClaiming = context.WithCancel(context.Background())
	p.mu.held = make(map[uint64]*heldJob)
	return p
}

// run works until a signal, the end of ctx, an empty queue (--until-empty) or an
// error that waiting does not mend.
func (p *pool) run(ctx context.Context, signals <-chan os.Signal) error {
	// kill ends handlers; hard ends the calls to the server that settle them.
	// The end of ctx is a request to drain, so neither ends with it.
	work, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	hard, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer p.stopClaiming()

	var workers, rest, watch sync.WaitGroup
	workers.Go(func() { p.claimLoop(hard) })
	for range p.opt.workers {
		workers.Go(func() { p.workLoop(work) })
	}
	extend, stopExtend := context.WithCancel(hard)
	rest.Go(func() { p.extendLoop(extend) })
	rest.Go(func() { p.settleLoop(hard); stopExtend() })
	done := make(chan struct{})
	watch.Go(func() { p.watchSignals(ctx, signals, done, kill, cut) })

	workers.Wait()
	close(p.finished)
	rest.Wait()
	close(done)
	watch.Wait()

	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.fatal
}

// cutDelay is how long the answers of the server are waited for once handlers
// have been killed.
const cutDelay = 5 * time.Second

// watchSignals turns the first signal into a drain, and the second one or the
// end of the drain timeout into a kill.
func (p *pool) watchSignals(ctx context.Context, signals <-chan os.Signal, done <-chan struct{}, kill context.CancelCauseFunc, cut func()) {
	select {
	case <-signals:
		fmt.Fprintln(p.log, "weir work: draining; a second signal ends the running commands")
	case <-ctx.Done():
	case <-p.draining.Done():
	case <-done:
		return
	}
	p.stopClaiming()
	timeout := time.NewTimer(p.opt.drainTimeout)
	defer timeout.Stop()
	select {
	case <-signals:
	case <-timeout.C:
		fmt.Fprintln(p.log, "weir work: --drain-timeout is over; ending the running commands")
	case <-done:
		return
	}
	kill(errDrainTimeout)
	last := time.NewTimer(cutDelay)
	defer last.Stop()
	select {
	case <-last.C:
	case <-done:
	}
	cut()
}

func (p *pool) stopping() bool { return p.draining.Err() != nil }

// fail ends the pool because of err: it drains and run returns err.
func (p *pool) fail(err error) {
	p.mu.Lock()
	if p.mu.fatal == nil {
		p.mu.fatal = err
	}
	p.mu.Unlock()
	p.stopClaiming()
}

// workLoop runs handlers until the claimer has ended and nothing waits.
func (p *pool) workLoop(ctx context.Context) {
	for job := range p.waiting {
		select {
		case p.taken <- struct{}{}:
		default:
		}
		p.workOne(ctx, job)
	}
}

func (p *pool) workOne(ctx context.Context, job *heldJob) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.awaitGate(ctx)
	if p.stopping() || ctx.Err() != nil {
		p.finish(outcome{job: job})
		return
	}
	if !p.begin(job, cancel) {
		return
	}
	err := p.handler.run(ctx, &job.Job)
	switch {
	case err == nil:
		p.finish(outcome{job: job, ack: true, started: true})
	case errors.Is(err, errLeaseLost):
		p.forget(job)
	case errors.Is(err, errCannotStart):
		p.finish(outcome{job: job})
		p.fail(err)
	case errors.Is(err, errDrainTimeout): // killed by us: due again at once
		p.finish(outcome{job: job, started: true})
	default:
		fmt.Fprintf(p.log, "weir work: seq %d, delivery %d: %v\n", job.Seq, job.Deliveries, err)
		p.finish(outcome{job: job, started: true, retry: true})
	}
}

// begin marks the job as running unless its lease was lost while it waited.
func (p *pool) begin(job *heldJob, cancel context.CancelCauseFunc) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if job.lost || time.Now().After(job.deadline) {
		p.drop(job)
		return false
	}
	job.state, job.cancel = jobRunning, cancel
	if job.Deliveries > 1 {
		p.mu.tally.reclaimed++
	}
	return true
}

// finish hands a job to the settler.
func (p *pool) finish(o outcome) {
	p.mu.Lock()
	if o.job.lost && !o.ack {
		p.drop(o.job)
		p.mu.Unlock()
		return
	}
	o.job.state = jobSettling
	p.mu.Unlock()
	p.finished <- o
}

// forget lets go of a job whose lease is gone.
func (p *pool) forget(job *heldJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(job)
}

// drop is forget for a caller that holds mu. A later lease on the same message
// is another heldJob and stays.
func (p *pool) drop(job *heldJob) {
	p.mu.tally.lost++
	if p.mu.held[job.Seq] == job {
		delete(p.mu.held, job.Seq)
	}
}

func (p *pool) counts() tally {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.tally
}

// awaitGate waits while leases are in doubt, unless nothing may begin any more.
func (p *pool) awaitGate(ctx context.Context) {
	p.mu.Lock()
	gate := p.mu.gate
	p.mu.Unlock()
	if gate == nil {
		return
	}
	select {
	case <-gate:
	case <-p.draining.Done():
	case <-ctx.Done():
	}
}

// setAway is told how a call to the server ended. It says once when the server
// stops answering and once when it is back.
func (p *pool) setAway(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if leasesInDoubt(err) && p.mu.gate == nil {
		p.mu.gate = make(chan struct{})
	}
	if err == nil && p.mu.gate != nil {
		select {
		case p.doubt <- struct{}{}:
		default:
		}
	}
	if (err != nil) == p.mu.away {
		return
	}
	p.mu.away = err != nil
	if err != nil {
		fmt.Fprintf(p.log, "weir work: waiting for the server: %v\n", err)
		return
	}
	fmt.Fprintln(p.log, "weir work: the server is back")
}

// leasesInDoubt reports whether err may mean that the server restarts.
func leasesInDoubt(err error) bool {
	var gone *client.Unreachable
	return errors.As(err, &gone) || client.IsStatus(err, http.StatusServiceUnavailable)
}
