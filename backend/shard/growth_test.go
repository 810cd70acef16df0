package shard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// plant is producers and pools on one sharded stream.
type plant struct {
	*testing.T
	mu      sync.Mutex
	stored  map[string]bool
	handled map[string]int // data → how often
}

func newPlant(t *testing.T) *plant {
	return &plant{T: t, stored: map[string]bool{}, handled: map[string]int{}}
}

func (p *plant) open(url string) *weir.Stream {
	p.Helper()
	s, err := open.URL(p.Context(), url)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { s.Close() })
	return s
}

// work runs a pool until stop is called.
func (p *plant) work(url string, reclaim time.Duration) (stop func() weir.PoolStats) {
	p.Helper()
	pool, err := weir.NewPool(p.open(url), func(_ context.Context, d *weir.Delivery) error {
		p.mu.Lock()
		p.handled[string(d.Data)]++
		p.mu.Unlock()
		return nil
	}, weir.PoolConfig{Workers: 4, ReclaimAfter: reclaim, Block: 5 * time.Second, DrainTimeout: 30 * time.Second, Logger: quiet})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pool.Run(ctx) }()
	return sync.OnceValue(func() weir.PoolStats {
		cancel()
		<-done
		return pool.Stats()
	})
}

// publish publishes n messages one by one, every second one with a key, twice.
func (p *plant) publish(s *weir.Stream, name string, n int) {
	producer, err := weir.NewProducer(s, weir.ProducerConfig{Guard: weir.GuardOff, Logger: quiet})
	if err != nil {
		p.Error(err)
		return
	}
	defer producer.Close()
	for i := range n {
		m := weir.Message{Data: fmt.Appendf(nil, "%s %d", name, i)}
		if i%2 == 0 {
			m.IdempotencyKey = string(m.Data)
		}
		err := producer.Publish(p.Context(), m)
		for end := time.Now().Add(30 * time.Second); err != nil && backend.Retryable(err) && time.Now().Before(end); { // the machine stood still
			if errors.Is(err, weir.ErrOutcomeUnknown) && m.IdempotencyKey == "" {
				break
			}
			err = producer.Publish(p.Context(), m)
		}
		if errors.Is(err, weir.ErrOutcomeUnknown) {
			continue
		}
		if err != nil {
			p.Errorf("%s: %v", m.Data, err)
			return
		}
		p.mu.Lock()
		p.stored[string(m.Data)] = true
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// again repeats what was published with a key: nothing may be stored a second time.
func (p *plant) again(s *weir.Stream) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for data := range p.stored {
		var n int
		var name string
		if _, err := fmt.Sscanf(data, "%s %d", &name, &n); err != nil || n%2 == 1 {
			continue
		}
		got, err := s.Backend().Append(p.Context(), []weir.Message{{Data: []byte(data), IdempotencyKey: data}})
		if err != nil || !got[0].Deduped {
			p.Fatalf("%s was stored, its repeat says %+v, %v", data, got, err)
		}
	}
}

// finished waits until all that is stored has been handled, and says what was handled
// more than once.
func (p *plant) finished() (twice int) {
	p.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		p.mu.Lock()
		lost := 0
		for data := range p.stored {
			if p.handled[data] == 0 {
				lost++
			}
		}
		p.mu.Unlock()
		if lost == 0 {
			break
		}
		if time.Now().After(end) {
			p.Fatalf("%d of %d messages were not handled", lost, len(p.stored))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.handled {
		if n > 1 {
			twice++
		}
	}
	return twice
}

// Four shards become six under load. Producers and pools that run follow by
// themselves, and nothing is lost or done twice, not even what is published again.
func TestShardsGrowUnderLoad(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	p, url := newPlant(t), s.URL()+"?stream=orders"
	var stops []func() weir.PoolStats
	for range 3 {
		stops = append(stops, p.work(url+"&shards=4", 30*time.Second))
	}
	var producers sync.WaitGroup
	for i := range 3 {
		producers.Go(func() { p.publish(p.open(url+"&shards=4"), fmt.Sprintf("old%d", i), 1500) })
	}
	time.Sleep(700 * time.Millisecond)
	grown := p.open(url + "&shards=6")
	producers.Go(func() { p.publish(grown, "new", 2000) })
	producers.Wait()
	p.again(grown)
	p.again(p.open(url + "&shards=4"))
	if twice := p.finished(); twice > 0 {
		t.Errorf("%d messages were handled twice", twice)
	}
	for _, stop := range stops {
		if stats := stop(); stats.Unsettled+stats.Lost+stats.Dead > 0 {
			t.Errorf("a pool ended with %+v", stats)
		}
	}
	for number := range 6 {
		one := p.open(fmt.Sprintf("%s.%d", url, number))
		stats, err := one.Backend().Stats(t.Context())
		if err != nil || stats.Pending != 0 || *stats.Lag != 0 {
			t.Errorf("shard %d: %+v, %v", number, stats, err)
		}
		t.Logf("shard %d stored %d", number, stats.XLen)
		if stats.XLen < 100 {
			t.Errorf("shard %d of 6 got %d of %d messages", number, stats.XLen, len(p.stored))
		}
	}
}

// What a worker held that is cut off comes back from every shard.
func TestAWorkerOfShardsIsCutOff(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	p := newPlant(t)
	proxy := redistest.NewProxy(t, s.Addr())
	victim := p.open(proxy.URL() + "?stream=orders&shards=4")
	p.publish(p.open(s.URL()+"?stream=orders&shards=4"), "m", 200)
	const lease = 500 * time.Millisecond
	for held := map[string]bool{}; len(held) < 120; { // a claim leaves out a shard that does not answer soon
		got, err := victim.Backend().Claim(t.Context(), backend.ClaimRequest{Consumer: "victim", Max: 120 - len(held), ReclaimAfter: lease})
		for _, d := range got.Deliveries {
			held[d.ID] = true
		}
		if err != nil || got.Failed == nil && len(held) < 120 {
			t.Fatalf("claimed %d, %v", len(held), err)
		}
	}
	proxy.Refuse()
	stalled := stall.Watch()
	stop := p.work(s.URL()+"?stream=orders&shards=4", lease)
	if twice := p.finished(); twice > 0 {
		t.Errorf("%d messages were handled twice", twice)
	}
	stats := stop()
	slow := stalled() > lease/2 // it may have had to take over from itself
	if stats.Reclaimed < 120 || stats.Reclaimed > 120 && !slow {
		t.Errorf("of 120 messages of the victim %d were taken over: %+v", stats.Reclaimed, stats)
	}
}
