package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir"
)

const (
	tries      = 4      // calls of a caller
	maxCallers = 50_000 // at once; any more do not come
	keys       = 1000
)

// tiers are the priorities of the offers and their shares.
var tiers = []struct {
	priority weir.Priority
	share    float64
}{{weir.Critical, 0.1}, {weir.High, 0.2}, {weir.Normal, 0.3}, {weir.Low, 0.4}}

// flood is the callers and workers of a run. Its memory does not grow with time: what
// became of an offer is two bits.
type flood struct {
	options
	place *place
	start time.Time
	over  chan struct{} // closed when handlers need no more time

	mu           sync.Mutex
	stored, done []uint64 // by offer
	errs         map[string]int

	callers                           atomic.Int64
	offered, overrun                  int
	kept, refused, vain, unknown      atomic.Int64
	failed, handled, inTime, repeated atomic.Int64
	late                              atomic.Int64 // callers that began more than a tenth of the deadline late
}

func newFlood(o options, p *place) *flood {
	most := int(1.1*o.load*float64(o.workers)/o.service.Seconds()*o.length.Seconds()) + 1000
	return &flood{options: o, place: p, over: make(chan struct{}), stored: make([]uint64, most/64+1), done: make([]uint64, most/64+1), errs: map[string]int{}}
}

// run floods, and lets the workers finish what was stored.
func (f *flood) run(ctx context.Context) error {
	pool, err := weir.NewPool(f.place.stream, f.handle, weir.PoolConfig{Workers: f.workers, Logger: slog.New(slog.DiscardHandler), HandlerTimeout: -1})
	if err != nil {
		return err
	}
	producer, err := weir.NewProducer(f.place.stream, weir.ProducerConfig{
		Guard: weir.GuardAdaptive, WaitSLO: f.deadline, DisableLoadShedding: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	life, stop := context.WithCancel(context.Background())
	worked := make(chan error, 1)
	go func() { worked <- pool.Run(life) }()
	f.start = time.Now()
	err = f.offer(ctx, producer)
	close(f.over)
	err = errors.Join(err, producer.Close())
	f.drain(ctx)
	stop()
	return errors.Join(err, <-worked)
}

// offer lets callers come until the time is over, and waits for the last one.
func (f *flood) offer(ctx context.Context, p *weir.Producer) error {
	random := rand.New(rand.NewPCG(f.seed, 1))
	gap := f.service.Seconds() / float64(f.workers) / f.load * float64(time.Second)
	var all sync.WaitGroup
	defer all.Wait()
	for at := time.Duration(0); at < f.length && f.offered < 64*len(f.stored); at += time.Duration(random.ExpFloat64() * gap) {
		if d := at - time.Since(f.start); d > 0 {
			if err := sleep(ctx, d); err != nil {
				return err
			}
		}
		i := f.offered
		f.offered++
		m := weir.Message{Data: number(i), FairKey: fmt.Sprintf("user-%d", random.IntN(keys)), Priority: weir.Low}
		level := random.Float64()
		for _, t := range tiers {
			if level -= t.share; level < 0 {
				m.Priority = t.priority
				break
			}
		}
		if f.callers.Load() >= maxCallers {
			f.overrun++
			continue
		}
		m.Data = binary.BigEndian.AppendUint64(m.Data, uint64(at))
		f.callers.Add(1)
		all.Go(func() {
			defer f.callers.Add(-1)
			f.call(ctx, p, m, i, at)
		})
	}
	return nil
}

// call is a caller.
func (f *flood) call(ctx context.Context, p *weir.Producer, m weir.Message, i int, at time.Duration) {
	ctx, cancel := context.WithDeadline(ctx, f.start.Add(at+f.deadline))
	defer cancel()
	if time.Since(f.start)-at > f.deadline/10 {
		f.late.Add(1)
	}
	for try := 1; ; try++ {
		err := p.Publish(ctx, m)
		var full *weir.QueueFullError
		wait := f.deadline / 20 << (try - 1)
		switch {
		case err == nil:
			f.kept.Add(1)
			f.mark(f.stored, i)
			f.place.stored(context.WithoutCancel(ctx))
			return
		case errors.As(err, &full):
			f.refused.Add(1)
			wait = max(wait, full.RetryAfter)
		case errors.Is(err, weir.ErrOutcomeUnknown):
			f.unknown.Add(1)
			return
		case ctx.Err() != nil:
			f.vain.Add(1)
			return
		default:
			f.fail(err)
		}
		if try == tries || sleep(ctx, wait+rand.N(wait)) != nil {
			return
		}
	}
}

// handle is the workers' handler.
func (f *flood) handle(ctx context.Context, d *weir.Delivery) error {
	if len(d.Data) != 16 {
		return weir.Poison(fmt.Errorf("%d bytes are no offer of this run", len(d.Data)))
	}
	i, at := int(binary.BigEndian.Uint64(d.Data)), time.Duration(binary.BigEndian.Uint64(d.Data[8:]))
	timer := time.NewTimer(time.Duration(rand.ExpFloat64() * float64(f.service)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.mark(f.done, i) {
		f.repeated.Add(1)
		return nil
	}
	f.handled.Add(1)
	if now := time.Since(f.start); now <= f.length && now-at <= f.deadline {
		f.inTime.Add(1)
	}
	return nil
}

// mark sets a bit and reports whether it was set.
func (f *flood) mark(bits []uint64, i int) (was bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was = bits[i/64]>>(i%64)&1 == 1
	bits[i/64] |= 1 << (i % 64)
	return was
}

func (f *flood) fail(err error) {
	f.failed.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errs) < 20 {
		f.errs[err.Error()]++
	}
}

// lost is how many offers were stored that nobody has handled.
func (f *flood) lost() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, word := range f.stored {
		for left := word &^ f.done[i]; left != 0; left &= left - 1 {
			n++
		}
	}
	return n
}

// drain waits until all that was stored is handled, or nothing happens any more.
func (f *flood) drain(ctx context.Context) {
	last, since := -1, time.Now()
	for n := f.lost(); n > 0 && time.Since(since) < time.Minute; n = f.lost() {
		if n != last {
			last, since = n, time.Now()
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

func (f *flood) String() string {
	able := float64(f.workers) / f.service.Seconds() * f.length.Seconds()
	return fmt.Sprintf("offered %d (%d callers too many, %d late), stored %d, refused %d calls, waited in vain %d, unknown %d, errors %d\n"+
		"handled %d, in time %d: goodput %.1f %%; twice %d, lost %d",
		f.offered, f.overrun, f.late.Load(), f.kept.Load(), f.refused.Load(), f.vain.Load(), f.unknown.Load(), f.failed.Load(),
		f.handled.Load(), f.inTime.Load(), 100*float64(f.inTime.Load())/able, f.repeated.Load(), f.lost())
}

// verdict is an error if something is lost, or never worked.
func (f *flood) verdict(ctx context.Context) (err error) {
	for text, n := range f.errs {
		err = errors.Join(err, fmt.Errorf("%d calls failed: %s", n, text))
	}
	if n := f.lost(); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d messages are lost", n))
	}
	if f.kept.Load() == 0 || f.refused.Load()+f.vain.Load() == 0 {
		err = errors.Join(err, errors.New("the run was no flood: nothing was stored, or nothing kept out"))
	}
	left, want, restErr := f.place.rest(ctx)
	slack := f.unknown.Load() + f.place.failed.Load() // they may be stored
	fmt.Printf("%d messages still wait beside it; %d were moved, %d stored\n", left, f.place.moved.Load(), f.place.added.Load())
	if restErr == nil && (left < want || left > want+slack) {
		restErr = fmt.Errorf("%d messages wait beside it, of which there should be %d", left, want)
	}
	return errors.Join(err, restErr)
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
