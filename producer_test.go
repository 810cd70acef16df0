package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

func TestAPublishStoresItsMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		"Priority: 3":    {Priority: 3},
		"Priority: -4":   {Priority: -4},
		"FairKey":        {FairKey: long},
		"IdempotencyKey": {IdempotencyKey: "\xff"},
		`"weir-tag"`:     {Headers: map[string]string{"weir-tag": "a"}},
		`"data"`:         {Headers: map[string]string{"data": "a"}},
		`"enqueue_ts"`:   {Headers: map[string]string{"enqueue_ts": "1"}},
		`header ""`:      {Headers: map[string]string{"": "a"}},
		`header "bytes"`: {Headers: map[string]string{"bytes": "\xff"}},
		"61 entries":     {Headers: many},
	} {
		synctest.Test(t, func(t *testing.T) {
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

func TestConfigurationThatCannotBeIsRefused(t *testing.T) {
	s := weir.New(backendtest.NewFake(backendtest.FakeOptions{}))
	for want, c := range map[string]weir.ProducerConfig{
		"not built yet":                     {Guard: weir.GuardAdaptive},
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

func TestServerWithoutRoomIsOneMoreFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Err: backendtest.Full(backend.ReasonBufferFull, time.Second)})
		time.AfterFunc(1500*time.Millisecond, func() { g.pretend(0, 9000) })
		_, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.QueueFull); full.Depth != 9000 || full.Err != nil {
			t.Errorf("got %+v, want the guard's own refusal", full)
		}
		wantList(t, "tries told", g.tries, []int{1, 2, 3})
	})
}

func TestServerThatDoesNotSayHowLongIsAskedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backendtest.Full(backend.ReasonBufferFull, 0)})
		took, err := g.timed(t.Context())
		refusedFor(t, err, weir.BufferFull)
		if took < 350*time.Millisecond || took > 1050*time.Millisecond || g.failed["buffer_full"] != 1 {
			t.Errorf("%v after %s, failed %v", err, took, g.failed)
		}
	})
}

func TestLostAnswerIsPassedOnWithoutAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
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
		synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
			synctest.Test(t, func(t *testing.T) {
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
	synctest.Test(t, func(t *testing.T) {
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
		said := g.log.of("")
		if len(said) != 2 || said[0].text != "weir: publishing fails" || said[1].text != "weir: publishing works again" {
			t.Errorf("logged %v", said)
		}
	})
}
