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
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend/backendtest"
	streams "github.com/weirmq/weir/open"
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

// Whatever the guard goes by, it is seen that no worker says how loaded it is, and a producer that has
// nothing to publish does not go on telling what it read last.
func TestThatNobodyWorksIsSeenWithEveryGuard(t *testing.T) {
	for name, c := range map[string]weir.ProducerConfig{
		"default": {}, "static": {Guard: weir.GuardStatic}, "backlog": {Guard: weir.GuardStatic, LagSignal: weir.SignalBacklog},
		"shadow": {Guard: weir.GuardShadow}, "off": {Guard: weir.GuardOff},
	} {
		bubble.Run(t, func(t *testing.T) {
			reg, hooks := open(t)
			fake := backendtest.NewFake(backendtest.FakeOptions{Kind: "redis", Stream: "orders", Group: "billing"})
			c.Hooks, c.Logger = hooks, slog.New(slog.DiscardHandler)
			p, err := weir.NewProducer(weir.New(fake), c)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			shows := func(when, want string) {
				t.Helper()
				hooks.Measured(orders, weir.Measurement{}) // a pool of the same process goes on
				if want != "" {
					want = "# TYPE weir_stream_attended gauge\nweir_stream_attended{group=\"billing\",queue_type=\"redis\",stream=\"orders\"} " + want + "\n"
				}
				if scrape(t, reg, want, "weir_stream_attended"); t.Failed() {
					t.Fatalf("%s: %s", name, when)
				}
			}
			publish := func() {
				t.Helper()
				for range 2 {
					if err := p.Publish(t.Context(), weir.Message{}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
			}
			work := func() {
				t.Helper()
				if err := fake.PublishSignal(t.Context(), 10*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			shows("nothing is read yet", "")
			publish()
			shows("nobody works", "0")
			work()
			publish()
			shows("somebody works", "1")
			time.Sleep(10 * time.Second)
			publish()
			shows("nobody works any more", "0")
			work()
			time.Sleep(StaleAfter)
			shows("nothing was published for a minute", "")
		})
	}
}

// What a server counts itself does not say that there are workers.
func TestAServersOwnCountSaysNothingAboutWorkers(t *testing.T) {
	reg, hooks := open(t)
	s, err := streams.URL(t.Context(), "mem://orders")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{Hooks: hooks, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), weir.Message{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if read, told := testutil.CollectAndCount(reg, "weir_stream_lag_known"), testutil.CollectAndCount(reg, "weir_stream_attended"); read != 1 || told != 0 {
		t.Errorf("%d readings, and %d of them say whether somebody works", read, told)
	}
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
