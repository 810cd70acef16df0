package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir"
)

// halfRounds is how often the two ways are measured in turn.
const halfRounds = 4

// half compares the p99 of a publish that is gathered with that of one that is not, where
// both get half of the load that goroutines without gathering can make.
func half(ctx context.Context, c config) (result, error) {
	if err := c.empty(ctx); err != nil {
		return result{}, err
	}
	s, err := c.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	var producers [2]*weir.Producer
	for i := range producers {
		config := unlimited
		config.DisableGathering = i == 1
		if producers[i], err = weir.NewProducer(s, config); err != nil {
			return result{}, err
		}
		defer producers[i].Close()
	}
	full, err := c.drive(ctx, func(ctx context.Context) error { return producers[1].Publish(ctx, weir.Message{Data: c.payload}) })
	if err != nil {
		return result{}, err
	}
	between := time.Duration(2 * float64(c.goroutines) * full.Seconds / float64(full.Ops) * float64(time.Second))
	var took [2][]time.Duration
	for range halfRounds {
		for i, p := range producers {
			some, err := c.paced(ctx, p, between)
			if err != nil {
				return result{}, err
			}
			took[i] = append(took[i], some...)
		}
	}
	var p99 [2]time.Duration
	for i := range took {
		if len(took[i]) == 0 {
			return result{}, errors.New("nothing was published: give -for more time")
		}
		slices.Sort(took[i])
		p99[i] = took[i][len(took[i])*99/100]
	}
	return result{
		Value: float64(p99[0]) / float64(p99[1]),
		Note:  fmt.Sprintf("%s and %s, at %.0f a second", p99[0].Round(time.Microsecond), p99[1].Round(time.Microsecond), float64(full.Ops)/full.Seconds/2),
	}, nil
}

// paced publishes from all goroutines, each once in every interval on average, and returns
// how long each took.
func (c config) paced(ctx context.Context, p *weir.Producer, between time.Duration) ([]time.Duration, error) {
	end := time.Now().Add(c.length / (2 * halfRounds))
	took := make([][]time.Duration, c.goroutines)
	errs := make([]error, c.goroutines)
	var all sync.WaitGroup
	for i := range took {
		all.Go(func() {
			for next := time.Now(); errs[i] == nil; {
				next = next.Add(time.Duration(rand.ExpFloat64() * float64(between)))
				if next.After(end) {
					return
				}
				pause(ctx, time.Until(next))
				begin := time.Now()
				errs[i] = p.Publish(ctx, weir.Message{Data: c.payload})
				took[i] = append(took[i], time.Since(begin))
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(took...), nil
}
