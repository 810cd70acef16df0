package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// plan says how a load runs.
type plan struct {
	publishers     int
	warmup, length time.Duration
}

// result is what a load prints. Latencies are in microseconds.
type result struct {
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

// publish is one synchronous send: it returns once the server has answered.
type publish func(ctx context.Context) error

// drive calls every publisher in a loop of its own, prints a line when the
// warm-up is over, counts what starts after it, and stops all of them at the
// first error.
func drive(ctx context.Context, p plan, publishers []publish) (result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var counting, stop atomic.Bool
	took := make([][]time.Duration, len(publishers))
	var wg sync.WaitGroup
	for i, send := range publishers {
		wg.Go(func() {
			mine := make([]time.Duration, 0, 1<<14)
			begin := time.Now()
			for !stop.Load() {
				counted := counting.Load()
				if err := send(ctx); err != nil {
					cancel(fmt.Errorf("publisher %d: %w", i, err))
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
	pause(ctx, p.warmup)
	fmt.Println("counting")
	counting.Store(true)
	begin := time.Now()
	pause(ctx, p.length)
	stop.Store(true)
	wg.Wait()
	elapsed := time.Since(begin)
	if err := context.Cause(ctx); err != nil {
		return result{}, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return result{}, errors.New("nothing was published: give -for more time")
	}
	slices.Sort(all)
	return result{
		Ops:     int64(len(all)),
		Seconds: elapsed.Seconds(),
		P50:     micros(all[len(all)/2]),
		P99:     micros(all[len(all)*99/100]),
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
