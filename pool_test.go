package weir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// quiet are settings with a log that goes nowhere.
func quiet(c PoolConfig) PoolConfig {
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Consumer == "" {
		c.Consumer = "me"
	}
	return c
}

// testPool is a pool under way on a fake.
type testPool struct {
	*Pool
	t    *testing.T
	fake *backendtest.Fake
	end  context.CancelFunc
	done chan error
}

// startPool runs a pool; it is ended with the test if the test does not.
func startPool(t *testing.T, f *backendtest.Fake, h Handler, c PoolConfig) *testPool {
	t.Helper()
	p, err := NewPool(New(f), h, quiet(c))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tp := &testPool{Pool: p, t: t, fake: f, end: cancel, done: make(chan error, 1)}
	go func() { tp.done <- p.Run(ctx) }()
	return tp
}

// finish ends the pool and checks that it ended well.
func (p *testPool) finish() {
	p.t.Helper()
	p.end()
	if err := <-p.done; err != nil {
		p.t.Errorf("Run returned %v", err)
	}
}

func publish(t *testing.T, f *backendtest.Fake, n int) {
	t.Helper()
	messages := make([]Message, n)
	for i := range messages {
		messages[i].Data = fmt.Appendf(nil, "%d", i)
	}
	if _, err := f.Append(context.Background(), messages); err != nil {
		t.Fatal(err)
	}
}

// expect compares counts of the pool.
func (p *testPool) expect(want PoolStats) {
	p.t.Helper()
	got := p.Stats()
	got.Workers, got.Busy, got.Waiting, got.Stuck = 0, 0, 0, 0
	got.Reclaimed, got.Redelivered = want.Reclaimed, want.Redelivered
	if got != want {
		p.t.Errorf("counts are %+v, want %+v", got, want)
	}
}

func nothing(context.Context, *Delivery) error { return nil }

func TestPoolHandlesAcksAndDrains(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1000)
		var seen sync.Map
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if _, twice := seen.LoadOrStore(d.ID, true); twice {
				t.Errorf("message %s came twice", d.ID)
			}
			return nil
		}, PoolConfig{Workers: 4})
		time.Sleep(time.Second)
		p.expect(PoolStats{Acked: 1000})
		publish(t, f, 5)
		time.Sleep(10 * time.Millisecond)
		p.finish()
		p.expect(PoolStats{Acked: 1005})
		if n := len(f.Acked()); n != 1005 {
			t.Errorf("the backend has %d acks", n)
		}
	})
}

func TestPoolRunsOnceAndChecksItsConfig(t *testing.T) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	if _, err := NewPool(New(f), nothing, PoolConfig{Batch: 5000}); err == nil {
		t.Error("a batch of 5000 is accepted")
	}
	if _, err := NewPool(New(f), nil, PoolConfig{}); err == nil {
		t.Error("a pool without a handler is accepted")
	}
	if _, err := NewPool(New(f), nothing, PoolConfig{DeadLetter: f.Info().Stream}); err == nil {
		t.Error("dead letters in the stream itself are accepted")
	}
	bubble.Run(t, func(t *testing.T) {
		p := startPool(t, backendtest.NewFake(backendtest.FakeOptions{}), nothing, PoolConfig{})
		synctest.Wait()
		if p.Run(t.Context()) == nil {
			t.Error("a second Run is accepted")
		}
		p.finish()
	})
}

func TestPoolHoldsNoMoreThanAMessagePerWorkerAndABatch(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 100)
		var now, most atomic.Int64
		p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(time.Second)
			return nil
		}, PoolConfig{Workers: 3, Batch: 10})
		synctest.Wait()
		stats, _ := f.Stats(t.Context())
		if stats.Pending != 4 || now.Load() != 3 {
			t.Errorf("%d messages are held and %d handled at once, want 4 and 3: how long they take is not known", stats.Pending, now.Load())
		}
		for range 400 {
			time.Sleep(100 * time.Millisecond)
			if s, _ := f.Stats(t.Context()); s.Pending > 13+3 { // 3 may wait for their ack
				t.Fatalf("%d messages are held", s.Pending)
			}
		}
		p.expect(PoolStats{Acked: 100})
		if most.Load() != 3 {
			t.Errorf("%d handlers at once", most.Load())
		}
		p.finish()
	})
}

func TestPoolGivesBackAtOnceWhatItHasNotBegun(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 20)
		p := startPool(t, f, func(context.Context, *Delivery) error { time.Sleep(20 * time.Second); return nil }, PoolConfig{Workers: 2})
		synctest.Wait()
		stats, _ := f.Stats(t.Context())
		held := stats.Pending
		p.end()
		time.Sleep(time.Millisecond)
		got, err := f.Again().Claim(t.Context(), backend.ClaimRequest{Consumer: "other", Max: 100, ReclaimAfter: time.Minute})
		if err != nil || len(got.Deliveries) != 18 {
			t.Fatalf("another claimer gets %d messages, want the 18 that were not begun; %v", len(got.Deliveries), err)
		}
		for _, d := range got.Deliveries {
			if d.Attempt != 1 {
				t.Errorf("message %s, never begun, is at delivery %d", d.ID, d.Attempt)
			}
		}
		start := time.Now()
		p.finish()
		if took := time.Since(start); took > 21*time.Second {
			t.Errorf("the drain took %s, its handlers 20 s", took)
		}
		p.expect(PoolStats{Acked: 2, Returned: uint64(held) - 2})
	})
}

func TestPoolCancelsHandlersThatOutlastTheDrain(t *testing.T) {
	for name, second := range map[string]bool{"drain timeout": false, "second signal": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 1)
				p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}, PoolConfig{Workers: 1, DrainTimeout: 7 * time.Second})
				synctest.Wait()
				start, want := time.Now(), 7*time.Second
				p.end()
				if second {
					want = time.Second
					time.Sleep(want)
					p.Cancel()
				}
				p.finish()
				if took := time.Since(start); took < want || took > want+100*time.Millisecond {
					t.Errorf("Run returned after %s, want %s", took, want)
				}
				p.expect(PoolStats{Retried: 1})
				got, _ := f.Again().Claim(t.Context(), backend.ClaimRequest{Consumer: "other", Max: 1, ReclaimAfter: time.Minute})
				if len(got.Deliveries) != 1 || got.Deliveries[0].Attempt != 2 {
					t.Errorf("another claimer gets %+v at once, want the message at delivery 2", got)
				}
			})
		})
	}
}

func TestPoolRetriesWithBackoffAndThenBuries(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		var mu sync.Mutex
		var at []time.Time
		p := startPool(t, f, func(context.Context, *Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			return fmt.Errorf("failure %d", len(at))
		}, PoolConfig{Workers: 2, RetryBase: 10 * time.Second, MaxDeliveries: 4, Block: time.Second})
		time.Sleep(3 * time.Minute)
		p.finish()
		if len(at) != 4 {
			t.Fatalf("the handler ran %d times, want 4", len(at))
		}
		for i := 1; i < 4; i++ {
			base := 10 * time.Second << (i - 1)
			if gap := at[i].Sub(at[i-1]); gap < base/2 || gap > base*3/2+10*time.Millisecond {
				t.Errorf("delivery %d came %s after the one before, want %s ±50 %%", i+1, gap, base)
			}
		}
		p.expect(PoolStats{Retried: 3, Dead: 1})
		letters, _ := f.List(t.Context(), "", "", 10)
		if len(letters) != 1 || letters[0].Reason != backend.ReasonMaxDeliveries || letters[0].Error != "failure 4" || letters[0].Attempts != 4 {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// What failed together does not come back together.
func TestPoolSpreadsRetries(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 50)
		var mu sync.Mutex
		at := map[time.Time]int{}
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if d.Attempt == 1 {
				return errors.New("not yet")
			}
			mu.Lock()
			defer mu.Unlock()
			at[time.Now()]++
			return nil
		}, PoolConfig{Workers: 50, Batch: 50, RetryBase: 10 * time.Second})
		time.Sleep(time.Minute)
		p.finish()
		p.expect(PoolStats{Acked: 50, Retried: 50})
		if len(at) < 25 {
			t.Errorf("50 messages that failed at the same time came back at %d times", len(at))
		}
	})
}

func TestPoolDoesAsTheHandlersErrorSays(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 2)
		start := time.Now()
		var again atomic.Int64
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			switch {
			case string(d.Data) == "0":
				return fmt.Errorf("wrapped: %w", Poison(errors.New("no use")))
			case d.Attempt == 1:
				return RetryIn(77*time.Second, errors.New("busy"))
			}
			again.Store(int64(time.Since(start)))
			return nil
		}, PoolConfig{Workers: 2})
		time.Sleep(2 * time.Minute)
		p.finish()
		p.expect(PoolStats{Acked: 1, Retried: 1, Dead: 1})
		if d := time.Duration(again.Load()); d < 77*time.Second || d > 78*time.Second {
			t.Errorf("the message to be retried in 77 s came after %s", d)
		}
		letters, _ := f.List(t.Context(), "", "", 10)
		if len(letters) != 1 || letters[0].Reason != backend.ReasonPoison || letters[0].Attempts != 1 || letters[0].Error != "wrapped: no use" {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}
