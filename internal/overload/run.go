package overload

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

const (
	// sampling is how many samples are taken per deadline.
	sampling = 20
	// drainTimeout is how long the rest may make no progress: leases of lost workers
	// have to run out.
	drainTimeout = 45 * time.Second
)

// Target is where an arm runs.
type Target struct {
	// Open opens the arm's stream, each time with a connection of its own.
	Open func(context.Context) (*weir.Stream, error)
	// URL is what the processes of Spawn are to open.
	URL string
	// Spawn starts a process that runs Callers. It is nil if a stream cannot be used from
	// several processes.
	Spawn func(context.Context) (*Process, error)
	// Halt has the backend stand still for a time, and returns once it does. It is nil if
	// nobody can make it.
	Halt func(ctx context.Context, d time.Duration) error
}

// crowd is the callers of a run, here or in processes of their own.
type crowd interface {
	begin(ctx context.Context, start time.Time) error
	end() error
	state() (about, overrun int64)
}

// run is one arm in progress.
type run struct {
	Scenario
	arm     Arm
	offers  []offer
	ledger  *ledger
	id      uint64 // in every message, so that others on the stream are not counted
	start   time.Time
	over    chan struct{} // closed when handlers need no more time
	rush    func()        // closes it
	callers crowd
	streams []*weir.Stream
}

// Run lets one arm live through the scenario on an empty stream and judges it.
func Run(ctx context.Context, s Scenario, arm Arm, target Target) (*Result, error) {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.Variant == Paused && target.Halt == nil {
		return nil, errors.New("variant paused: this backend cannot be made to stand still")
	}
	if s.Processes > 0 && target.Spawn == nil {
		return nil, errors.New("processes: this backend cannot be used from several processes")
	}
	r := &run{Scenario: s, arm: arm, offers: s.offers(), id: uint64(time.Now().UnixNano()), over: make(chan struct{})}
	r.ledger = newLedger(len(r.offers), s.Deadline/bins)
	r.rush = sync.OnceFunc(func() { close(r.over) })
	defer r.close()
	crew, err := r.crew(ctx, target)
	if err != nil {
		return nil, err
	}
	defer crew.stop()
	defer r.rush()
	if err := r.gather(ctx, target); err != nil {
		return nil, err
	}
	r.start = time.Now()
	crew.work()
	if err := r.live(ctx, target); err != nil {
		return nil, err
	}
	if err := r.drain(ctx); err != nil {
		return nil, err
	}
	if err := crew.stop(); err != nil {
		return nil, fmt.Errorf("the workers of arm %s: %w", arm.Name, err)
	}
	r.trim(ctx)
	return r.judge(), nil
}

// gather finds the callers.
func (r *run) gather(ctx context.Context, target Target) error {
	if r.Processes > 0 {
		ps, err := r.startProcesses(ctx, target)
		if err == nil {
			r.callers = ps
		}
		return err
	}
	c := &callers{Scenario: r.Scenario, offers: r.offers, id: r.id, parts: 1, tell: r.ledger.called}
	r.callers = c
	return c.hire(r.arm.Config, func() (*weir.Stream, error) { return r.stream(ctx, target) })
}

// trim removes what is done from a stream that would keep it.
func (r *run) trim(ctx context.Context) {
	if t, ok := r.streams[0].Backend().(backend.Trimmer); ok {
		_, _ = t.Trim(ctx, backend.TrimRequest{OwnOnly: true}) // a stream that stays longer does no harm
	}
}

func (r *run) now() time.Duration { return time.Since(r.start) }

// stream opens one more stream, which close closes.
func (r *run) stream(ctx context.Context, target Target) (*weir.Stream, error) {
	s, err := target.Open(ctx)
	if err == nil {
		r.streams = append(r.streams, s)
	}
	return s, err
}

func (r *run) close() {
	if ps, ok := r.callers.(*processes); ok {
		ps.close()
	}
	for _, s := range r.streams {
		_ = s.Close() // all that counts is stored
	}
}

// live goes through the phases and waits for the last caller.
func (r *run) live(ctx context.Context, target Target) error {
	if err := r.callers.begin(ctx, r.start); err != nil {
		return err
	}
	sampled := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(sampled)
		r.sample(stop)
	}()
	halted := make(chan error, 1)
	go func() { halted <- r.halt(ctx, target) }()
	err := sleep(ctx, r.total()-r.now())
	close(stop)
	<-sampled
	return errors.Join(err, <-halted, r.callers.end())
}

// halt has the backend stand still while the disturbance lasts.
func (r *run) halt(ctx context.Context, target Target) error {
	if r.Variant != Paused {
		return nil
	}
	from, to := r.disturbance()
	if err := sleep(ctx, from-r.now()); err != nil {
		return err
	}
	if err := target.Halt(ctx, to-from); err != nil {
		return fmt.Errorf("making the backend stand still: %w", err)
	}
	return nil
}

// sample notes the state of the run from time to time.
func (r *run) sample(stop <-chan struct{}) {
	tick := time.NewTicker(r.Deadline / sampling)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			now := r.now()
			about, _ := r.callers.state()
			r.ledger.sample(now, r.able(now), about)
		case <-stop:
			return
		}
	}
}

// drain waits until what is stored has been handled; handlers take no more time.
func (r *run) drain(ctx context.Context) error {
	r.rush()
	last, since := -1, time.Now()
	for {
		left, done := r.ledger.left()
		if left == 0 {
			return nil
		}
		if done != last {
			last, since = done, time.Now()
		}
		if time.Since(since) > drainTimeout {
			return nil // the judge says what is lost
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// handle is the workers' handler.
func (r *run) handle(ctx context.Context, d *weir.Delivery) error {
	if len(d.Data) != 16 || binary.BigEndian.Uint64(d.Data) != r.id {
		r.ledger.stranger()
		return nil
	}
	i := int(binary.BigEndian.Uint64(d.Data[8:]))
	began := r.now()
	r.ledger.begin(i, began)
	took := r.offers[i].service
	if r.Variant == Slow && r.disturbed(began) {
		took *= slowFactor
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.over:
	case <-ctx.Done():
	}
	now := r.now()
	r.ledger.end(i, now, ctx.Err() == nil, now-r.offers[i].at <= r.Deadline)
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
