package library

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// Two streams share a budget of 400 messages. Four producers of each, in Streams of
// their own as processes have them, publish as fast as they can, those of one with four
// times as many goroutines, while workers that serve both do some of it.
func TestStreamsKeepTheirBudgetTogether(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	on := func(rest string) func(string) string {
		return func(stream string) string { return server.URL() + "?" + rest + "stream=" + stream }
	}
	inMemory := func(stream string) string { return "mem://" + stream }
	for name, c := range map[string]struct {
		url  func(stream string) string
		mode weir.GuardMode
	}{
		"redis-static":    {on(""), weir.GuardStatic},
		"redis-adaptive":  {on(""), weir.GuardAdaptive},
		"memory-adaptive": {inMemory, weir.GuardAdaptive},
		"shards-static":   {on("shards=4&"), weir.GuardStatic},
	} {
		t.Run(name, func(t *testing.T) {
			b := &sharedBudget{T: t, url: c.url, name: name, config: weir.ProducerConfig{
				Guard: c.mode, Budget: name, BudgetMaxDepth: 400, WaitSLO: 2 * time.Second,
				LagWarn: -1, LagPause: -1, DisableLoadShedding: true, Logger: quiet(),
			}}
			b.run()
		})
	}
}

type sharedBudget struct {
	*testing.T
	url    func(stream string) string
	name   string
	config weir.ProducerConfig
}

func (b *sharedBudget) run() {
	ctx, cancel := context.WithCancel(b.Context())
	var rest sync.WaitGroup
	defer rest.Wait()
	defer cancel()
	var watch []*weir.Stream
	var done [2]atomic.Int64
	capacity := make(chan struct{}, 4) // of what is behind the workers of both
	for i := range 2 {
		s := openStream(b.T, b.url(fmt.Sprintf("%s-%d", b.name, i)))
		watch = append(watch, s)
		if _, err := s.Backend().Append(ctx, []weir.Message{{Data: []byte("first")}}); err != nil { // creates it
			b.Fatal(err)
		}
		pool, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error {
			capacity <- struct{}{}
			time.Sleep(10 * time.Millisecond)
			<-capacity
			done[i].Add(1)
			return nil
		}, weir.PoolConfig{Workers: 4, Batch: 2, Logger: quiet()})
		if err != nil {
			b.Fatal(err)
		}
		rest.Go(func() { _ = pool.Run(ctx) })
	}
	// Who comes first may take all at first; a busy machine needs longer until that is done.
	until, end := context.WithTimeout(ctx, 15*time.Second)
	defer end()
	begun, bothHandled := time.Now(), func() bool {
		return min(done[0].Load(), done[1].Load()) >= max(done[0].Load(), done[1].Load())/4
	}
	var all sync.WaitGroup
	for i := range 2 {
		for range 4 {
			p, err := weir.NewProducer(openStream(b.T, b.url(fmt.Sprintf("%s-%d", b.name, i))), b.config)
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			for range []int{4, 1}[i] {
				all.Go(func() { hurry(b.T, until, p) })
			}
		}
	}
	highest, sums, readings := int64(0), [2]int64{}, int64(0)
	for until.Err() == nil && (time.Since(begun) < 2*time.Second || !bothHandled()) {
		one, two := depthOf(b.T, watch[0]), depthOf(b.T, watch[1])
		if both := one + two; both > highest { // what went from one to the other meanwhile counts once
			highest = max(highest, min(one, depthOf(b.T, watch[0]))+two)
		}
		sums, readings = [2]int64{sums[0] + one, sums[1] + two}, readings+1
	}
	fair := bothHandled() // what waits when the load ends may be all of one
	end()
	all.Wait()
	b.Logf("highest %d of 400; mean depths %d and %d; handled %d and %d", highest, sums[0]/readings, sums[1]/readings, done[0].Load(), done[1].Load())
	if highest > 420 {
		b.Errorf("the streams held %d messages, their budget is 400", highest)
	}
	if b.config.Guard == weir.GuardStatic && highest < 300 {
		b.Errorf("the streams held at most %d messages of 400", highest)
	}
	if !fair {
		b.Errorf("of one stream %d messages were handled, of the other %d", done[0].Load(), done[1].Load())
	}
}

// The depth of a sharded stream is limited for all processes together.
func TestALimitHoldsForAllProducersOfShards(t *testing.T) {
	url := redistest.Start(t, redistest.Options{}).URL() + "?shards=4&stream=orders"
	watch := openStream(t, url)
	if _, err := watch.Backend().Append(t.Context(), []weir.Message{{Data: []byte("first")}}); err != nil {
		t.Fatal(err)
	}
	for range 8 { // so that every shard has a group, whose lag is known
		if _, err := watch.Backend().Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 10, ReclaimAfter: time.Minute}); err != nil {
			t.Fatal(err)
		}
	}
	until, end := context.WithTimeout(t.Context(), 20*time.Second)
	defer end()
	begun := time.Now()
	var all sync.WaitGroup
	for range 8 {
		p, err := weir.NewProducer(openStream(t, url), weir.ProducerConfig{Guard: weir.GuardStatic, MaxDepth: 500, LagWarn: -1, LagPause: -1, DisableLoadShedding: true, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		all.Go(func() { hurry(t, until, p) })
	}
	for until.Err() == nil && (time.Since(begun) < time.Second || depthOf(t, watch) < 380) {
		time.Sleep(10 * time.Millisecond)
	}
	end()
	all.Wait()
	if depth := depthOf(t, watch); depth > 400 || depth < 380 {
		t.Errorf("the shards hold %d messages, the limit is 400", depth)
	}
}
