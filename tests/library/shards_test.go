package library

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/redistest"
)

// go test ./tests/library -run NoShardWaits -v -plateau 10s
var plateau = flag.Duration("plateau", 3*time.Second, "for how long shards are overloaded")

// Five times what the workers can do is offered to four shards: the guard holds the
// wait, and no shard's messages wait twice as long as another's. A machine that stands still for
// a moment does that to one shard more than to another, but not each time.
// TestShardsWaitAlikeUnderOverload is stricter, without a machine.
func TestNoShardWaitsTwiceAsLongAsAnother(t *testing.T) {
	server := redistest.Start(t, redistest.Options{}).URL()
	var longer []float64
	for try := range 3 {
		least, longest := overloadShards(t, fmt.Sprintf("%s?shards=4&stream=orders%d", server, try))
		longer = append(longer, float64(longest)/float64(least))
		if longest <= 2*least {
			return
		}
	}
	t.Errorf("the messages of one shard waited %.1f times as long as those of another on average, each time", longer)
}

// overloadShards returns how long the messages of the quickest and of the slowest of the
// four shards at url wait on average.
func overloadShards(t *testing.T, url string) (least, longest time.Duration) {
	const workers, service, slo = 20, 40 * time.Millisecond, time.Second
	var mu sync.Mutex
	waits := map[string][]time.Duration{} // by shard
	var handled, stored, unknown, late atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	pool, err := weir.NewPool(openStream(t, url), func(_ context.Context, d *weir.Delivery) error {
		shard, _, _ := strings.Cut(d.ID, ":")
		wait := time.Since(d.Enqueued)
		mu.Lock()
		waits[shard] = append(waits[shard], wait)
		mu.Unlock()
		time.Sleep(service)
		handled.Add(1)
		if time.Since(d.Enqueued) > slo {
			late.Add(1)
		}
		return nil
	}, weir.PoolConfig{Workers: workers, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	var producers []*weir.Producer
	for range 2 {
		p, err := weir.NewProducer(openStream(t, url), weir.ProducerConfig{Guard: weir.GuardAdaptive, WaitSLO: slo, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		producers = append(producers, p)
	}
	offered := offerFor(t, producers, 5*workers*int(time.Second/service), *plateau, &stored, &unknown)
	for end := time.Now().Add(20 * time.Second); handled.Load() < stored.Load() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	least = time.Hour
	for shard, all := range waits {
		slices.Sort(all)
		sum := time.Duration(0)
		for _, w := range all {
			sum += w
		}
		mean := sum / time.Duration(len(all))
		least, longest = min(least, mean), max(longest, mean)
		t.Logf("shard %s: %d messages waited %s on average, p99 %s", shard, len(all), mean, all[len(all)*99/100])
	}
	t.Logf("offered %d, stored %d, handled %d of which %d later than %s; %.0f a second of %d", offered, stored.Load(), handled.Load(), late.Load(), slo,
		float64(handled.Load())/plateau.Seconds(), workers*int(time.Second/service))
	if len(waits) != 4 {
		t.Errorf("messages of %d shards were handled", len(waits))
	}
	if n := handled.Load(); n < stored.Load() || n > stored.Load()+unknown.Load() {
		t.Errorf("%d messages were handled of %d, and %d that may be stored", n, stored.Load(), unknown.Load())
	}
	return least, longest
}

// offerFor publishes at a rate for a time, whatever becomes of it.
func offerFor(t *testing.T, producers []*weir.Producer, rate int, d time.Duration, stored, unknown *atomic.Int64) (offered int) {
	var all sync.WaitGroup
	for start := time.Now(); time.Since(start) < d; time.Sleep(5 * time.Millisecond) {
		for ; offered < int(time.Since(start).Seconds()*float64(rate)); offered++ {
			p := producers[offered%len(producers)]
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := p.Publish(ctx, weir.Message{Data: []byte("order")})
				var full *weir.QueueFullError
				switch {
				case err == nil:
					stored.Add(1)
				case errors.Is(err, weir.ErrOutcomeUnknown): // the machine stood still until its context ended
					unknown.Add(1)
				case !errors.As(err, &full) && ctx.Err() == nil:
					t.Errorf("publish: %v", err)
				}
			})
		}
	}
	all.Wait()
	return offered
}
