package shop

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
)

var silent = slog.New(slog.DiscardHandler)

// queue opens a queue in memory that no other test has.
func queue(t *testing.T) *weir.Stream {
	t.Helper()
	s, err := open.URL(t.Context(), "mem://"+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// producer makes a producer that ends with the test.
func producer(t *testing.T, s *weir.Stream, c weir.ProducerConfig) *weir.Producer {
	t.Helper()
	c.Logger = silent
	p, err := weir.NewProducer(s, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// work publishes one message and has a pool work until nothing is left.
func work(t *testing.T, s *weir.Stream, data string, h weir.Handler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // a handler that hangs must not run for ever
	defer cancel()
	if err := producer(t, s, weir.ProducerConfig{}).Publish(ctx, weir.Message{Data: []byte(data)}); err != nil {
		t.Fatal(err)
	}
	pool, err := weir.NewPool(s, h, weir.PoolConfig{Workers: 1, UntilEmpty: time.Second, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Run(ctx); err != nil || ctx.Err() != nil {
		t.Fatalf("the queue did not become empty: %v, %v", err, ctx.Err())
	}
}

// A handler is a function: what it does with one message needs no queue.
func TestAnOrderIsShipped(t *testing.T) {
	var got Order
	h := Ship(func(_ context.Context, o Order) error { got = o; return nil })
	if err := h(t.Context(), &weir.Delivery{Data: []byte(`{"ID":"7","Item":"tea"}`)}); err != nil {
		t.Fatal(err)
	}
	if want := (Order{ID: "7", Item: "tea"}); got != want {
		t.Errorf("shipped %+v, want %+v", got, want)
	}
}

func TestWhatIsOutOfStockIsTriedAgainEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queue(t)
		began, tries := time.Now(), []time.Duration{}
		work(t, s, `{"ID":"7"}`, Ship(func(context.Context, Order) error {
			tries = append(tries, time.Since(began))
			if len(tries) < 3 {
				return ErrOutOfStock
			}
			return nil
		}))
		if want := []time.Duration{0, time.Minute, 2 * time.Minute}; !slices.Equal(tries, want) {
			t.Errorf("tried at %v, want %v", tries, want)
		}
	})
}

func TestAnUnknownItemIsADeadLetterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queue(t)
		work(t, s, `{"ID":"7"}`, Ship(func(context.Context, Order) error { return ErrUnknownItem }))
		letters, err := s.DeadLetters("")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for l, err := range letters.List(t.Context(), weir.LetterFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%s after %d: %s", l.Reason, l.Attempts, l.Error))
		}
		if want := []string{"poison after 1: no such item"}; !slices.Equal(got, want) {
			t.Errorf("dead letters %q, want %q", got, want)
		}
	})
}

func TestAStopLetsTheOrderUnderWayBeShipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := queue(t)
		if err := producer(t, s, weir.ProducerConfig{}).Publish(t.Context(), weir.Message{Data: []byte(`{"ID":"7"}`)}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		shipped := false
		pool, err := weir.NewPool(s, Ship(func(ctx context.Context, _ Order) error {
			stop() // as a signal would
			time.Sleep(10 * time.Second)
			shipped = ctx.Err() == nil
			return nil
		}), weir.PoolConfig{DrainTimeout: 20 * time.Second, Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		if err := pool.Run(ctx); err != nil || !shipped {
			t.Errorf("the pool ended with %v, shipped: %t", err, shipped)
		}
	})
}

// post sends an order to h.
func post(t *testing.T, h http.Handler) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", strings.NewReader(`{"ID":"7"}`)))
	return w.Result()
}

func TestAFullQueueIsA503(t *testing.T) {
	h := Take(producer(t, queue(t), weir.ProducerConfig{MaxDepth: 1}))
	if res := post(t, h); res.StatusCode != http.StatusOK {
		t.Fatalf("the first order: %s", res.Status)
	}
	if res := post(t, h); res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
		t.Errorf("a second one: %s, %v; want 503 and when to come again", res.Status, res.Header)
	}
}

func TestTooMuchAtOnceIsA429(t *testing.T) {
	h := Take(producer(t, queue(t), weir.ProducerConfig{LoadSheddingMaxRequests: 1, ShedWindow: time.Hour}))
	if res := post(t, h); res.StatusCode != http.StatusOK {
		t.Fatalf("the first order: %s", res.Status)
	}
	if res := post(t, h); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Errorf("a second one: %s, %v; want 429 and when to come again", res.Status, res.Header)
	}
}

// broken is a backend to which nothing can be appended.
type broken struct {
	backend.Backend
	err error
}

func (b broken) Append(context.Context, []backend.Message) ([]backend.Appended, error) {
	return nil, b.err
}

func TestABackendThatFailsIsToldApart(t *testing.T) {
	s := queue(t)
	for err, want := range map[error]int{weir.ErrUnavailable: 503, weir.ErrOutcomeUnknown: 504, weir.ErrForbidden: 500} {
		p := producer(t, weir.New(broken{s.Backend(), err}), weir.ProducerConfig{})
		if res := post(t, Take(p)); res.StatusCode != want {
			t.Errorf("%v: %s, want %d", err, res.Status, want)
		}
	}
}
