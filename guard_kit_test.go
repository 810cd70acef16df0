package weir_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// guarded is a producer over a fake and what it told its hooks and its logger.
type guarded struct {
	*weir.Producer
	fake *backendtest.Fake
	log  *stageLines

	mu       sync.Mutex
	slowed   map[weir.SlowKind][]time.Duration
	slowing  []string // kind and why, of delays that have begun
	tries    []int
	shadowed []string
	known    []bool
	near     []bool
	failed   map[string]int
	stored   int
	attempts int
}

// guard makes one, whose mode is static if c has none. It belongs into a bubble.
func guard(t *testing.T, c weir.ProducerConfig) *guarded {
	t.Helper()
	g := &guarded{
		fake: backendtest.NewFake(backendtest.FakeOptions{}), log: &stageLines{},
		slowed: map[weir.SlowKind][]time.Duration{}, failed: map[string]int{},
	}
	if c.Guard == "" {
		c.Guard = weir.GuardStatic
	}
	if c.ShadowOf == "" && c.Guard == weir.GuardShadow {
		c.ShadowOf = weir.GuardStatic
	}
	c.Logger = slog.New(g.log)
	c.Hooks = g.hooks()
	p, err := weir.NewProducer(weir.New(g.fake), c)
	if err != nil {
		t.Fatal(err)
	}
	g.Producer = p
	t.Cleanup(func() { _ = p.Close() })
	return g
}

func (g *guarded) hooks() weir.Hooks {
	locked := func(do func()) {
		g.mu.Lock()
		defer g.mu.Unlock()
		do()
	}
	return weir.Hooks{
		PublishAttempt: func(_ weir.StreamName, n int) { locked(func() { g.attempts += n }) },
		Published:      func(_ weir.StreamName, n int, _ time.Duration) { locked(func() { g.stored += n }) },
		PublishFailed:  func(_ weir.StreamName, n int, why string) { locked(func() { g.failed[why] += n }) },
		Slowing: func(_ weir.StreamName, k weir.SlowKind, why string) {
			locked(func() { g.slowing = append(g.slowing, string(k)+": "+why) })
		},
		Slowed: func(_ weir.StreamName, k weir.SlowKind, d time.Duration) {
			locked(func() { g.slowed[k] = append(g.slowed[k], d) })
		},
		BackpressureRetry: func(_ weir.StreamName, try int) { locked(func() { g.tries = append(g.tries, try) }) },
		Shadowed:          func(_ weir.StreamName, d string) { locked(func() { g.shadowed = append(g.shadowed, d) }) },
		NearCapacity:      func(_ weir.StreamName, near bool) { locked(func() { g.near = append(g.near, near) }) },
		SignalKnown:       func(_ weir.StreamName, known bool) { locked(func() { g.known = append(g.known, known) }) },
	}
}

// pretend sets the numbers of the stream: what workers published, and how many wait.
func (g *guarded) pretend(workers, lag int64) {
	g.fake.Pretend(&backend.Signal{Workers: &workers, Pending: workers, Lag: &lag, XLen: workers + lag})
}

// timed publishes one message and returns how long it took.
func (g *guarded) timed(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := g.Publish(ctx, weir.Message{Data: []byte("x")})
	return time.Since(began), err
}

// several begins n publishes, none of which may fail.
func several(t *testing.T, n int, p *weir.Producer) *sync.WaitGroup {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := p.Publish(t.Context(), weir.Message{}); err != nil {
				t.Error(err)
			}
		})
	}
	return &all
}

// whileWaiting calls do with guards of which each makes a publish wait for another reason,
// and with what an error has to say of it.
func whileWaiting(t *testing.T, do func(t *testing.T, g *guarded, want string)) {
	full := &backend.FullError{Reason: backend.ReasonQueueFull, Err: errors.New("the disk is full")}
	for name, c := range map[string]struct {
		config       weir.ProducerConfig
		workers, lag int64
		fault        error
		before       int // publishes before it
		want         string
	}{
		"soft limit": {workers: 60, want: "60 messages are pending, more than lag_warn 50"},
		"hard limit": {workers: 201, want: "201 messages are pending, more than lag_pause 200"},
		"backlog":    {config: weir.ProducerConfig{LagSignal: weir.SignalBacklog}, workers: 1, lag: 60, want: "the backlog is 61, more than lag_warn 50"},
		"depth":      {lag: 8000, want: "depth 8000; the limit is 8000"},
		"server":     {fault: full, want: "the disk is full"},
		"window":     {config: weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWait: true}, before: 1, want: "as many as QUEUE_LOAD_SHEDDING_MAX_REQUESTS allows"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				for range c.before {
					if _, err := g.timed(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				g.pretend(c.workers, c.lag)
				if c.fault != nil {
					g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.fault})
				}
				do(t, g, c.want)
			})
		})
	}
}

// entries is how many messages the fake holds.
func (g *guarded) entries(t *testing.T) int64 {
	t.Helper()
	g.fake.Pretend(nil)
	s, err := g.fake.Stats(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return s.XLen
}

// stageLines is a slog.Handler that keeps what it is given.
type stageLines struct {
	mu  sync.Mutex
	all []slog.Record
}

func (l *stageLines) Enabled(context.Context, slog.Level) bool { return true }
func (l *stageLines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *stageLines) WithGroup(string) slog.Handler            { return l }
func (l *stageLines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Clone())
	return nil
}

// stageLine is a record's time and attributes.
type stageLine struct {
	at    time.Time
	text  string
	attrs map[string]slog.Value
}

// of returns the lines of a stage; "" is those without one.
func (l *stageLines) of(stage string) (found []stageLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.all {
		one := stageLine{r.Time, r.Message, map[string]slog.Value{}}
		r.Attrs(func(a slog.Attr) bool {
			one.attrs[a.Key] = a.Value
			return true
		})
		if got, ok := one.attrs["stage"]; ok && got.String() == stage || !ok && stage == "" {
			found = append(found, one)
		}
	}
	return found
}

func wantList[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// quiet is a logger for tests that do not look at lines.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
