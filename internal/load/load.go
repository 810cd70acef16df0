// Package load puts load on a stream of its own and measures how long publishing takes, and how
// long until a message has been handled, as a program on the library sees it.
//
// At a constant rate a time counts from when the publish was meant to begin, not from when a
// publisher was free to begin it: what a slow server delays is part of the figure.
package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/latency"
)

const (
	// MinSize is the least size of a message, which says when it was to be published.
	MinSize = 16
	// stuckAfter is how long nothing may be handled before the rest is given up.
	stuckAfter = 15 * time.Second
	// pause is how long a publisher waits at most after a publish that failed, when no rate
	// says when to go on.
	pause = 100 * time.Millisecond
)

// Plan is what to do.
type Plan struct {
	Duration   time.Duration // of publishing
	Publishers int           // how many publish at once
	Workers    int           // how many handle at once
	Size       int           // of a message in bytes, at least MinSize
	Batch      int           // messages of one publish
	Rate       float64       // messages a second; 0: each publisher publishes as fast as it can
	Guard      weir.GuardMode
}

// Figures is what was measured. Published is what the stream has confirmed. Times of publish
// are of those calls that stored everything.
type Figures struct {
	Published int64 // messages
	Handled   int64 // deliveries
	Repeated  int64 // deliveries that were not the first of their message
	Refused   int64 // messages shed by the guard or the server
	Failed    int64 // messages of publishes that failed otherwise: some may be stored
	Unsent    int64 // messages that were to be sent and were not, for lack of free publishers
	First     error // the first failure

	Publishing time.Duration // how long was published
	Handling   time.Duration // from then on until the last message was handled

	Publish latency.Histogram
	Handle  latency.Histogram // from publish to handled
}

// Lost is how many messages were published and never handled.
func (f *Figures) Lost() int64 { return max(0, f.Published-(f.Handled-f.Repeated)) }

// schedule says when each publish of a constant rate is to begin.
type schedule struct {
	every float64 // ns between two publishes
	until time.Duration
	taken atomic.Int64
}

func newSchedule(p *Plan) *schedule {
	return &schedule{every: float64(p.Batch) / p.Rate * float64(time.Second), until: p.Duration}
}

// next is when the next publish is to begin, after the start; false after the last one.
func (s *schedule) next() (time.Duration, bool) {
	at := time.Duration(float64(s.taken.Add(1)-1) * s.every)
	return at, at < s.until
}

// left is how many publishes were to begin in the time that has passed and have not been
// taken by anybody.
func (s *schedule) left(passed time.Duration) int64 {
	due := int64(float64(min(passed, s.until)-1)/s.every) + 1
	return max(0, due-s.taken.Load())
}

// run is one run of a plan.
type run struct {
	Plan
	stream *weir.Stream
	pacing *schedule // nil: none
	start  time.Time

	handled  atomic.Int64
	progress atomic.Int64 // ns after the start of the last handling

	mu sync.Mutex
	Figures
}

// Run does what a plan says on an empty stream that nobody else uses. If the context ends, it
// stops to publish and handle and returns what it has. Its error is about the workers or what
// could not be started.
func Run(ctx context.Context, s *weir.Stream, p Plan) (*Figures, error) {
	quiet := slog.New(slog.DiscardHandler)
	r := &run{Plan: p, stream: s}
	if p.Rate > 0 {
		r.pacing = newSchedule(&p)
	}
	producer, err := weir.NewProducer(s, weir.ProducerConfig{Guard: p.Guard, Logger: quiet})
	if err != nil {
		return nil, err
	}
	pool, err := weir.NewPool(s, r.handle, weir.PoolConfig{Workers: p.Workers, MaxDeliveries: -1, HandlerTimeout: -1, Logger: quiet})
	if err != nil {
		return nil, errors.Join(err, producer.Close())
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	r.start = time.Now()
	worked := make(chan error, 1)
	go func() { worked <- pool.Run(working) }()
	r.publish(ctx, producer)
	err = producer.Close()
	ended := r.await(ctx, worked)
	stop()
	if ended == nil {
		ended = <-worked
	}
	if ctx.Err() != nil && errors.Is(ended, ctx.Err()) {
		ended = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Handled = r.handled.Load()
	r.Handling = max(r.Publishing, time.Duration(r.progress.Load()))
	return &r.Figures, errors.Join(err, ended)
}

// publish runs the publishers until the time is over.
func (r *run) publish(ctx context.Context, p *weir.Producer) {
	// What was begun in time is finished, within the time that a call may take.
	calls, hurry := context.WithTimeout(ctx, r.Duration+stuckAfter)
	defer hurry()
	ctx, cancel := context.WithTimeout(ctx, r.Duration)
	defer cancel()
	var all sync.WaitGroup
	for range r.Publishers {
		all.Go(func() { r.publisher(ctx, calls, p) })
	}
	all.Wait()
	r.Publishing = time.Since(r.start)
	if r.pacing != nil {
		r.Unsent += r.pacing.left(r.Publishing) * int64(r.Batch)
	}
}

// publisher publishes until its context ends.
func (r *run) publisher(ctx, calls context.Context, p *weir.Producer) {
	var took latency.Histogram
	msgs := make([]weir.Message, r.Batch)
	payload := make([]byte, r.Size*r.Batch)
	for i := range msgs {
		msgs[i].Data = payload[i*r.Size : (i+1)*r.Size : (i+1)*r.Size]
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.Publish.Merge(&took)
	}()
	for ctx.Err() == nil {
		meant := time.Since(r.start)
		if r.pacing != nil {
			at, ok := r.pacing.next()
			if !ok {
				return
			}
			if sleep(ctx, at-meant) != nil {
				r.note(0, 0, 0, int64(r.Batch), nil) // it was due before the end, or the run was stopped
				return
			}
			meant = at
		}
		for i := range msgs {
			binary.LittleEndian.PutUint64(msgs[i].Data, uint64(meant))
		}
		stored, refused, err := outcome(send(calls, p, msgs), r.Batch)
		if err == nil {
			took.Add(time.Since(r.start) - meant)
			r.note(int64(stored), 0, 0, 0, nil)
			continue
		}
		r.note(int64(stored), int64(refused), int64(r.Batch-stored-refused), 0, err)
		if r.pacing == nil {
			_ = sleep(ctx, retryAfter(err)) // the loop ends with the context
		}
	}
}

// send publishes as a program would: one message, or a batch.
func send(ctx context.Context, p *weir.Producer, msgs []weir.Message) error {
	if len(msgs) == 1 {
		return p.Publish(ctx, msgs[0])
	}
	return p.PublishBatch(ctx, msgs)
}

// outcome is what became of n messages that were published with this error.
func outcome(err error, n int) (stored, refused int, _ error) {
	if err == nil {
		return n, 0, nil
	}
	var some *weir.BatchError
	if !errors.As(err, &some) {
		if isRefusal(err) {
			refused = n
		}
		return 0, refused, err
	}
	for _, e := range some.Errs {
		switch {
		case e == nil:
			stored++
		case isRefusal(e):
			refused++
		}
	}
	return stored, refused, err
}

func isRefusal(err error) bool {
	var full *weir.QueueFullError
	return errors.As(err, &full)
}

// retryAfter is when to go on after an error.
func retryAfter(err error) time.Duration {
	var full *weir.QueueFullError
	if errors.As(err, &full) {
		return min(full.RetryAfter, pause)
	}
	return pause
}

// note counts what became of messages.
func (r *run) note(stored, refused, failed, unsent int64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Published += stored
	r.Refused += refused
	r.Failed += failed
	r.Unsent += unsent
	if failed > 0 && r.First == nil {
		r.First = err
	}
}

// handle is the work on a message: to look at the clock.
func (r *run) handle(_ context.Context, d *weir.Delivery) error {
	if len(d.Data) != r.Size {
		return fmt.Errorf("a message of %d bytes that is not of this run", len(d.Data))
	}
	now := time.Since(r.start)
	meant := time.Duration(binary.LittleEndian.Uint64(d.Data))
	r.mu.Lock()
	r.Handle.Add(now - meant)
	if d.Attempt > 1 {
		r.Repeated++
	}
	r.mu.Unlock()
	r.progress.Store(int64(now))
	r.handled.Add(1)
	return nil
}

// await waits until everything is handled, nothing moves any more, the context ends or the
// workers do, whose error it returns.
func (r *run) await(ctx context.Context, worked chan error) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	r.mu.Lock()
	published := r.Published
	r.mu.Unlock()
	for began := time.Since(r.start); r.handled.Load() < published; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-worked:
			if ctx.Err() != nil { // which ended them
				worked <- err
				return nil
			}
			return errors.Join(err, errors.New("the workers ended before everything was handled"))
		case <-tick.C:
		}
		if time.Since(r.start)-max(began, time.Duration(r.progress.Load())) > stuckAfter {
			return nil // Lost says how many
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
