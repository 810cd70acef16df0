package weir_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

func TestAPublishStoresItsMessage(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		m := weir.Message{Data: []byte("1"), Headers: map[string]string{"a": "b"}, Priority: weir.High, FairKey: "k"}
		if err := g.Publish(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if err := g.PublishBatch(t.Context(), []weir.Message{{Data: []byte("2")}, {Data: []byte("3")}}); err != nil {
			t.Fatal(err)
		}
		if err := g.TryPublish(t.Context(), weir.Message{Data: []byte("4")}); err != nil {
			t.Fatal(err)
		}
		if err := g.PublishBatch(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		records, err := g.fake.Read(t.Context(), backend.ReadRequest{Max: 10})
		if err != nil || len(records.Records) != 4 {
			t.Fatalf("stored %v, %v", records, err)
		}
		for i, r := range records.Records {
			if string(r.Data) != string(rune('1'+i)) {
				t.Errorf("record %d is %q: order or data changed", i, r.Data)
			}
		}
		if h := records.Records[0].Headers; h["a"] != "b" || h[backend.HeaderPriority] != "high" || h[backend.HeaderFairKey] != "k" {
			t.Errorf("headers %v", h)
		}
		if g.attempts != 4 || g.stored != 4 || len(g.failed) != 0 {
			t.Errorf("told of %d attempts, %d stored, %v failed", g.attempts, g.stored, g.failed)
		}
	})
}

func TestMessageThatCannotBeIsRefusedWithTheField(t *testing.T) {
	long := strings.Repeat("x", 257)
	many := map[string]string{}
	for i := range 61 {
		many[strings.Repeat("h", i+1)] = ""
	}
	for want, m := range map[string]weir.Message{
		"Priority: 3":                               {Priority: 3},
		"Priority: -4":                              {Priority: -4},
		"FairKey: must be at most 256 bytes":        {FairKey: long},
		"FairKey: must be":                          {FairKey: "\xff"},
		"IdempotencyKey: must be at most 256 bytes": {IdempotencyKey: long},
		"IdempotencyKey: must be":                   {IdempotencyKey: "\xff"},
		`"weir-tag"`:                                {Headers: map[string]string{"weir-tag": "a"}},
		`"data"`:                                    {Headers: map[string]string{"data": "a"}},
		`"enqueue_ts"`:                              {Headers: map[string]string{"enqueue_ts": "1"}},
		`header ""`:                                 {Headers: map[string]string{"": "a"}},
		"a name must be":                            {Headers: map[string]string{long: "a"}},
		`header "\xff"`:                             {Headers: map[string]string{"\xff": "a"}},
		`header "bytes"`:                            {Headers: map[string]string{"bytes": "\xff"}},
		"61 entries":                                {Headers: many},
		"MaxDeliveries: -1":                         {MaxDeliveries: -1},
		"Timeout: -1s":                              {Timeout: -time.Second},
		"Timeout: 999µs":                            {Timeout: 999 * time.Microsecond},
	} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1})
			if err := g.Publish(t.Context(), m); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %s", err, want)
			}
			err := g.PublishBatch(t.Context(), []weir.Message{{}, m})
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "message 1") {
				t.Errorf("in a batch: %v", err)
			}
			if g.fake.Calls(backendtest.OpAppend) != 0 || g.attempts != 3 || g.failed["error"] != 3 {
				t.Errorf("attempts %d, failed %v", g.attempts, g.failed)
			}
			if err := g.Publish(t.Context(), weir.Message{}); err != nil {
				t.Errorf("it took the window's only request: %v", err)
			}
		})
	}
}

func TestAMessageAtItsLimitsIsStored(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		longest := strings.Repeat("x", 256)
		m := weir.Message{FairKey: longest, IdempotencyKey: longest, Timeout: time.Millisecond, Headers: map[string]string{longest: ""}}
		for len(m.Headers) < 60 {
			m.Headers[strings.Repeat("h", len(m.Headers))] = ""
		}
		if err := g.Publish(t.Context(), m); err != nil {
			t.Error(err)
		}
	})
}

func TestConfigurationThatCannotBeIsRefused(t *testing.T) {
	s := weir.New(backendtest.NewFake(backendtest.FakeOptions{}))
	for want, c := range map[string]weir.ProducerConfig{
		"Guard":                             {Guard: "on"},
		"ShadowOf":                          {ShadowOf: weir.GuardShadow},
		"LagPoll":                           {LagPoll: -1},
		"LagWarn 300 is above LagPause 200": {LagWarn: 300},
	} {
		if _, err := weir.NewProducer(s, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", c, err, want)
		}
	}
	p, err := weir.NewProducer(s, weir.ProducerConfig{LagPause: 20})
	if err != nil {
		t.Fatalf("a hard limit below the default of the soft one: %v", err)
	}
	_ = p.Close()
}

// The error of a number that is out of range names the one, too, that stands for something else.
func TestTheErrorOfANumberSaysWhatMinusOneMeans(t *testing.T) {
	pool := func(c weir.PoolConfig) error { return c.WithDefaults().Validate() }
	producer := func(c weir.ProducerConfig) error { return c.WithDefaults().Validate() }
	for want, err := range map[string]error{
		"Workers -2 is out of range: use 1 to 10000, or -1 (AutoWorkers)":             pool(weir.PoolConfig{Workers: -2}),
		"MaxDeliveries -2 is out of range: use 1 to 1073741824, or -1 to turn it off": pool(weir.PoolConfig{MaxDeliveries: -2}),
		"LagWarn -2 is out of range: use 1 to 1099511627776, or -1 to turn it off":    producer(weir.ProducerConfig{LagWarn: -2}),
		"ShedConcurrency -1 is out of range: use 0 to 1048576":                        producer(weir.ProducerConfig{ShedConcurrency: -1}),
		"Workers 10001 is out of range: use 1 to 10000, or -1 (AutoWorkers)":          pool(weir.PoolConfig{Workers: 10001}),
		"BackpressureRetries -2 is out of range: use 1 to 20, or -1 to turn it off":   producer(weir.ProducerConfig{BackpressureRetries: -2}),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Of a bare number, which is one of nanoseconds, each time of a configuration says that it is
// too short.
func TestANumberWithoutAUnitIsNoTime(t *testing.T) {
	refuses := func(c any, validate func() error) {
		fields := reflect.ValueOf(c).Elem()
		for i := range fields.NumField() {
			field, name := fields.Field(i), fields.Type().Field(i).Name
			if _, ok := field.Interface().(time.Duration); !ok {
				continue
			}
			before := field.Int()
			field.SetInt(30)
			if err := validate(); err == nil || !strings.Contains(err.Error(), name+" 30ns is out of range: use ") {
				t.Errorf("%T with %s: 30 gives %v", c, name, err)
			}
			field.SetInt(before)
		}
		if err := validate(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
	producer, pool, redrive := weir.ProducerConfig{}.WithDefaults(), weir.PoolConfig{}.WithDefaults(), weir.RedriveConfig{}.WithDefaults()
	refuses(&producer, func() error { return producer.Validate() })
	refuses(&pool, func() error { return pool.Validate() })
	refuses(&redrive, func() error { return redrive.Validate() })
}

func TestServerWithoutRoomIsOneMoreFullQueue(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		refuse := backendtest.Fault{Err: backendtest.Full(backend.ReasonQueueFull, 3*time.Second)}
		remove := g.fake.Inject(backendtest.OpAppend, refuse)
		took, err := g.timed(t.Context())
		full := refusedFor(t, err, weir.QueueFull)
		var said *backend.FullError
		if took != 9*time.Second || full.RetryAfter != 3*time.Second || !errors.As(err, &said) {
			t.Errorf("%+v after %s: want three waits of the 3s that the server asks for, and what it said", full, took)
		}
		wantList(t, "tries told", g.tries, []int{1, 2, 3})
		if n := g.fake.Calls(backendtest.OpAppend); n != 4 {
			t.Errorf("%d appends", n)
		}
		remove()
		refuse.Times = 2
		g.fake.Inject(backendtest.OpAppend, refuse)
		if took, err := g.timed(t.Context()); err != nil || took != 6*time.Second {
			t.Errorf("%v after %s, want it stored at the third try", err, took)
		}
	})
}

func TestServersRefusalAndTheDepthShareTheirRetries(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Err: backendtest.Full(backend.ReasonQueueFull, time.Second)})
		time.AfterFunc(1500*time.Millisecond, func() { g.pretend(0, 9000) })
		_, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.QueueFull); full.Depth != 9000 || full.Err != nil {
			t.Errorf("got %+v, want the guard's own refusal", full)
		}
		wantList(t, "tries told", g.tries, []int{1, 2, 3})
	})
}

func TestServerThatDoesNotSayHowLongIsAskedWithBackoff(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backendtest.Full(backend.ReasonQueueFull, 0)})
		took, err := g.timed(t.Context())
		refusedFor(t, err, weir.QueueFull)
		if took < 350*time.Millisecond || took > 1050*time.Millisecond || g.failed["queue_full"] != 1 {
			t.Errorf("%v after %s, failed %v", err, took, g.failed)
		}
	})
}

// The buffer of the client is nobody's refusal: with any guard a publish waits for it as long
// as its context allows, and one that may not wait is told at once.
func TestAFullBufferIsWaitedForWithinTheContext(t *testing.T) {
	for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardAdaptive, weir.GuardOff, weir.GuardShadow} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: mode, BackpressureRetries: -1})
			remove := g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backendtest.Full(backend.ReasonBufferFull, 0)})
			refusedFor(t, g.TryPublish(t.Context(), weir.Message{Data: []byte("x")}), weir.BufferFull)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			took, err := g.timed(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "buffer_full") || took != 20*time.Second {
				t.Errorf("%s: %v after %s", mode, err, took)
			}
			time.AfterFunc(15*time.Second, remove)
			if took, err = g.timed(t.Context()); err != nil || took < 15*time.Second || took > 15200*time.Millisecond {
				t.Errorf("%s: %v after %s, with room after 15s", mode, err, took)
			}
		})
	}
}

func TestLostAnswerIsPassedOnWithoutAKey(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{LoseAnswer: true})
		if _, err := g.timed(t.Context()); !errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
		if n := g.fake.Calls(backendtest.OpAppend); n != 1 || g.failed["outcome_unknown"] != 1 || g.entries(t) != 1 {
			t.Errorf("%d appends, failed %v", n, g.failed)
		}
	})
}

func TestLostAnswerIsAskedForAgainWithAKey(t *testing.T) {
	keyed := weir.Message{IdempotencyKey: "k"}
	t.Run("and found", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{})
			g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, LoseAnswer: true})
			if err := g.Publish(t.Context(), keyed); err != nil {
				t.Error(err)
			}
			if n := g.fake.Calls(backendtest.OpAppend); n != 2 || g.entries(t) != 1 {
				t.Errorf("%d appends, %d entries: want it stored once", n, g.entries(t))
			}
		})
	})
	t.Run("once", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{})
			g.fake.Inject(backendtest.OpAppend, backendtest.Fault{LoseAnswer: true})
			if err := g.Publish(t.Context(), keyed); !errors.Is(err, weir.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			if n := g.fake.Calls(backendtest.OpAppend); n != 2 {
				t.Errorf("%d appends", n)
			}
		})
	})
	t.Run("not after the context", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{})
			g.fake.Inject(backendtest.OpAppend, backendtest.Fault{LoseAnswer: true, Hang: true})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := g.Publish(ctx, keyed); !errors.Is(err, weir.ErrOutcomeUnknown) {
				t.Errorf("got %v", err)
			}
			if n := g.fake.Calls(backendtest.OpAppend); n != 1 {
				t.Errorf("%d appends", n)
			}
		})
	})
	t.Run("and refused: still unknown", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{})
			g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backendtest.Full(backend.ReasonQueueFull, time.Second)})
			g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, LoseAnswer: true})
			err := g.Publish(t.Context(), keyed)
			var full *weir.QueueFullError
			if !errors.Is(err, weir.ErrOutcomeUnknown) || errors.As(err, &full) {
				t.Errorf("got %v: it may be stored, so it is no refusal", err)
			}
		})
	})
}

func TestBatchTellsWhatBecameOfEachMessage(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Stored: 2, Err: backend.ErrUnavailable})
		err := g.PublishBatch(t.Context(), make([]weir.Message, 5))
		var parts *weir.BatchError
		if !errors.As(err, &parts) || len(parts.Errs) != 5 || !errors.Is(err, weir.ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
		for i, err := range parts.Errs {
			if (err == nil) != (i < 2) {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if g.stored != 2 || g.failed["unavailable"] != 3 || g.attempts != 5 {
			t.Errorf("told of %d stored, %v failed", g.stored, g.failed)
		}
	})
}

func TestRestOfABatchIsStoredWhenThereIsRoom(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Stored: 1, Err: backendtest.Full(backend.ReasonQueueFull, time.Second)})
		msgs := []weir.Message{{Data: []byte("a")}, {Data: []byte("b")}, {Data: []byte("c")}, {Data: []byte("d")}}
		if err := g.PublishBatch(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
		records, _ := g.fake.Read(t.Context(), backend.ReadRequest{Max: 10})
		got := ""
		for _, r := range records.Records {
			got += string(r.Data)
		}
		if got != "abcd" {
			t.Errorf("stored %q, want each once and in order", got)
		}
	})
}

func TestBatchThatFailsAsOneReturnsOneError(t *testing.T) {
	for name, c := range map[string]struct {
		fault backendtest.Fault
		want  error
	}{
		"unavailable": {backendtest.Fault{Err: backend.ErrUnavailable}, weir.ErrUnavailable},
		"lost":        {backendtest.Fault{LoseAnswer: true}, weir.ErrOutcomeUnknown},
		"full":        {backendtest.Fault{Err: backendtest.Full(backend.ReasonQueueFull, 1)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, weir.ProducerConfig{})
				g.fake.Inject(backendtest.OpAppend, c.fault)
				err := g.PublishBatch(t.Context(), make([]weir.Message, 3))
				var parts *weir.BatchError
				if errors.As(err, &parts) || c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("got %v", err)
				}
				if c.want == nil {
					refusedFor(t, err, weir.QueueFull)
				}
			})
		})
	}
}

func TestAnOutageIsLoggedOnceWhenItBeginsAndOnceWhenItIsOver(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardOff})
		remove := g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backend.ErrUnavailable})
		for range 3 {
			if err := g.Publish(t.Context(), weir.Message{}); !errors.Is(err, weir.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		remove()
		for range 3 {
			if err := g.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		// The guard in the shadow has lines of its own, whenever its first reading is there.
		said := slices.DeleteFunc(g.log.of(""), func(l stageLine) bool { return !strings.HasPrefix(l.text, "weir: ") })
		if len(said) != 2 || said[0].text != "weir: publishing fails" || said[1].text != "weir: publishing works again" {
			t.Errorf("logged %v", said)
		}
	})
}

// As where one of several servers is away, or the backend takes about as long as TryPublish waits.
func TestPublishesThatFailAndSucceedInTurnsAreNotLoggedEachTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardOff})
		for range 300 { // half a minute
			remove := g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backend.ErrUnavailable})
			if err := g.Publish(t.Context(), weir.Message{}); !errors.Is(err, weir.ErrUnavailable) {
				t.Fatal(err)
			}
			remove()
			if err := g.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		said := slices.DeleteFunc(g.log.of(""), func(l stageLine) bool { return !strings.HasPrefix(l.text, "weir: ") })
		if len(said) != 6 {
			t.Errorf("logged %d lines in half a minute: %v", len(said), said)
		}
	})
}

func TestABatchIsAsLargeAsTheRoom(t *testing.T) {
	backlog := weir.ProducerConfig{LagSignal: weir.SignalBacklog, LagWarn: -1, LagPause: 200}
	for name, c := range map[string]struct {
		config   weir.ProducerConfig
		workers  int64 // what they publish; -1: nothing, and nobody works
		messages int
		stored   int64
		sleeps   int
		appends  int
		takes    time.Duration // until all are stored; 0: they never are
	}{
		"no limit near":        {messages: 500, stored: 500, appends: 1},
		"above the soft limit": {workers: 60, messages: 30, stored: 30, sleeps: 30, appends: 30, takes: 15 * time.Second},
		"up to the hard limit": {config: backlog, workers: -1, messages: 500, stored: 201, appends: 1},
		"up to the soft, then one by one": {
			config:  weir.ProducerConfig{LagSignal: weir.SignalBacklog, LagWarn: 50, LagPause: 60},
			workers: -1, messages: 500, stored: 61, sleeps: 10, appends: 11,
		},
		"up to the depth": {config: weir.ProducerConfig{MaxDepth: 100}, workers: -1, messages: 500, stored: 80, appends: 1},
		"guard off":       {config: weir.ProducerConfig{Guard: weir.GuardOff}, workers: 600, messages: 500, stored: 500, appends: 1},
		"shadow":          {config: weir.ProducerConfig{Guard: weir.GuardShadow}, workers: 600, messages: 500, stored: 500, appends: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				if c.workers >= 0 {
					g.pretend(c.workers, 0)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				began := time.Now()
				err := g.PublishBatch(ctx, make([]weir.Message, c.messages))
				took := time.Since(began)
				if all := c.stored == int64(c.messages); all != (err == nil) || all && took != c.takes {
					t.Errorf("%v after %s", err, took)
				}
				wantFailed(t, err, c.messages-int(c.stored))
				if n := len(g.slowed[weir.SoftSleep]); n != c.sleeps {
					t.Errorf("%d sleeps, want %d", n, c.sleeps)
				}
				if n := g.fake.Calls(backendtest.OpAppend); n != c.appends {
					t.Errorf("%d appends, want %d", n, c.appends)
				}
				if n := g.entries(t); n != c.stored {
					t.Errorf("%d stored, want %d", n, c.stored)
				}
			})
		})
	}
}

// wantFailed wants the last n messages of a batch to have failed, and no others.
func wantFailed(t *testing.T, err error, n int) {
	t.Helper()
	var batch *weir.BatchError
	if n == 0 || !errors.As(err, &batch) {
		if (err == nil) != (n == 0) {
			t.Errorf("got %v, want a *BatchError with %d failures", err, n)
		}
		return
	}
	for i, e := range batch.Errs {
		if (e != nil) != (i >= len(batch.Errs)-n) {
			t.Fatalf("message %d of %d: %v; want the last %d to fail", i, len(batch.Errs), e, n)
		}
	}
}

func TestPublishSomeLeavesTheRest(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(60, 0)
		n, err := g.PublishSome(t.Context(), make([]weir.Message, 500))
		if n != 1 || err != nil || g.attempts != 1 || g.stored != 1 {
			t.Errorf("above the soft limit: %d tried, %v; hooks say %d and %d stored, want 1", n, err, g.attempts, g.stored)
		}
		g.pretend(0, 0)
		time.Sleep(time.Second)
		if n, err = g.PublishSome(t.Context(), make([]weir.Message, 500)); n != 500 || err != nil {
			t.Errorf("with room: %d tried, %v; want 500", n, err)
		}
		time.Sleep(time.Second)
		g.pretend(0, 7900)
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backend.ErrUnavailable})
		time.Sleep(time.Second)
		n, err = g.PublishSome(t.Context(), make([]weir.Message, 500))
		var batch *weir.BatchError
		if n != 100 || !errors.Is(err, weir.ErrUnavailable) || errors.As(err, &batch) {
			t.Errorf("room for 100 and no server: %d tried, %v", n, err)
		}
	})
}

// scripted is a fake whose appends are answered by a function, which gets their number.
type scripted struct {
	*backendtest.Fake
	answer func(call int) ([]backend.Appended, error)
	calls  int
}

func (s *scripted) Append(context.Context, []backend.Message) ([]backend.Appended, error) {
	s.calls++
	return s.answer(s.calls)
}

func scriptedProducer(t *testing.T, answer func(call int) ([]backend.Appended, error)) (*weir.Producer, *scripted) {
	t.Helper()
	s := &scripted{Fake: backendtest.NewFake(backendtest.FakeOptions{}), answer: answer}
	p, err := weir.NewProducer(weir.New(s), weir.ProducerConfig{Guard: weir.GuardStatic, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p, s
}

func TestTheLastErrorOfABatchIsNotThatOfAll(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p, _ := scriptedProducer(t, func(call int) ([]backend.Appended, error) {
			if call > 1 {
				return nil, backend.ErrUnavailable
			}
			full := backendtest.Full(backend.ReasonQueueFull, time.Second)
			return []backend.Appended{{Err: backend.ErrOutcomeUnknown}, {Err: full}}, backend.ErrOutcomeUnknown
		})
		err := p.PublishBatch(t.Context(), make([]weir.Message, 2))
		var parts *weir.BatchError
		if !errors.As(err, &parts) || !errors.Is(parts.Errs[0], weir.ErrOutcomeUnknown) || errors.Is(parts.Errs[1], weir.ErrOutcomeUnknown) {
			t.Errorf("got %v: the first message may be stored, the second is not", err)
		}
	})
}

// A batch whose messages go one by one fails with the first, but what was not sent is not
// called unknown, nor what is not too large too large.
func TestWhatABatchHasNotSentSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		first, rest error
		cancel      bool
	}{
		"lost":                  {weir.ErrOutcomeUnknown, weir.ErrUnavailable, false},
		"unavailable":           {weir.ErrUnavailable, weir.ErrUnavailable, false},
		"lost and ended":        {weir.ErrOutcomeUnknown, context.Canceled, true},
		"too large and ended":   {weir.ErrTooLarge, context.Canceled, true},
		"unavailable and ended": {weir.ErrUnavailable, context.Canceled, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p, s := scriptedProducer(t, func(int) ([]backend.Appended, error) {
					if c.cancel {
						cancel()
					}
					return []backend.Appended{{Err: c.first}}, c.first
				})
				busy := int64(60) // above the soft limit
				s.Pretend(&backend.Signal{Workers: &busy, Pending: busy, Lag: new(int64), XLen: busy})
				err := p.PublishBatch(ctx, make([]weir.Message, 3))
				var parts *weir.BatchError
				if !errors.As(err, &parts) || s.calls != 1 {
					t.Fatalf("%v after %d appends", err, s.calls)
				}
				for i, err := range parts.Errs {
					want := c.rest
					if i == 0 {
						want = c.first
					}
					if !errors.Is(err, want) || i > 0 && want != c.first && errors.Is(err, c.first) {
						t.Errorf("message %d: %v, want %v", i, err, want)
					}
				}
			})
		})
	}
}

func TestARefusalNamesItsReasonOnce(t *testing.T) {
	full := &backend.FullError{Reason: backend.ReasonQueueFull, Err: errors.New("the disk is full")}
	err := &weir.QueueFullError{Queue: "orders", Reason: weir.QueueFull, Limit: "the server has no room", RetryAfter: time.Second, Err: full}
	if want := `publish to "orders" refused, queue_full: the server has no room; try again in 1s: the disk is full`; err.Error() != want {
		t.Errorf("it says %s\nwant %s", err, want)
	}
}
