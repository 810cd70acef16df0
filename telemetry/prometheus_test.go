package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/bubble"
)

var orders = weir.StreamName{Kind: "redis", Stream: "orders", Group: "billing"}

func open(t *testing.T) (*prometheus.Registry, weir.Hooks) {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	p, err := NewPrometheus(reg)
	if err != nil {
		t.Fatal(err)
	}
	return reg, p.Hooks()
}

// scrape compares the whole text of the named metrics, help left out.
func scrape(t *testing.T, reg *prometheus.Registry, want string, names ...string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	for _, f := range families {
		help[f.GetName()] = f.GetHelp()
	}
	var text strings.Builder
	for line := range strings.Lines(want) {
		if name, kind, ok := strings.Cut(strings.TrimPrefix(line, "# TYPE "), " "); ok && strings.HasPrefix(line, "# TYPE ") {
			fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s", name, help[name], name, kind)
			continue
		}
		text.WriteString(line)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(text.String()), names...); err != nil {
		t.Error(err)
	}
}

func lagOf(n int64) *int64 { return &n }

func TestThePublicNamesAreExact(t *testing.T) {
	reg, h := open(t)
	h.PublishAttempt(orders, 3)
	h.Published(orders, 2, time.Millisecond)
	h.PublishFailed(orders, 1, string(weir.QueueFull))
	h.BackpressureRetry(orders, 1)
	h.BackpressureRetry(orders, 2)
	h.Measured(orders, weir.Measurement{Depth: 8001, Pending: lagOf(1), Lag: lagOf(8000)})
	h.Measured(weir.StreamName{Kind: "redis", Stream: "orders", Group: "mail"}, weir.Measurement{Depth: 5})
	scrape(t, reg, `# TYPE sse_queue_backpressure_retries_total counter
sse_queue_backpressure_retries_total{queue_type="redis",stream="orders"} 2
# TYPE sse_queue_depth gauge
sse_queue_depth{queue_name="orders"} 8001
# TYPE sse_queue_produce_attempts_total counter
sse_queue_produce_attempts_total{queue_type="redis",stream="orders"} 3
# TYPE sse_queue_produce_failures_total counter
sse_queue_produce_failures_total{queue_type="redis",reason="buffer_full",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="cancelled",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="error",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="expired",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="load_shedding",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="outcome_unknown",stream="orders"} 0
sse_queue_produce_failures_total{queue_type="redis",reason="queue_full",stream="orders"} 1
sse_queue_produce_failures_total{queue_type="redis",reason="unavailable",stream="orders"} 0
# TYPE sse_queue_produce_success_total counter
sse_queue_produce_success_total{queue_type="redis",stream="orders"} 2
`, "sse_queue_backpressure_retries_total", "sse_queue_depth", "sse_queue_produce_attempts_total",
		"sse_queue_produce_failures_total", "sse_queue_produce_success_total")
}

func TestDeliveriesAreCountedByOutcome(t *testing.T) {
	reg, h := open(t)
	h.Settled(orders, weir.Acked, 7)
	h.Settled(orders, weir.Dead, 1)
	h.Settled(orders, weir.Returned, 2)
	h.Settled(orders, weir.Expired, 6)
	h.Reclaimed(orders, 4)
	h.Workers(orders, 20, 3)
	h.Slowed(orders, weir.HardPause, 1500*time.Millisecond)
	h.Shadowed(orders, string(weir.LoadShedding))
	h.SignalKnown(orders, false)
	h.Handled(orders, time.Millisecond, nil)
	h.Handled(orders, time.Millisecond, errors.New("no"))
	scrape(t, reg, `# TYPE weir_stream_messages_total counter
weir_stream_messages_total{group="billing",outcome="acked",queue_type="redis",stream="orders"} 7
weir_stream_messages_total{group="billing",outcome="dead",queue_type="redis",stream="orders"} 1
weir_stream_messages_total{group="billing",outcome="expired",queue_type="redis",stream="orders"} 6
weir_stream_messages_total{group="billing",outcome="lost",queue_type="redis",stream="orders"} 0
weir_stream_messages_total{group="billing",outcome="retried",queue_type="redis",stream="orders"} 0
weir_stream_messages_total{group="billing",outcome="returned",queue_type="redis",stream="orders"} 2
# TYPE weir_stream_reclaimed_total counter
weir_stream_reclaimed_total{group="billing",queue_type="redis",stream="orders"} 4
# TYPE weir_stream_shadow_decisions_total counter
weir_stream_shadow_decisions_total{decision="load_shedding",group="billing",queue_type="redis",stream="orders"} 1
# TYPE weir_stream_signal_known gauge
weir_stream_signal_known{group="billing",queue_type="redis",stream="orders"} 0
# TYPE weir_stream_slowed_seconds_total counter
weir_stream_slowed_seconds_total{group="billing",kind="pause",queue_type="redis",stream="orders"} 1.5
# TYPE weir_stream_workers gauge
weir_stream_workers{group="billing",queue_type="redis",stream="orders"} 20
# TYPE weir_stream_workers_busy gauge
weir_stream_workers_busy{group="billing",queue_type="redis",stream="orders"} 3
`, "weir_stream_messages_total", "weir_stream_reclaimed_total", "weir_stream_shadow_decisions_total",
		"weir_stream_signal_known", "weir_stream_slowed_seconds_total", "weir_stream_workers", "weir_stream_workers_busy")
	if n := testutil.CollectAndCount(reg, "weir_stream_handler_seconds"); n != 2 {
		t.Errorf("%d series of handler times, want ok and error", n)
	}
}

func TestWhatIsNotKnownIsAbsent(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		reg, h := open(t)
		age := 90 * time.Second
		h.Measured(orders, weir.Measurement{Depth: 12, Pending: lagOf(2), Lag: lagOf(10), OldestAge: &age, DeadLetters: lagOf(1)})
		time.Sleep(StaleAfter / 2)
		h.Measured(orders, weir.Measurement{Depth: 30}) // the server lost its lag; the rest was not asked for
		labels := `{group="billing",queue_type="redis",stream="orders"}`
		names := []string{"sse_queue_depth", "weir_stream_lag", "weir_stream_lag_known", "weir_stream_pending",
			"weir_stream_oldest_age_seconds", "weir_stream_dead_letters"}
		scrape(t, reg, "# TYPE sse_queue_depth gauge\nsse_queue_depth{queue_name=\"orders\"} 30\n"+
			"# TYPE weir_stream_dead_letters gauge\nweir_stream_dead_letters"+labels+" 1\n"+
			"# TYPE weir_stream_lag_known gauge\nweir_stream_lag_known"+labels+" 0\n"+
			"# TYPE weir_stream_oldest_age_seconds gauge\nweir_stream_oldest_age_seconds"+labels+" 90\n"+
			"# TYPE weir_stream_pending gauge\nweir_stream_pending"+labels+" 2\n", names...)
		time.Sleep(StaleAfter / 2)
		scrape(t, reg, "# TYPE sse_queue_depth gauge\nsse_queue_depth{queue_name=\"orders\"} 30\n"+
			"# TYPE weir_stream_lag_known gauge\nweir_stream_lag_known"+labels+" 0\n", names...)
		time.Sleep(StaleAfter / 2)
		if n := testutil.CollectAndCount(reg, names...); n != 0 {
			t.Errorf("%d gauges are left of readings that are too old", n)
		}
	})
}

// What a guard knew when it was asked last says nothing about now: a producer that has nothing
// to publish had the alert on missing workers fire for ever.
func TestWhatAGuardKnewLastIsNotShownForEver(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		reg, h := open(t)
		shown := func(when string, want int) {
			t.Helper()
			h.Measured(orders, weir.Measurement{}) // a pool of the same process goes on
			for _, name := range []string{"weir_stream_signal_known", "weir_stream_near_capacity"} {
				if n := testutil.CollectAndCount(reg, name); n != want {
					t.Errorf("%s: %d of %s", when, n, name)
				}
			}
		}
		h.PublishAttempt(orders, 1)
		h.SignalKnown(orders, false)
		h.NearCapacity(orders, true)
		shown("at once", 1)
		time.Sleep(StaleAfter)
		shown("nothing was published for a minute", 0)
		h.PublishAttempt(orders, 1)
		shown("published again, and nothing has changed", 1)
		h.Slowing(orders, weir.HardPause, "")
		time.Sleep(10 * StaleAfter)
		shown("a publish waits", 1)
		h.Slowed(orders, weir.HardPause, 10*StaleAfter)
		time.Sleep(StaleAfter)
		shown("it is over", 0)
	})
}

func TestTheNumberOfStreamsIsBounded(t *testing.T) {
	reg, h := open(t)
	for i := range MaxStreams + 50 {
		s := weir.StreamName{Kind: "http", Stream: fmt.Sprint("s", i), Group: "weir"}
		h.Settled(s, weir.Acked, 1)
		h.Measured(s, weir.Measurement{Depth: 1})
	}
	if n := testutil.CollectAndCount(reg, "sse_queue_depth"); n != MaxStreams {
		t.Errorf("%d streams have a depth, want %d", n, MaxStreams)
	}
	if n := testutil.CollectAndCount(reg, "weir_stream_reclaimed_total"); n != MaxStreams+1 {
		t.Errorf("%d series, want one for each of %d streams and one for the others", n, MaxStreams)
	}
	scrape(t, reg, "# TYPE weir_stream_metrics_truncated gauge\nweir_stream_metrics_truncated 1\n", "weir_stream_metrics_truncated")
}

// Redis takes any bytes for a name, Prometheus does not.
func TestNamesThatAreNotUTF8AreCounted(t *testing.T) {
	reg, h := open(t)
	for _, name := range []string{"a\xff", "a\xfe"} {
		s := weir.StreamName{Kind: "redis", Stream: name, Group: "g\xff"}
		h.PublishAttempt(s, 1)
		h.PublishFailed(s, 1, "error")
		h.Slowed(s, weir.SoftSleep, time.Second)
		h.Measured(s, weir.Measurement{Depth: 5, XLen: lagOf(5)})
	}
	scrape(t, reg, `# TYPE sse_queue_depth gauge
sse_queue_depth{queue_name="a�"} 5
# TYPE sse_queue_produce_attempts_total counter
sse_queue_produce_attempts_total{queue_type="redis",stream="a�"} 2
# TYPE weir_stream_entries gauge
weir_stream_entries{group="g�",queue_type="redis",stream="a�"} 5
`, "sse_queue_depth", "sse_queue_produce_attempts_total", "weir_stream_entries")
}

func TestARegistryTakesTheMetricsOnce(t *testing.T) {
	reg, _ := open(t)
	if _, err := NewPrometheus(reg); err == nil || !strings.Contains(err.Error(), "already in this registry") {
		t.Errorf("second registration: %v", err)
	}
}

func TestCountingAPublishAllocatesNothing(t *testing.T) {
	_, h := open(t)
	publish := func() {
		h.PublishAttempt(orders, 1)
		h.Published(orders, 1, time.Millisecond)
		h.Settled(orders, weir.Acked, 1)
		h.Handled(orders, time.Millisecond, nil)
	}
	publish()
	if n := testing.AllocsPerRun(100, publish); n != 0 {
		t.Errorf("%v allocations for each message", n)
	}
}
