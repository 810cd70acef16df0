package library

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/config"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/telemetry"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/redistest"
)

const (
	backlog  = 10_000
	requests = 1_500
)

// step is one start of the service with another environment.
type step struct {
	name string
	env  map[string]string
	// What becomes of the requests, by reason; the rest is stored.
	shed, full int
	once       bool // a full queue is looked at once only
	shadowed   map[string]int
}

// looks is how often a full queue is looked at again.
func (s *step) looks() int {
	if s.once {
		return 0
	}
	return 3
}

// The roll-out of a guard with fixed limits and the way back, by environment alone, and the
// default guard. WEIR_GUARD and WEIR_SHADOW_OF are static where a step does not say so.
var steps = []step{
	{name: "before", env: map[string]string{"WEIR_GUARD": "off"}},
	{name: "rehearsal", env: map[string]string{"WEIR_GUARD": "shadow"},
		shadowed: map[string]int{"load_shedding": 500, "depth": 1000}},
	{name: "backpressure without shedding", env: map[string]string{"QUEUE_LOAD_SHEDDING_ENABLED": "false"}, full: 1500},
	{name: "shedding, conservative", env: map[string]string{"QUEUE_LOAD_SHEDDING_MAX_REQUESTS": "1200"}, shed: 300, full: 1200},
	{name: "the documents' numbers", shed: 500, full: 1000},
	{name: "back: no shedding", env: map[string]string{"QUEUE_LOAD_SHEDDING_ENABLED": "false"}, full: 1500},
	{name: "back: a higher threshold", env: map[string]string{
		"QUEUE_LOAD_SHEDDING_ENABLED": "false", "QUEUE_MAX_DEPTH": "20000", "QUEUE_BACKPRESSURE_THRESHOLD": "0.95"}},
	{name: "back: off", env: map[string]string{"WEIR_GUARD": "off"}},
	{name: "the default guard", env: map[string]string{"WEIR_GUARD": ""}, full: 1500, once: true},
	{name: "the default guard with a window", env: map[string]string{"WEIR_GUARD": "", "QUEUE_LOAD_SHEDDING_MAX_REQUESTS": "3000"}, full: 1500, once: true},
}

// A queue of 10,000 messages that nobody works on gets 1,500 requests at once.
func TestGuardIsRolledOutAndBackByEnvironmentAlone(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	rollOut(t, steps, func(t *testing.T, name string) string {
		if err := server.Client().XGroupCreateMkStream(t.Context(), name, "weir", "0").Err(); err != nil {
			t.Fatal(err)
		}
		return server.URL() + "?stream=" + name
	})
}

// The steps that differ most, on a Kafka broker, in a group that a worker has joined and left.
func TestGuardIsRolledOutAndBackByEnvironmentAloneOnKafka(t *testing.T) {
	broker := kafkatest.Start(t, kafkatest.Options{})
	some := []step{steps[1], steps[4], steps[7], steps[8]}
	rollOut(t, some, func(t *testing.T, name string) string {
		url := broker.URL() + "/" + name + "?partitions=4"
		worker, err := open.URL(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		defer worker.Close()
		if _, err := worker.Backend().Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: time.Minute}); err != nil {
			t.Fatal(err)
		}
		return url
	})
}

// rollOut takes each step with a stream of its own, whose group create makes.
func rollOut(t *testing.T, steps []step, create func(t *testing.T, name string) (url string)) {
	for i, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			shop := openShop(t, create(t, "jobs-"+strconv.Itoa(i)), s.env)
			got := shop.rush()
			t.Logf("of %d requests %d stored, refused %v, shadow %v; slowest refusal at the door %s",
				requests, got.stored, got.refused, got.shadowed, got.slowestShed.Round(time.Microsecond))
			want := map[string]int{}
			for reason, n := range map[string]int{"load_shedding": s.shed, "queue_full": s.full} {
				if n > 0 {
					want[reason] = n
				}
			}
			if !maps.Equal(got.refused, want) || got.stored != requests-s.shed-s.full {
				t.Errorf("stored %d and refused %v, want refused %v", got.stored, got.refused, want)
			}
			if !maps.Equal(got.shadowed, s.shadowed) {
				t.Errorf("shadow counted %v, want %v", got.shadowed, s.shadowed)
			}
			if stats, err := shop.stream.Backend().Stats(t.Context()); err != nil || stats.XLen != int64(backlog+got.stored) {
				t.Errorf("%d entries stored, %v: want %d and the %d", stats.XLen, err, backlog, got.stored)
			}
			shop.checkMetrics(s, got)
			shop.checkLines(s, got.took)
		})
	}
}

// shop is a service that publishes, as one environment starts it.
type shop struct {
	t        *testing.T
	stream   *weir.Stream
	producer *weir.Producer
	metrics  *httptest.Server
	lines    *lines
}

// openShop starts the service over a stream with a backlog.
func openShop(t *testing.T, url string, env map[string]string) *shop {
	t.Helper()
	settings, err := config.Load(config.Options{Lookup: func(name string) (string, bool) {
		text, ok := env[name]
		switch {
		case ok:
		case name == "WEIR_GUARD", name == "WEIR_SHADOW_OF":
			return "static", true
		case name == "WEIR_SHED_WINDOW":
			return "1m", true // so that a busy machine gets all requests into one window
		}
		return text, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	fill(t, stream)
	registry := prometheus.NewRegistry()
	m, err := telemetry.NewPrometheus(registry)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{t: t, stream: stream, lines: &lines{}, metrics: httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))}
	t.Cleanup(s.metrics.Close)
	c := settings.Producer
	c.Hooks, c.Logger = m.Hooks(), slog.New(s.lines)
	if s.producer, err = weir.NewProducer(stream, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.producer.Close() })
	return s
}

func fill(t *testing.T, s *weir.Stream) {
	t.Helper()
	msgs := make([]weir.Message, 1000)
	for range backlog / len(msgs) {
		if _, err := s.Backend().Append(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
	}
}

// outcome is what became of the requests.
type outcome struct {
	stored            int
	refused, shadowed map[string]int
	slowestShed, took time.Duration
}

// rush publishes all requests at once.
func (s *shop) rush() outcome {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	o := outcome{refused: map[string]int{}}
	var mu sync.Mutex
	var all sync.WaitGroup
	start := make(chan struct{})
	for range requests {
		all.Go(func() {
			<-start
			began := time.Now()
			err := s.producer.Publish(ctx, weir.Message{Data: []byte("order")})
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			var full *weir.QueueFullError
			switch {
			case err == nil:
				o.stored++
			case !errors.As(err, &full) || full.RetryAfter <= 0 || full.MaxDepth == 0 || full.Reason == weir.QueueFull && full.Depth < backlog:
				s.t.Errorf("got %v, want a complete refusal", err)
			default:
				o.refused[string(full.Reason)]++
				if full.Reason == weir.LoadShedding {
					o.slowestShed = max(o.slowestShed, took)
				}
			}
		})
	}
	began := time.Now()
	close(start)
	all.Wait()
	_ = s.producer.Close() // writes the lines that it held back
	o.took = time.Since(began)
	o.shadowed = s.shadowDecisions()
	return o
}

// scrape reads the metrics as Prometheus does.
func (s *shop) scrape() map[string]float64 {
	answer, err := http.Get(s.metrics.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		name, number, ok := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(number, 64); ok && err == nil {
			values[name] = value
		}
	}
	return values
}

func (s *shop) shadowDecisions() map[string]int {
	var found map[string]int
	for name, n := range s.scrape() {
		if rest, ok := strings.CutPrefix(name, "weir_stream_shadow_decisions_total{"); ok && n > 0 {
			_, rest, _ = strings.Cut(rest, `decision="`)
			decision, _, _ := strings.Cut(rest, `"`)
			if found == nil {
				found = map[string]int{}
			}
			found[decision] += int(n)
		}
	}
	return found
}

func (s *shop) checkMetrics(want step, got outcome) {
	labels := `queue_type="` + s.stream.Info().Kind + `",`
	stream := s.stream.Info().Stream
	values := s.scrape()
	for name, n := range map[string]int{
		`sse_queue_produce_attempts_total{` + labels + `stream="` + stream + `"}`:                        requests,
		`sse_queue_produce_success_total{` + labels + `stream="` + stream + `"}`:                         got.stored,
		`sse_queue_produce_failures_total{` + labels + `reason="load_shedding",stream="` + stream + `"}`: want.shed,
		`sse_queue_produce_failures_total{` + labels + `reason="queue_full",stream="` + stream + `"}`:    want.full,
		`sse_queue_backpressure_retries_total{` + labels + `stream="` + stream + `"}`:                    want.looks() * want.full,
	} {
		if value, ok := values[name]; !ok || int(value) != n {
			s.t.Errorf("%s is %v, want %d", name, value, n)
		}
	}
	// A guard that is off lets everything through before its first reading.
	if depth := values[`sse_queue_depth{queue_name="`+stream+`"}`]; depth < backlog && want.env["WEIR_GUARD"] != "off" {
		s.t.Errorf("sse_queue_depth is %v", depth)
	}
}

// checkLines compares what the lines of each stage stand for.
func (s *shop) checkLines(want step, took time.Duration) {
	for stage, n := range map[string]int{
		"QUEUE.LOAD_SHEDDING": want.shed + want.shadowed["load_shedding"],
		"QUEUE.RETRY":         want.looks() * want.full,
		"QUEUE.BACKPRESSURE":  want.full,
		"QUEUE.WARNING":       (1+want.looks())*want.full + want.shadowed["depth"],
	} {
		told, lines := s.lines.of(stage)
		if told != n {
			s.t.Errorf("%s: %d lines stand for %d events, want %d", stage, lines, told, n)
		}
		// One at once, one for each second that is over, and what is left at the end.
		if most := int(took/time.Second) + 2; lines > most {
			s.t.Errorf("%s: %d lines in %s, want at most %d", stage, lines, took, most)
		}
	}
}

// lines is a slog.Handler that keeps what it is given.
type lines struct {
	mu  sync.Mutex
	all []slog.Record
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Clone())
	return nil
}

// of returns how many events the lines of a stage stand for, and how many lines there are.
func (l *lines) of(stage string) (events, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		var one int
		found := false
		r.Attrs(func(a slog.Attr) bool {
			found = found || a.Key == "stage" && a.Value.String() == stage
			if a.Key == "count" {
				one = int(a.Value.Int64())
			}
			return true
		})
		if found {
			events, count = events+one, count+1
		}
	}
	return events, count
}

// quiet is a logger for what a test does not look at.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
