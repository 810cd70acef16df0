package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// What a producer and a pool do arrives in the metrics: five messages, one of
// them poison, and then a refusal.
func TestAProducerAndAPoolAreCounted(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		reg, hooks := open(t)
		s := weir.New(backendtest.NewFake(backendtest.FakeOptions{Kind: "redis", Stream: "orders", Group: "billing"}))
		quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
		p, err := weir.NewProducer(s, weir.ProducerConfig{LoadSheddingMaxRequests: 5, Hooks: hooks, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for i := range 6 {
			err := p.Publish(t.Context(), weir.Message{Data: []byte{byte('0' + i)}})
			var full *weir.QueueFullError
			if refused := errors.As(err, &full); refused != (i == 5) {
				t.Fatalf("publish %d: %v", i, err)
			}
		}
		handle := func(_ context.Context, d *weir.Delivery) error {
			if d.Data[0] == '3' {
				return weir.Poison(errors.New("not an order"))
			}
			return nil
		}
		pool, err := weir.NewPool(s, handle, weir.PoolConfig{Workers: 2, Hooks: hooks, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		if err := pool.Run(ctx); err != nil {
			t.Fatal(err)
		}
		scrape(t, reg, `# TYPE sse_queue_produce_attempts_total counter
sse_queue_produce_attempts_total{queue_type="redis",stream="orders"} 6
# TYPE sse_queue_produce_failures_total counter
sse_queue_produce_failures_total{queue_type="redis",reason="buffer_full",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="cancelled",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="error",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="expired",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="load_shedding",stream="orders"} 1
sse_queue_produce_failures_total{queue_type="redis",reason="outcome_unknown",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="queue_full",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="unavailable",stream="orders"} 0
# TYPE sse_queue_produce_success_total counter
sse_queue_produce_success_total{queue_type="redis",stream="orders"} 5
# TYPE weir_stream_messages_total counter
weir_stream_messages_total{group="billing",outcome="acked",queue_type="redis",stream="orders"} 4
weir_stream_messages_total{group="billing",outcome="dead",queue_type="redis",stream="orders"} 1
weir_stream_messages_total{group="billing",outcome="expired",queue_type="redis",stream="orders"} 0
weir_stream_messages_total{group="billing",outcome="lost",queue_type="redis",stream="orders"} 0
weir_stream_messages_total{group="billing",outcome="retried",queue_type="redis",stream="orders"} 0
# TYPE weir_stream_workers gauge
weir_stream_workers{group="billing",queue_type="redis",stream="orders"} 0
`, "sse_queue_produce_attempts_total", "sse_queue_produce_failures_total", "sse_queue_produce_success_total",
			"weir_stream_messages_total", "weir_stream_workers")
	})
}

// A program that starts a pool with other settings before it ends the old one has workers all the time, and one
// producer that is closed does not say that another one is not near its capacity.
func TestSeveralOfAStreamAreCountedTogether(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		m, err := NewPrometheus(reg)
		if err != nil {
			t.Fatal(err)
		}
		s := weir.New(backendtest.NewFake(backendtest.FakeOptions{Kind: "redis", Stream: "orders", Group: "billing"}))
		quiet := slog.New(slog.DiscardHandler)
		shows := func(when string, workers int) {
			t.Helper()
			synctest.Wait()
			scrape(t, reg, fmt.Sprintf("# TYPE weir_stream_workers gauge\nweir_stream_workers{group=\"billing\",queue_type=\"redis\",stream=\"orders\"} %d\n", workers),
				"weir_stream_workers")
			if t.Failed() {
				t.Fatal(when)
			}
		}
		run := func(workers int) (end func()) {
			pool, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error { return nil },
				weir.PoolConfig{Workers: workers, Hooks: m.Hooks(), Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			return func() {
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		first := run(2)
		shows("one pool", 2)
		second := run(3)
		shows("two pools", 5)
		first()
		shows("the first has ended", 3)
		second()
		shows("both have ended", 0)

		one, other := m.Hooks(), m.Hooks()
		one.PublishAttempt(orders, 1)
		for _, told := range []struct {
			by         weir.Hooks
			near, then bool
		}{{one, true, true}, {other, true, true}, {one, false, true}, {other, false, false}} {
			told.by.NearCapacity(orders, told.near)
			want := 0
			if told.then {
				want = 1
			}
			scrape(t, reg, fmt.Sprintf("# TYPE weir_stream_near_capacity gauge\nweir_stream_near_capacity{group=\"billing\",queue_type=\"redis\",stream=\"orders\"} %d\n", want),
				"weir_stream_near_capacity")
		}
	})
}
