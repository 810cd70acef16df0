package weir

import (
	"context"
	"time"

	"github.com/weirmq/weir/backend"
)

// Tracing is called at the steps that single messages go through, so that a trace can be
// made of them; nil functions are skipped, and cost nothing. Package telemetry/tracing
// makes OpenTelemetry's spans. Like Hooks, they run synchronously, must be quick and must
// not call back into weir.
//
// A trace travels in the headers of its message, such as traceparent, which every backend
// keeps: through retries, to the dead letters and back.
type Tracing struct {
	// Publish begins a publish. It returns the context and the messages to go on with,
	// which may have more headers; it must not change msgs or their headers. end is called
	// once, with what the publish returns: how many of the first messages it was about,
	// and its error.
	Publish func(ctx context.Context, s StreamName, msgs []Message) (_ context.Context, _ []Message, end func(messages int, err error))
	// Waited is called after a publish was delayed. ctx has the values of Publish's.
	Waited func(ctx context.Context, s StreamName, w Wait)
	// Attempt begins a delivery, right before its handler, which gets the context that it
	// returns. reclaimed says that the message was taken over from another worker. end is
	// called with the handler's error.
	Attempt func(ctx context.Context, s StreamName, d *Delivery, reclaimed bool) (_ context.Context, end func(err error))
	// Settled is called when a delivery ends. ctx is Attempt's, or the one of Pool.Run if
	// no handler began.
	Settled func(ctx context.Context, s StreamName, e Ending)
	// Buried is called for a message that a claim moved to the dead letters, because it
	// had been delivered as often as allowed.
	Buried func(ctx context.Context, s StreamName, l *DeadLetter)
	// Redriven is called when a dead letter was sent back, or could not be.
	Redriven func(ctx context.Context, s StreamName, l *DeadLetter, began time.Time, err error)
}

// Wait is one delay of a publish.
type Wait struct {
	Kind  SlowKind
	Why   string // what it waited for, for people
	Began time.Time
	Err   error // why it ended early; nil: it did not
}

// Ending is how a delivery ended.
type Ending struct {
	Lease   backend.Lease
	Headers map[string]string // the message's; nil if its handler began
	Outcome Outcome
	Began   time.Time     // when the backend was told
	Delay   time.Duration // with Retried: how long nobody may claim it
	Reason  string        // with Dead and Expired: why
	Err     error         // what the handler returned
}

// jobTrace is what a traced job has in addition.
type jobTrace struct {
	ctx       context.Context // Attempt's; nil: no handler began
	told      time.Time
	delay     time.Duration
	reason    string
	reclaimed bool
}

// begun calls Tracing.Publish.
func (t *Tracing) begun(ctx context.Context, s StreamName, msgs []Message) (context.Context, []Message, func(int, error)) {
	if t.Publish == nil {
		return ctx, msgs, func(int, error) {}
	}
	return t.Publish(ctx, s, msgs)
}

// attempt begins the delivery of a traced job.
func (p *Pool) attempt(j *job, d *Delivery) (context.Context, func(error)) {
	ctx, end := context.Context(j.ctx), func(error) {}
	if begin := p.cfg.Tracing.Attempt; begin != nil {
		ctx, end = begin(ctx, p.name, d, j.trace.reclaimed)
	}
	p.mu.Lock()
	j.trace.ctx = ctx
	p.mu.Unlock()
	return ctx, end
}

// telling notes that the backend is about to be told what becomes of traced jobs.
func telling(jobs []*job) {
	if len(jobs) == 0 || jobs[0].trace == nil {
		return
	}
	now := time.Now()
	for _, j := range jobs {
		j.trace.told = now
	}
}

// traceEnd calls Tracing.Settled for jobs that are about to be let go of.
func (p *Pool) traceEnd(jobs []*job, lost []string, ok bool, o Outcome) {
	if p.cfg.Tracing.Settled == nil || jobs[0].trace == nil {
		return
	}
	gone := setOf(lost)
	contexts, endings := make([]context.Context, len(jobs)), make([]Ending, len(jobs))
	p.mu.Lock()
	for i, j := range jobs {
		e := Ending{Lease: j.lease, Outcome: o, Began: j.trace.told, Delay: j.trace.delay, Reason: j.trace.reason, Err: j.err}
		if !ok || j.superseded || gone[j.lease.ID] {
			e.Outcome = Unsettled
		}
		if contexts[i] = j.trace.ctx; contexts[i] == nil {
			contexts[i] = p.work
			if j.delivery != nil {
				e.Headers = j.delivery.Headers
			}
		}
		endings[i] = e
	}
	p.mu.Unlock()
	for i, e := range endings {
		p.cfg.Tracing.Settled(contexts[i], p.name, e)
	}
}
