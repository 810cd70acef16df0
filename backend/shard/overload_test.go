package shard_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// Two producers offer a pool five times what it can do, over four shards whose calls take
// their time: no shard's messages wait much longer than another's.
func TestShardsWaitAlikeUnderOverload(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const workers, service, plateau = 20, 40 * time.Millisecond, 20 * time.Second
		keep := &cellar{}
		open := func() *weir.Stream {
			s := weir.New(keep.openWith(t, 4, func(_ int, f *backendtest.Fake) {
				for _, op := range everything {
					f.Inject(op, backendtest.Fault{Delay: time.Millisecond, Late: time.Millisecond})
				}
			}))
			t.Cleanup(func() { s.Close() })
			return s
		}
		var mu sync.Mutex
		waited, n := map[string]time.Duration{}, map[string]int{} // by shard
		handled, stored := 0, 0
		pool, err := weir.NewPool(open(), func(_ context.Context, d *weir.Delivery) error {
			shard, _, _ := strings.Cut(d.ID, ":")
			mu.Lock()
			waited[shard] += time.Since(d.Enqueued)
			n[shard]++
			handled++
			mu.Unlock()
			time.Sleep(service/2 + rand.N(service))
			return nil
		}, weir.PoolConfig{Workers: workers, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running, publishing sync.WaitGroup
		running.Go(func() {
			if err := pool.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var producers [2]*weir.Producer
		for i := range producers {
			producers[i], err = weir.NewProducer(open(), weir.ProducerConfig{Guard: weir.GuardAdaptive, WaitSLO: time.Second, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer producers[i].Close()
		}
		for i := range int(plateau / (service / workers / 5)) {
			publishing.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				var full *weir.QueueFullError
				err := producers[i%2].Publish(ctx, weir.Message{Data: []byte("order")})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					stored++
				} else if !errors.As(err, &full) && ctx.Err() == nil {
					t.Error(err)
				}
			})
			time.Sleep(service / workers / 5)
		}
		publishing.Wait()
		time.Sleep(5 * time.Second)
		cancel()
		running.Wait()
		least, longest := time.Hour, time.Duration(0)
		for shard, sum := range waited {
			mean := sum / time.Duration(n[shard])
			t.Logf("shard %s: %d messages waited %s on average", shard, n[shard], mean)
			least, longest = min(least, mean), max(longest, mean)
		}
		if len(waited) != 4 || longest > least*6/5 {
			t.Errorf("the messages of %d shards waited %s to %s on average", len(waited), least, longest)
		}
		if most := int(plateau * workers / service); handled != stored || handled < most*9/10 {
			t.Errorf("%d stored, %d handled; %d could be", stored, handled, most)
		}
	})
}
