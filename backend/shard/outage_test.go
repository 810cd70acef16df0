package shard_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/shard"
)

var everything = []backendtest.Op{
	backendtest.OpAppend, backendtest.OpClaim, backendtest.OpExtend, backendtest.OpAck, backendtest.OpNack, backendtest.OpDeadLetter,
	backendtest.OpStats, backendtest.OpSignal, backendtest.OpPublishSignal,
}

// One of three shards goes away for five minutes, while handlers that take longer than a
// lease run. What is on the others goes on as if nothing were the matter: no handler is
// stopped, everything published is handled, and publishing goes on. When the shard is
// back, so is what it held.
func TestTheOthersGoOnWhileAShardIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fakes []*backendtest.Fake
		for i := range 3 {
			fakes = append(fakes, backendtest.NewFake(backendtest.FakeOptions{Stream: fmt.Sprintf("jobs.%d", i)}))
		}
		b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: 3, Open: func(_ context.Context, number int) (backend.Backend, error) {
			return fakes[number], nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		s := weir.New(b)
		defer s.Close()
		var begun, done, stopped atomic.Int64
		pool, err := weir.NewPool(s, func(ctx context.Context, d *weir.Delivery) error {
			begun.Add(1)
			select {
			case <-time.After(45 * time.Second):
			case <-ctx.Done():
				if !strings.HasPrefix(d.ID, "1:") {
					stopped.Add(1)
				}
				return ctx.Err()
			}
			done.Add(1)
			return nil
		}, weir.PoolConfig{Workers: 30, ReclaimAfter: 30 * time.Second, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		publish := func(n int) {
			t.Helper()
			for range n {
				if _, err := b.Append(t.Context(), []weir.Message{{Data: []byte("x")}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		publish(30)
		time.Sleep(10 * time.Second) // all are running
		var back []func()
		for _, op := range everything {
			back = append(back, fakes[1].Inject(op, backendtest.Fault{Err: backend.ErrUnavailable}))
		}
		time.Sleep(40 * time.Second)
		before := begun.Load()
		publish(100)
		time.Sleep(4 * time.Minute)
		if n := begun.Load() - before; n < 100 {
			t.Errorf("%d of 100 messages were begun in four minutes", n)
		}
		for _, heal := range back {
			heal()
		}
		time.Sleep(4 * time.Minute)
		if n := stopped.Load(); n > 0 {
			t.Errorf("%d handlers of messages of other shards were stopped", n)
		}
		stats, err := b.Stats(t.Context())
		if err != nil || stats.Pending != 0 || *stats.Lag != 0 {
			t.Errorf("left: %+v, %v", stats, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
