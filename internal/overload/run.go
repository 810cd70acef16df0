package overload

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
	"github.com/weirmq/weir/backend"
)

const (
	// maxCallers bounds how many callers wait at once; any more are an overrun of the
	// generator, which spoils the run.
	maxCallers = 50_000
	// sampling is how many samples are taken per deadline.
	sampling = 20
	// drainTimeout is how long the rest may make no progress: leases of lost workers
	// have to run out.
	drainTimeout = 45 * time.Second
)

// Opener opens the arm's stream, each time with a connection of its own.
type Opener func(context.Context) (*weir.Stream, error)

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
	callers atomic.Int64
	overrun atomic.Int64
	streams []*weir.Stream
}

// Run lets one arm live through the scenario on an empty stream and judges it.
func Run(ctx context.Context, s Scenario, arm Arm, open Opener) (*Result, error) {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	r := &run{Scenario: s, arm: arm, offers: s.offers(), id: uint64(time.Now().UnixNano()), over: make(chan struct{})}
	r.ledger = newLedger(len(r.offers))
	r.rush = sync.OnceFunc(func() { close(r.over) })
	defer r.close()
	producers, err := r.producers(ctx, open)
	if err != nil {
		return nil, err
	}
	crew, err := r.crew(ctx, open)
	if err != nil {
		return nil, err
	}
	defer crew.stop()
	defer r.rush()
	r.start = time.Now()
	crew.work()
	if err := r.live(ctx, producers); err != nil {
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

// trim removes what is done from a stream that would keep it.
func (r *run) trim(ctx context.Context) {
	if t, ok := r.streams[0].Backend().(backend.Trimmer); ok {
		_, _ = t.Trim(ctx, backend.TrimRequest{OwnOnly: true}) // a stream that stays longer does no harm
	}
}

func (r *run) now() time.Duration { return time.Since(r.start) }

// stream opens one more stream, which close closes.
func (r *run) stream(ctx context.Context, open Opener) (*weir.Stream, error) {
	s, err := open(ctx)
	if err == nil {
		r.streams = append(r.streams, s)
	}
	return s, err
}

func (r *run) close() {
	for _, s := range r.streams {
		_ = s.Close() // all that counts is stored
	}
}

func (r *run) producers(ctx context.Context, open Opener) ([]*weir.Producer, error) {
	all := make([]*weir.Producer, r.Producers)
	for i := range all {
		s, err := r.stream(ctx, open)
		if err != nil {
			return nil, err
		}
		c := r.arm.Config
		c.Logger = slog.New(slog.DiscardHandler)
		if all[i], err = weir.NewProducer(s, c); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// live goes through the phases and waits for the last caller.
func (r *run) live(ctx context.Context, producers []*weir.Producer) error {
	sampled := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(sampled)
		r.sample(stop)
	}()
	var callers sync.WaitGroup
	err := r.generate(ctx, producers, &callers)
	if err == nil {
		err = sleep(ctx, r.total()-r.now())
	}
	close(stop)
	<-sampled
	callers.Wait()
	for _, p := range producers {
		err = errors.Join(err, p.Close())
	}
	return err
}

// generate starts a caller at each offer's time.
func (r *run) generate(ctx context.Context, producers []*weir.Producer, callers *sync.WaitGroup) error {
	for i := range r.offers {
		if d := r.offers[i].at - r.now(); d > 0 {
			if err := sleep(ctx, d); err != nil {
				return err
			}
		}
		if r.callers.Add(1) > maxCallers {
			r.callers.Add(-1)
			r.overrun.Add(1)
			continue
		}
		callers.Go(func() {
			defer r.callers.Add(-1)
			r.call(ctx, producers[i%len(producers)], i)
		})
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
			r.ledger.sample(now, r.able(now), r.callers.Load())
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

// payload is what a message carries: the run and the offer's number.
func (r *run) payload(i int) []byte {
	data := binary.BigEndian.AppendUint64(make([]byte, 0, 16), r.id)
	return binary.BigEndian.AppendUint64(data, uint64(i))
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
	if r.Variant == Slow && r.inPlateau(began) {
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
