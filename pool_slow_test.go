package weir

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// slowLink is a backend whose answers take so long for each message. What is in an answer for
// which nobody waits any more is leased all the same.
type slowLink struct {
	*backendtest.Fake
	each   atomic.Int64 // ns
	calls  atomic.Int64
	missed atomic.Int64
}

func (s *slowLink) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	s.calls.Add(1)
	got, err := s.Fake.Claim(ctx, req)
	if err != nil || len(got.Deliveries) == 0 {
		return got, err
	}
	if err := pause(ctx, time.Duration(s.each.Load()*int64(len(got.Deliveries)))); err != nil {
		s.missed.Add(1)
		return backend.Claimed{}, err
	}
	return got, nil
}

// A claim for more than a link carries while its leases hold is not made again and again, until
// all that is in it has died of its deliveries; and what a faster link carries is asked for.
func TestAPoolClaimsWhatItsLinkCarries(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := &slowLink{Fake: backendtest.NewFake(backendtest.FakeOptions{})}
		f.each.Store(int64(9 * time.Second))
		publish(t, f.Fake, 40)
		var again atomic.Int64
		p, err := NewPool(New(f), func(_ context.Context, d *Delivery) error {
			again.Store(max(again.Load(), int64(d.Attempt)))
			return nil
		}, quiet(PoolConfig{Workers: 8, Batch: 16}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		defer func() { end(); <-done }()
		time.Sleep(20 * time.Minute)
		if n := len(f.Acked()); n < 40 {
			t.Fatalf("%d of 40 messages are done after 20 minutes; %d claims were not answered in time", n, f.missed.Load())
		}
		if again.Load() > 3 || f.missed.Load() > 3 {
			t.Errorf("a message came %d times, and %d claims were not answered in time", again.Load(), f.missed.Load())
		}

		f.each.Store(int64(time.Millisecond))
		publish(t, f.Fake, 1000)
		before := f.calls.Load()
		time.Sleep(10 * time.Second)
		if n, calls := len(f.Acked())-40, f.calls.Load()-before; n < 1000 || calls > 250 {
			t.Errorf("%d of 1000 messages are done, %d claims took them", n, calls)
		}
	})
}
