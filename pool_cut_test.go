package weir

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// What a claim has been given while its answer is on the way belongs to the pool, whatever
// it does meanwhile: messages fail, and others come, all the time.
func TestAFailedDeliveryLosesNoClaim(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const messages = 300
		f := backendtest.NewFake(backendtest.FakeOptions{})
		f.Inject(backendtest.OpClaim, backendtest.Fault{Late: 20 * time.Millisecond})
		var done atomic.Int64
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if d.Attempt == 1 {
				return RetryIn(5*time.Millisecond, errors.New("not yet"))
			}
			if d.Attempt > 2 {
				t.Errorf("message %s is delivered %d times, want 2", d.Data, d.Attempt)
			}
			done.Add(1)
			return nil
		}, PoolConfig{Workers: 5})
		for n := range messages {
			if _, err := f.Append(t.Context(), []Message{{Data: strconv.AppendInt(nil, int64(n), 10)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(n%7) * time.Millisecond)
		}
		time.Sleep(time.Second)
		if n := done.Load(); n != messages {
			t.Errorf("%d of %d messages are done a second after the last was published", n, messages)
		}
		p.finish()
	})
}

// The last claim of a pool that ends is answered over a slow link: what it holds goes back.
func TestAPoolThatEndsLosesNoClaim(t *testing.T) {
	for _, late := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				f.Inject(backendtest.OpClaim, backendtest.Fault{Late: late})
				p := startPool(t, f, nothing, PoolConfig{Workers: 2})
				time.Sleep(4500 * time.Millisecond) // it waits for a message
				publish(t, f, 1)
				synctest.Wait() // the claim has it
				p.finish()
				if late == 0 {
					p.expect(PoolStats{Acked: 1})
					return
				}
				p.expect(PoolStats{Returned: 1})
				got := claimAll(t, f)
				if len(got) != 1 || got[0].Attempt != 1 {
					t.Errorf("another pool gets %d messages, want the one that this pool has not begun: %+v", len(got), got)
				}
			})
		})
	}
}

// deaf is a backend that takes no notice of Enough.
type deaf struct{ *backendtest.Fake }

func (d deaf) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	req.Enough = nil
	return d.Fake.Claim(ctx, req)
}

// An idle pool ends at once, and does not wait out the Block of a backend that does not listen.
func TestAnIdlePoolEndsSoon(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		for want, open := range map[time.Duration]func(f *backendtest.Fake) backend.Backend{
			0:          func(f *backendtest.Fake) backend.Backend { return f },
			claimGrace: func(f *backendtest.Fake) backend.Backend { return deaf{f} },
		} {
			p, err := NewPool(New(open(backendtest.NewFake(backendtest.FakeOptions{}))), nothing, quiet(PoolConfig{Block: 30 * time.Second, ReclaimAfter: time.Hour}))
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			time.Sleep(70 * time.Second)
			end()
			began := time.Now()
			if err := <-done; err != nil || time.Since(began) != want {
				t.Errorf("an idle pool ended after %s, %v; want %s", time.Since(began), err, want)
			}
		}
	})
}
