package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
)

// stream is the key all loads use.
const stream = "bench"

func (c config) open(ctx context.Context) (*weir.Stream, error) {
	if c.url != "" {
		return open.URL(ctx, c.url)
	}
	return open.URL(ctx, "redis://"+c.addr+"/0?stream="+stream+"&group=bench")
}

// unlimited is a guard at work whose limits are never reached. Nobody works on the stream,
// which adaptive would take for an overload.
var unlimited = weir.ProducerConfig{Guard: weir.GuardStatic, MaxDepth: 1 << 40, DisableLoadShedding: true}

func publish(ctx context.Context, c config) (result, error) {
	var keys atomic.Int64
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	return c.published(ctx, func(p *weir.Producer) (step, int) {
		return func(ctx context.Context) error {
			m := weir.Message{Data: c.payload}
			if c.keyed {
				m.IdempotencyKey = run + "-" + strconv.FormatInt(keys.Add(1), 10)
			}
			return p.Publish(ctx, m)
		}, 1
	})
}

func publishBatch(ctx context.Context, c config) (result, error) {
	msgs := make([]weir.Message, c.batch)
	for i := range msgs {
		msgs[i].Data = c.payload
	}
	return c.published(ctx, func(p *weir.Producer) (step, int) {
		return func(ctx context.Context) error { return p.PublishBatch(ctx, msgs) }, c.batch
	})
}

// published runs what make returns over a producer on an empty stream.
func (c config) published(ctx context.Context, make func(*weir.Producer) (do step, worth int)) (result, error) {
	if err := c.empty(ctx); err != nil {
		return result{}, err
	}
	s, err := c.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	config := unlimited
	config.DisableGathering = c.apart
	p, err := weir.NewProducer(s, config)
	if err != nil {
		return result{}, err
	}
	defer p.Close()
	do, worth := make(p)
	r, err := c.drive(ctx, do)
	r.Ops *= int64(worth)
	return r, err
}

// step is one synchronous call.
type step func(ctx context.Context) error

// drive repeats do in all goroutines, prints a line when the warm-up is over,
// counts what starts after it, and stops at the first error.
func (c config) drive(ctx context.Context, do step) (result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var counting, stop atomic.Bool
	took := make([][]time.Duration, c.goroutines)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			mine := make([]time.Duration, 0, 1<<14)
			for begin := time.Now(); !stop.Load(); {
				counted := counting.Load()
				if err := do(ctx); err != nil {
					cancel(fmt.Errorf("goroutine %d: %w", i, err))
					return
				}
				end := time.Now()
				if counted {
					mine = append(mine, end.Sub(begin))
				}
				begin = end
			}
			took[i] = mine
		})
	}
	pause(ctx, c.warmup)
	fmt.Println("counting")
	counting.Store(true)
	begin := time.Now()
	pause(ctx, c.length)
	stop.Store(true)
	all.Wait()
	elapsed := time.Since(begin)
	if err := context.Cause(ctx); err != nil {
		return result{}, err
	}
	sorted := slices.Concat(took...)
	if len(sorted) == 0 {
		return result{}, errors.New("nothing was done: give -for more time")
	}
	slices.Sort(sorted)
	return result{
		Ops: int64(len(sorted)), Seconds: elapsed.Seconds(),
		P50: micros(sorted[len(sorted)/2]), P99: micros(sorted[len(sorted)*99/100]),
	}, nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
