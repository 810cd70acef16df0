package weir

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// aheadPool works on a long backlog of which a claim takes 10 ms.
func aheadPool(t *testing.T, c PoolConfig, takes func(message int) time.Duration) *testPool {
	t.Helper()
	f := backendtest.NewFake(backendtest.FakeOptions{})
	publish(t, f, 20_000)
	f.Inject(backendtest.OpClaim, backendtest.Fault{Delay: 10 * time.Millisecond})
	return startPool(t, f, func(_ context.Context, d *Delivery) error {
		n, err := strconv.Atoi(string(d.Data))
		time.Sleep(takes(n))
		return err
	}, c)
}

// steadyRate is how many messages are done per second, after the first one and over some seconds.
func (p *testPool) steadyRate(seconds int) int {
	time.Sleep(time.Second)
	before := len(p.fake.Acked())
	time.Sleep(time.Duration(seconds) * time.Second)
	return (len(p.fake.Acked()) - before) / seconds
}

// Where a batch is done before the next claim is answered, a second batch ahead keeps the
// workers busier: these do 1400 of 1667 per second, and 1134 without it.
func TestPoolClaimsFurtherAheadWhileItsWorkersRunDry(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := aheadPool(t, PoolConfig{Workers: 10, Batch: 10}, func(int) time.Duration { return 6 * time.Millisecond })
		if rate := p.steadyRate(5); rate < 1300 {
			t.Errorf("%d are done per second, want 1300 at least", rate)
		}
		p.finish()
	})
}

// A pool of many workers has as many claims under way as its room has batches, up to six:
// with two, these do 2000 per second.
func TestManyWorkersDoNotWaitForOneClaimAfterTheOther(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := aheadPool(t, PoolConfig{Workers: 100, Batch: 10}, func(int) time.Duration { return time.Millisecond })
		if rate := p.steadyRate(2); rate < 5000 {
			t.Errorf("%d are done per second, want 5000 at least", rate)
		}
		p.finish()
	})
}

// Busy workers are no reason to claim more than a batch ahead: another pool may have idle ones.
func TestPoolClaimsOneBatchAheadOfBusyWorkers(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const batch = 10
		p := aheadPool(t, PoolConfig{Workers: 25, Batch: batch}, func(message int) time.Duration {
			return 500*time.Millisecond + time.Duration(message*7919%1000)*time.Millisecond
		})
		for range 1000 {
			time.Sleep(10 * time.Millisecond)
			synctest.Wait() // what has just been claimed is with its workers
			if n := p.Stats().Waiting; n > batch {
				t.Errorf("%d wait in the pool, want %d at most", n, batch)
				break
			}
		}
		p.finish()
	})
}

// What waits in a pool for a slow handler is kept from idle workers of others: two pools
// of one worker do twelve messages of ten seconds in six turns, and one that claims a batch
// ahead would have them take ten.
func TestSlowHandlersKeepNothingFromAnIdlePool(t *testing.T) {
	for _, workers := range []int{1, 3} {
		bubble.Run(t, func(t *testing.T) {
			f := backendtest.NewFake(backendtest.FakeOptions{})
			publish(t, f, 12*workers)
			slow := func(context.Context, *Delivery) error { time.Sleep(10 * time.Second); return nil }
			one := startPool(t, f, slow, PoolConfig{Workers: workers})
			synctest.Wait()
			two := startPool(t, f.Again(), slow, PoolConfig{Workers: workers})
			time.Sleep(61 * time.Second)
			// In the end one may be with the wrong pool, and two if its workers were out of messages before (see room).
			if n := len(f.Acked()); n < 12*workers-min(workers, 2) {
				t.Errorf("2 pools of %d have done %d of %d in six turns", workers, n, 12*workers)
			}
			one.finish()
			two.finish()
		})
	}
}

// How far a pool claims ahead follows its handlers: nothing lies in it for long, and no
// worker waits for a claim.
func TestPoolClaimsAheadWhatItBeginsSoon(t *testing.T) {
	for _, c := range []struct {
		workers int
		takes   time.Duration
		most    int // waiting
	}{{1, 4 * time.Second, 1}, {20, 4 * time.Second, 2}, {4, 500 * time.Millisecond, 2}, {1, 40 * time.Millisecond, 6}, {20, 40 * time.Millisecond, 20}} {
		bubble.Run(t, func(t *testing.T) {
			p := aheadPool(t, PoolConfig{Workers: c.workers, Batch: 10}, func(message int) time.Duration {
				return c.takes/2 + c.takes*time.Duration(message*7919%1000)/1000
			})
			time.Sleep(5 * c.takes)
			before, began := len(p.fake.Acked()), time.Now()
			for range 500 {
				time.Sleep(c.takes / 50)
				synctest.Wait()
				if n := p.Stats().Waiting; n > c.most {
					t.Errorf("%d workers of %s: %d wait in the pool, want %d at most", c.workers, c.takes, n, c.most)
					break
				}
			}
			done := float64(len(p.fake.Acked()) - before)
			if could := float64(c.workers) * time.Since(began).Seconds() / c.takes.Seconds(); done < 0.9*could {
				t.Errorf("%d workers of %s: %.0f done of %.0f that they could", c.workers, c.takes, done, could)
			}
			p.finish()
		})
	}
}

// What a handler does after that cannot be acknowledged, so another pool does it again.
func TestAPoolBeginsNothingOnceItsStreamIsClosed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		begun := make(chan string, 100)
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 100)
		s := New(f)
		p, err := NewPool(s, func(_ context.Context, d *Delivery) error {
			begun <- string(d.Data)
			time.Sleep(time.Second)
			return nil
		}, quiet(PoolConfig{Workers: 2, Batch: 20}))
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		time.Sleep(2500 * time.Millisecond)
		if p.Stats().Waiting == 0 {
			t.Fatal("nothing is claimed ahead")
		}
		before := len(begun)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("Run returned %v, want ErrClosed", err)
		}
		if n := len(begun) - before; n != 0 {
			t.Errorf("%d handlers began after Close", n)
		}
		late, err := NewPool(s, func(context.Context, *Delivery) error { return nil }, quiet(PoolConfig{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := late.Run(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a pool that is run after Close returned %v, want ErrClosed", err)
		}
	})
}

// What waits for the answers to its acks is bounded: a server that takes them late is not asked for ever more.
func TestAPoolWhoseAcksHaveNoAnswerClaimsNoMore(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const messages = 4 * maxUnsettled
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, messages)
		heal := f.Inject(backendtest.OpAck, backendtest.Fault{Hang: true})
		var handled atomic.Int64
		p := startPool(t, f, func(context.Context, *Delivery) error { handled.Add(1); return nil }, PoolConfig{Workers: 10, Batch: 100})
		time.Sleep(5 * time.Second)
		if n := handled.Load(); n < maxUnsettled || n > maxUnsettled+1000 {
			t.Errorf("%d messages were handled, of which no ack was answered", n)
		}
		heal()
		time.Sleep(time.Minute)
		p.finish()
		p.expect(PoolStats{Acked: messages})
	})
}
