package weir

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// endless is a backend whose claims always find a full batch and whose acks are
// only counted: what is left is the price of the pool.
type endless struct {
	*backendtest.Fake
	next, left, acked atomic.Int64
	done              chan struct{}
}

func (e *endless) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	n := min(int64(req.Max), e.left.Load())
	if n <= 0 {
		<-ctx.Done()
		return backend.Claimed{}, ctx.Err()
	}
	e.left.Add(-n)
	got := backend.Claimed{Deliveries: make([]*backend.Delivery, n)}
	now := time.Now()
	for i := range got.Deliveries {
		got.Deliveries[i] = &backend.Delivery{Lease: backend.Lease{ID: strconv.FormatInt(e.next.Add(1), 10), Consumer: req.Consumer, Attempt: 1, Since: now}}
	}
	return got, nil
}

func (e *endless) Ack(_ context.Context, leases []backend.Lease) ([]string, error) {
	if e.acked.Add(int64(len(leases))) == e.next.Load() && e.left.Load() == 0 {
		close(e.done)
	}
	return nil, nil
}

// BenchmarkPool is the pool's own price for a message, its backend's taken away.
func BenchmarkPool(b *testing.B) {
	handlers := map[string]Handler{
		"nothing": nothing,
		"context": func(ctx context.Context, _ *Delivery) error {
			select {
			case <-ctx.Done():
			default:
			}
			return nil
		},
	}
	for name, handler := range handlers {
		for _, workers := range []int{1, 10, 100} {
			for _, batch := range []int{10, 100} {
				b.Run(fmt.Sprintf("handler=%s/workers=%d/batch=%d", name, workers, batch), func(b *testing.B) {
					benchmarkPool(b, handler, PoolConfig{Workers: workers, Batch: batch})
				})
			}
		}
	}
}

func benchmarkPool(b *testing.B, handler Handler, c PoolConfig) {
	b.ReportAllocs()
	e := &endless{Fake: backendtest.NewFake(backendtest.FakeOptions{}), done: make(chan struct{})}
	e.left.Store(int64(b.N))
	p, err := NewPool(New(e), handler, quiet(c))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	<-e.done
	b.StopTimer()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
