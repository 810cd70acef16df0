package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/telemetry"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/stall"
)

// burst publishes from many goroutines at once and counts what they are told.
type burst struct {
	mu      sync.Mutex
	told    map[string]int
	longest time.Duration
}

func (b *burst) run(n int, publish func() error) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			start := time.Now()
			err := publish()
			took := time.Since(start)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.longest = max(b.longest, took)
			var full *weir.QueueFullError
			switch {
			case err == nil:
				b.told["stored"]++
			case errors.As(err, &full):
				b.told[string(full.Reason)]++
			default:
				b.told["other"]++
			}
		})
	}
	all.Wait()
}

// Refusals for a full queue, by the window and for a full buffer are counted apart, as many as
// callers were told; and no publish is held up past its context while the broker is frozen.
func TestABurstOnAFrozenBrokerIsCountedByReason(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Options{})
	registry := prometheus.NewRegistry()
	metrics, err := telemetry.NewPrometheus(registry)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, broker.URL()+"/burst?partitions=1&buffer_memory=1048576")
	s := weir.New(b)
	defer s.Close()
	config := weir.ProducerConfig{Guard: weir.GuardOff, MaxDepth: 100, LoadSheddingMaxRequests: 1 << 20, Hooks: metrics.Hooks()}
	p, err := weir.NewProducer(s, config)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	reconfigure := func(guard weir.GuardMode, requests int) {
		t.Helper()
		config.Guard, config.LoadSheddingMaxRequests, config.ShedWindow = guard, requests, time.Minute
		if err := p.Reconfigure(config); err != nil {
			t.Fatal(err)
		}
	}
	seen := &burst{told: map[string]int{}}
	large := weir.Message{Data: make([]byte, 16<<10)}
	try := func() error { return p.TryPublish(t.Context(), large) }

	if err := p.PublishBatch(t.Context(), make([]weir.Message, 100)); err != nil {
		t.Fatal(err)
	}
	seen.told["stored"] += 100
	reconfigure(weir.GuardStatic, 1<<20)
	await(t, "a full queue", func() bool { // one reading may be older than the messages
		seen.run(20, try)
		return seen.told["queue_full"] >= 20
	})
	reconfigure(weir.GuardOff, 1<<20)
	broker.Pause()
	seen.longest = 0
	stalled := stall.Watch()
	seen.run(300, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return p.Publish(ctx, large)
	})
	if seen.longest > 1500*time.Millisecond+stalled() {
		t.Errorf("a publish of 300ms took %s", seen.longest)
	}
	seen.longest = 0
	stalled = stall.Watch()
	before, stored := seen.told["buffer_full"], seen.told["stored"]    // a Publish may say it at its end
	await(t, "100 TryPublish that find the buffer full", func() bool { // a late one says that instead
		seen.run(100, try)
		return seen.told["buffer_full"]-before >= 100
	})
	if seen.told["stored"] != stored || seen.longest > time.Second+stalled() {
		t.Errorf("TryPublish into a full buffer, up to %s: %v", seen.longest, seen.told)
	}
	reconfigure(weir.GuardStatic, 10)
	seen.run(100, try)
	if seen.told["load_shedding"] < 90 {
		t.Errorf("100 publishes, of which 10 have room in the window: %v", seen.told)
	}
	broker.Resume()

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	count := func(name, labels string) int {
		row := regexp.MustCompile(`(?m)^` + name + `\{queue_type="kafka",` + labels + `stream="burst"\} (\S+)$`).FindStringSubmatch(page.Body.String())
		if row == nil {
			return -1
		}
		n, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	for _, reason := range []string{"queue_full", "buffer_full", "load_shedding"} {
		if got := count("sse_queue_produce_failures_total", fmt.Sprintf("reason=%q,", reason)); got != seen.told[reason] {
			t.Errorf("%s: callers were told it %d times, the metric says %d", reason, seen.told[reason], got)
		}
	}
	offered := 0
	for _, n := range seen.told {
		offered += n
	}
	if got, stored := count("sse_queue_produce_attempts_total", ""), count("sse_queue_produce_success_total", ""); got != offered || stored != seen.told["stored"] {
		t.Errorf("%d messages were offered and %d stored, the metrics say %d and %d", offered, seen.told["stored"], got, stored)
	}
	t.Log(seen.told)
}
