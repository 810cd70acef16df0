package weir

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// autoRun is a pool that looks for its number of workers, on a backlog without end.
type autoRun struct {
	*testPool
	mu        sync.Mutex
	levels    []int // every one it had
	done      atomic.Int64
	published atomic.Int64
}

func startAuto(t *testing.T, most int, h Handler) *autoRun {
	t.Helper()
	f := backendtest.NewFake(backendtest.FakeOptions{})
	r := &autoRun{}
	r.testPool = startPool(t, f, func(ctx context.Context, d *Delivery) error {
		defer r.done.Add(1)
		return h(ctx, d)
	}, PoolConfig{Workers: AutoWorkers, MaxWorkers: most, TrimEvery: time.Second, Hooks: Hooks{Workers: func(_ StreamName, workers, _ int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := len(r.levels); workers > 0 && (n == 0 || r.levels[n-1] != workers) {
			r.levels = append(r.levels, workers)
		}
	}}})
	return r
}

// seen returns every number of workers it had.
func (r *autoRun) seen() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.levels)
}

// work keeps a backlog for d and returns how many messages were done per second in the
// last half of it, and the mean of the workers then.
func (r *autoRun) work(d time.Duration) (rate, workers float64) {
	const step = 100 * time.Millisecond
	var from int64
	var sum, n int
	for i := range int(d / step) {
		if i == int(d/step)/2 {
			from = r.done.Load()
		}
		if int64(len(r.fake.Acked()))+2000 > r.published.Load() {
			publish(r.t, r.fake, 2000)
			r.published.Add(2000)
		}
		time.Sleep(step)
		if i >= int(d/step)/2 {
			sum, n = sum+r.Stats().Workers, n+1
		}
	}
	return float64(r.done.Load()-from) / (d / 2).Seconds(), float64(sum) / float64(n)
}

func TestAutoWorkersGrowToTheMostForHandlersThatOnlyWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		r := startAuto(t, 40, func(context.Context, *Delivery) error { time.Sleep(50 * time.Millisecond); return nil })
		rate, workers := r.work(2 * time.Minute)
		if workers < 36 || slices.Max(r.seen()) != 40 || rate < 700 {
			t.Errorf("%.1f workers do %.0f per second, want about 40 and 800; they were %v", workers, rate, r.seen())
		}
		r.finish()
	})
}

// Four cores, of which a handler needs one for 20 ms.
func TestAutoWorkersStayNearTheCoresForHandlersThatCompute(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		cores := make(chan struct{}, 4)
		r := startAuto(t, 100, func(context.Context, *Delivery) error {
			cores <- struct{}{}
			time.Sleep(20 * time.Millisecond)
			<-cores
			return nil
		})
		rate, workers := r.work(2 * time.Minute)
		if workers < 3.5 || workers > 6 || rate < 180 || slices.Max(r.seen()) > 9 {
			t.Errorf("%.1f workers do %.0f per second, want about 4 and 200; they were %v", workers, rate, r.seen())
		}
		r.finish()
	})
}

// First the handlers only wait; then what they wait for gets slower with each that asks
// at once: 40 ms × (1 + (n/10)²), of which ten at a time get the most done, 125 a second,
// and 40 at a time 59.
func TestAutoWorkersShrinkWhenMoreAtOnceDoLess(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var slow atomic.Bool
		var now atomic.Int64
		var mu sync.Mutex
		runs := map[string]int{}
		r := startAuto(t, 40, func(_ context.Context, d *Delivery) error {
			n := float64(now.Add(1))
			defer now.Add(-1)
			mu.Lock()
			runs[d.ID]++
			mu.Unlock()
			if !slow.Load() {
				n = 0
			}
			time.Sleep(time.Duration((1 + n*n/100) * float64(40*time.Millisecond)))
			return nil
		})
		if _, workers := r.work(time.Minute); workers < 30 {
			t.Errorf("%.1f workers before, want about 40", workers)
		}
		slow.Store(true)
		rate, workers := r.work(4 * time.Minute)
		if workers < 4 || workers > 14 || rate < 100 {
			t.Errorf("%.1f workers do %.0f per second, want about 10 and 125; they were %v", workers, rate, r.seen())
		}
		time.Sleep(time.Minute) // no more comes: the rest is done
		if left := r.published.Load() - int64(len(r.fake.Acked())); left != 0 {
			t.Errorf("%d messages are not done", left)
		}
		for id, n := range runs {
			if n != 1 {
				t.Errorf("message %s ran %d times", id, n)
			}
		}
		r.finish()
		r.expect(PoolStats{Acked: uint64(r.published.Load())})
	})
}

// Two messages a second are not work for more workers than there are.
func TestAutoWorkersDoNotGrowWithoutABacklog(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		r := startAuto(t, 40, func(context.Context, *Delivery) error { time.Sleep(50 * time.Millisecond); return nil })
		first := r.Stats().Workers
		for range 600 {
			publish(t, r.fake, 1)
			time.Sleep(100 * time.Millisecond)
		}
		if slices.Max(r.seen()) > first {
			t.Errorf("the workers were %v", r.seen())
		}
		r.finish()
	})
}

// Handlers that take random times, as real ones do.
func TestAutoWorkersFindTheirNumberThroughNoise(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				cores := make(chan struct{}, 4)
				r := startAuto(t, 100, func(context.Context, *Delivery) error {
					mu.Lock()
					d := time.Duration(random.ExpFloat64() * float64(20*time.Millisecond))
					mu.Unlock()
					cores <- struct{}{}
					time.Sleep(d)
					<-cores
					return nil
				})
				rate, workers := r.work(3 * time.Minute)
				t.Logf("%.1f workers do %.0f per second; they were %v", workers, rate, r.seen())
				if workers < 3 || workers > 12 || rate < 160 {
					t.Errorf("%.1f workers do %.0f per second, want about 4 and 200; they were %v", workers, rate, r.seen())
				}
				r.finish()
			})
		})
	}
}

// However the throughput falls, the climber is at home nowhere above where it began.
func TestAutoWorkersNeverGrowWhileTheThroughputFalls(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		c := newClimber(20, 100)
		for rate := 1000.0; rate > 1; rate *= 1 - random.Float64()/4 {
			before, base := c.level, c.base
			c.window(rate, true)
			if c.base > base || c.level > max(before, base) {
				t.Fatalf("seed %d: the throughput fell and the workers went from %d (at home at %d) to %d", seed, before, base, c.level)
			}
		}
	}
}

func TestAutoWorkersKeepTheirLevelWhileNothingWaits(t *testing.T) {
	c := newClimber(8, 100)
	c.window(100, true)
	for c.window(100, true); c.level <= 8; c.window(100, true) {
	}
	c.window(150, false) // a trial with more, and the backlog is gone
	if c.level != 8 {
		t.Errorf("without a backlog there are %d workers, want 8", c.level)
	}
}
