package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// crew is two pools and a publisher on three shards, each of which they reach or not.
type crew struct {
	*testing.T
	cellar  *cellar
	handles [3][]*backendtest.Fake // of the pools and of the publisher, by shard

	mu      sync.Mutex
	random  *rand.Rand
	running map[string][]context.Context // of the handlers of a message
	handled map[string]bool
}

func (c *crew) open(who int) backend.Backend {
	return c.cellar.openWith(c.T, 3, func(_ int, f *backendtest.Fake) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.handles[who] = append(c.handles[who], f)
	})
}

// handle takes up to longest, and sees to it that nobody else has the message.
func (c *crew) handle(ctx context.Context, d *weir.Delivery, longest time.Duration) error {
	time.Sleep(10 * time.Millisecond) // who loses the lease at this moment has learned of it by then
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.mu.Lock()
	for _, other := range c.running[d.ID] {
		if other.Err() == nil {
			c.Errorf("after %s message %s has a handler that was not stopped, and begins another one (attempt %d)", time.Since(epoch), d.ID, d.Attempt)
		}
	}
	c.running[d.ID] = append(c.running[d.ID], ctx)
	takes, fails := time.Duration(c.random.Int64N(int64(time.Second))), c.random.IntN(10) == 0
	if c.random.IntN(3) == 0 {
		takes = time.Duration(c.random.Int64N(int64(longest)))
	}
	c.mu.Unlock()
	var err error
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[d.ID] = slices.DeleteFunc(c.running[d.ID], func(other context.Context) bool { return other == ctx })
	if err == nil && fails {
		err = errors.New("fails")
	}
	c.handled[string(d.Data)] = c.handled[string(d.Data)] || err == nil
	return err
}

// epoch is when a bubble's time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// disturb lets calls of one shard go wrong for a while, for one of the crew or for all.
func (c *crew) disturb() {
	c.mu.Lock()
	defer c.mu.Unlock()
	fault := []backendtest.Fault{
		{Hang: true}, {Err: backend.ErrUnavailable}, {Delay: 5 * time.Second, Err: backend.ErrUnavailable},
		{LoseAnswer: true}, {LoseAnswer: true, Hang: true}, {Late: 2 * time.Second},
	}[c.random.IntN(6)]
	number, whom, all := c.random.IntN(3), c.random.IntN(3), c.random.IntN(3) == 0
	lasts := time.Duration(c.random.Int64N(int64([]time.Duration{3 * time.Second, 90 * time.Second}[c.random.IntN(2)])))
	for who := range c.handles {
		for _, op := range everything {
			if all || who == whom && c.random.IntN(4) > 0 {
				time.AfterFunc(lasts, c.handles[who][number].Inject(op, fault))
			}
		}
	}
}

// Whatever becomes of the shards, all that was stored is handled, and no handler begins while
// another one has the message and has not been told to stop.
func TestPoolsOfShardsThatComeAndGo(t *testing.T) {
	for seed := range uint64(16) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) { comeAndGo(t, seed) })
		})
	}
}

func comeAndGo(t *testing.T, seed uint64) {
	c := &crew{T: t, cellar: &cellar{}, random: rand.New(rand.NewPCG(seed, 2)), running: map[string][]context.Context{}, handled: map[string]bool{}}
	reclaim := []time.Duration{6 * time.Second, 30 * time.Second, time.Minute}[seed%3]
	ctx, cancel := context.WithCancel(t.Context())
	var pools, publisher sync.WaitGroup
	for who := range 2 {
		pool, err := weir.NewPool(weir.New(c.open(who)), func(ctx context.Context, d *weir.Delivery) error { return c.handle(ctx, d, 2*reclaim) },
			weir.PoolConfig{Workers: 10, ReclaimAfter: reclaim, MaxDeliveries: -1, RetryMax: time.Minute, Logger: quiet}) // one that fails twice comes again before the end
		if err != nil {
			t.Fatal(err)
		}
		pools.Go(func() { _ = pool.Run(ctx) })
	}
	b := c.open(2)
	stored := map[string]bool{}
	end := time.Now().Add(20 * time.Minute)
	publisher.Go(func() {
		for i := 0; time.Now().Before(end); i++ {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			m := backend.Message{Data: fmt.Append(nil, i)}
			if i%3 == 0 {
				m.IdempotencyKey = string(m.Data)
			}
			if _, err := b.Append(ctx, []backend.Message{m}); err == nil {
				stored[string(m.Data)] = true
			}
			cancel()
			time.Sleep(time.Second)
		}
	})
	for time.Now().Before(end) {
		c.disturb()
		time.Sleep(10 * time.Second)
	}
	publisher.Wait()
	time.Sleep(10 * time.Minute)
	c.mu.Lock()
	for m := range stored {
		if !c.handled[m] {
			t.Errorf("%s was stored and not handled", m)
		}
	}
	c.mu.Unlock()
	if stats, err := b.Stats(t.Context()); err != nil || stats.Pending != 0 || *stats.Lag != 0 || len(stored) < 400 {
		t.Errorf("of %d messages are left: %+v, %v", len(stored), stats, err)
	}
	cancel()
	pools.Wait()
}
