package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
)

// emptied publishes messages, has a pool work until the stream is empty, and returns the
// dead letters.
func emptied(t *testing.T, url string, h weir.Handler, c weir.PoolConfig, msgs ...weir.Message) (dead []weir.DeadLetter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	s, err := open.URL(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := weir.NewProducer(s, weir.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.PublishBatch(ctx, msgs); err != nil {
		t.Fatal(err)
	}
	c.UntilEmpty, c.Logger = 50*time.Millisecond, silent
	pool, err := weir.NewPool(s, h, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Run(ctx); err != nil {
		t.Fatal(err)
	}
	letters, err := s.DeadLetters("")
	if err != nil {
		t.Fatal(err)
	}
	for l, err := range letters.List(ctx, weir.LetterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		dead = append(dead, l)
	}
	return dead
}

// What cannot work is refused where it is made: a pool whose handler is missing below its
// middleware would move every message to the dead letters.
func TestWhatIsMissingIsRefusedAtOnce(t *testing.T) {
	s := weir.New(backendtest.NewFake(backendtest.FakeOptions{}))
	logs := func(next weir.Handler) weir.Handler {
		return func(ctx context.Context, d *weir.Delivery) error { return next(ctx, d) }
	}
	none := func(weir.Handler) weir.Handler { return nil }
	typed := weir.Handle[int](nil)
	undecoded := weir.HandleWith(nil, func(context.Context, int, *weir.Delivery) error { return nil })
	works := func(context.Context, *weir.Delivery) error { return nil }
	for what, h := range map[string]weir.Handler{
		"nil": nil, "a typed one of nil": typed, "a typed one without an encoding": undecoded, "one below middleware": weir.Chain(typed, logs, logs), "what middleware returns": weir.Chain(works, logs, none),
	} {
		if _, err := weir.NewPool(s, h, weir.PoolConfig{}); err == nil {
			t.Errorf("%s is a handler", what)
		}
	}
	if _, err := weir.NewPool(nil, works, weir.PoolConfig{}); err == nil {
		t.Error("a pool without a stream")
	}
	if _, err := weir.NewProducer(nil, weir.ProducerConfig{}); err == nil {
		t.Error("a producer without a stream")
	}
}

func TestMiddlewareIsCalledFromTheOutside(t *testing.T) {
	var said []string
	tell := func(name string) weir.Middleware {
		return func(next weir.Handler) weir.Handler {
			return func(ctx context.Context, d *weir.Delivery) error {
				said = append(said, name)
				err := next(ctx, d)
				said = append(said, name+" saw "+err.Error())
				return err
			}
		}
	}
	h := weir.Chain(func(context.Context, *weir.Delivery) error { return errors.New("no") }, tell("a"), tell("b"))
	err := h(t.Context(), &weir.Delivery{})
	wantList(t, "calls", said, []string{"a", "b", "b saw no", "a saw no"})
	if err == nil || err.Error() != "no" {
		t.Error(err)
	}
}

type order struct {
	ID    int
	Total float64
}

func TestATypedHandlerGetsValuesAndBuriesWhatIsNone(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for kind, url := range map[string]string{"mem": "mem://typed", "redis": redis.URL() + "?stream=typed"} {
		t.Run(kind, func(t *testing.T) {
			var mu sync.Mutex
			var got []order
			dead := emptied(t, url, weir.Handle(func(_ context.Context, o order, d *weir.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				if got = append(got, o); d.Headers["from"] != "web" {
					t.Errorf("headers %v", d.Headers)
				}
				return nil
			}), weir.PoolConfig{Workers: 1},
				weir.Message{Data: []byte(`{"ID":7,"Total":1.5}`), Headers: map[string]string{"from": "web"}},
				weir.Message{Data: []byte(`{"ID":"seven"}`)})
			wantList(t, "orders", got, []order{{7, 1.5}})
			if len(dead) != 1 || dead[0].Reason != backend.ReasonPoison || dead[0].Attempts != 1 || !strings.Contains(dead[0].Error, "no weir_test.order") {
				t.Errorf("dead letters %+v; want the second at its first delivery, and why", dead)
			}
		})
	}
}

// An interface that holds nothing has no name of its own.
func TestAPayloadThatIsNoJSONIsToldByTheTypeOfTheHandler(t *testing.T) {
	err := weir.Handle(func(context.Context, any, *weir.Delivery) error { return nil })(t.Context(), &weir.Delivery{Data: []byte("{")})
	if err == nil || !strings.Contains(err.Error(), "no interface {}") {
		t.Errorf("got %v", err)
	}
}

// Every hook of both is called, so a new one cannot be forgotten.
func TestCombinedHooksAreAllCalled(t *testing.T) {
	calls := map[string]int{}
	every := func() (h weir.Hooks) {
		v := reflect.ValueOf(&h).Elem()
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
				calls[name]++
				return nil
			}))
		}
		return h
	}
	for _, c := range []struct {
		hooks weir.Hooks
		want  int
	}{{every().And(every()), 2}, {every().And(weir.Hooks{}), 1}, {weir.Hooks{}.And(every()), 1}} {
		clear(calls)
		v := reflect.ValueOf(c.hooks)
		for i := range v.NumField() {
			args := make([]reflect.Value, v.Field(i).Type().NumIn())
			for n := range args {
				args[n] = reflect.Zero(v.Field(i).Type().In(n))
			}
			v.Field(i).Call(args)
			if name := v.Type().Field(i).Name; calls[name] != c.want {
				t.Errorf("%s was called %d times, want %d", name, calls[name], c.want)
			}
		}
	}
}

func TestErrorsHaveAnHTTPStatus(t *testing.T) {
	for _, c := range []struct {
		err         error
		status      int
		least, most int // seconds of Retry-After; 0: none
	}{
		{nil, 200, 0, 0},
		{&weir.QueueFullError{Reason: weir.LoadShedding, RetryAfter: 10 * time.Second}, 429, 10, 15},
		{fmt.Errorf("wrapped: %w", &weir.QueueFullError{Reason: weir.QueueFull, RetryAfter: 20 * time.Millisecond}), 503, 1, 2},
		{&weir.QueueFullError{Reason: weir.BufferFull, RetryAfter: 4 * time.Second}, 503, 4, 6},
		{&weir.QueueFullError{Reason: weir.QueueFull, RetryAfter: math.MaxInt64}, 503, int(math.MaxInt64 / 2 / time.Second), int(math.MaxInt64/4*3/time.Second) + 1},
		{&weir.QueueFullError{Reason: weir.LoadShedding, RetryAfter: -time.Second}, 429, 1, 2},
		{fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, context.DeadlineExceeded), 504, 1, 2},
		{weir.ErrUnavailable, 503, 1, 2},
		{weir.ErrClosed, 503, 1, 2},
		{context.DeadlineExceeded, 503, 1, 2},
		{context.Canceled, 503, 1, 2},
		{fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, &weir.QueueFullError{Reason: weir.LoadShedding, RetryAfter: time.Hour}), 504, 1, 2},
		{weir.ErrTooLarge, 413, 0, 0},
		{weir.ErrExpired, 504, 0, 0},
		{errors.New("field Priority"), 500, 0, 0},
	} {
		seen, latest := map[string]bool{}, 0
		for range 200 {
			status, after := weir.HTTPStatus(c.err)
			n, _ := strconv.Atoi(after)
			if status != c.status || n < c.least || n > c.most || (after == "") != (c.most == 0) {
				t.Fatalf("%v: %d, %q; want %d and %d to %d s", c.err, status, after, c.status, c.least, c.most)
			}
			seen[after], latest = true, max(latest, n)
		}
		if c.most > c.least && (len(seen) < 2 || latest < c.least+(c.most-c.least)/2) {
			t.Errorf("%v: everybody is told %v", c.err, seen)
		}
	}
}

func TestAMessageMayHaveLimitsOfItsOwn(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for kind, url := range map[string]string{"mem": "mem://limits", "redis": redis.URL() + "?stream=limits"} {
		t.Run(kind, func(t *testing.T) {
			var mu sync.Mutex
			began := map[string]int{}
			dead := emptied(t, url, func(ctx context.Context, d *weir.Delivery) error {
				mu.Lock()
				began[string(d.Data)]++
				mu.Unlock()
				if string(d.Data) == "slow" {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return errors.New("no")
			}, weir.PoolConfig{Workers: 4, RetryBase: time.Millisecond, RetryMax: time.Millisecond, MaxDeliveries: 3},
				weir.Message{Data: []byte("once"), MaxDeliveries: 1},
				weir.Message{Data: []byte("more than the pool"), MaxDeliveries: 9},
				weir.Message{Data: []byte("slow"), MaxDeliveries: 2, Timeout: 20 * time.Millisecond, Headers: map[string]string{"a": "b"}})
			if began["once"] != 1 || began["more than the pool"] != 3 || began["slow"] != 2 {
				t.Errorf("deliveries %v", began)
			}
			if len(dead) != 3 {
				t.Fatalf("dead letters %+v", dead)
			}
			for _, l := range dead {
				if string(l.Data) == "slow" && (!strings.Contains(l.Error, "handler timeout after 20ms") || l.Headers["a"] != "b") {
					t.Errorf("%+v", l)
				}
			}
		})
	}
	for want, m := range map[string]weir.Message{"MaxDeliveries: -1": {MaxDeliveries: -1}, "Timeout: 1": {Timeout: time.Microsecond}} {
		s, err := open.URL(t.Context(), "mem://wrong")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		p, err := weir.NewProducer(s, weir.ProducerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Publish(t.Context(), m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAFunctionThatIsMissingMakesNoHandler(t *testing.T) {
	var missing func(context.Context, string, *weir.Delivery) error
	s, err := open.URL(t.Context(), "mem://"+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := weir.NewPool(s, weir.Handle(missing), weir.PoolConfig{}); err == nil || !strings.Contains(err.Error(), "the handler is nil") {
		t.Errorf("a pool without a handler: %v", err)
	}
}

// However long a message's timeout is, the context of its handler tells a time that is to come.
func TestTheDeadlineOfTheLongestTimeoutIsToCome(t *testing.T) {
	for _, timeout := range []time.Duration{math.MaxInt64, math.MaxInt64 / 2, 200 * 365 * 24 * time.Hour} {
		emptied(t, "mem://"+t.Name(), func(ctx context.Context, _ *weir.Delivery) error {
			if until, ok := ctx.Deadline(); !ok || time.Until(until) < 24*time.Hour || ctx.Err() != nil {
				t.Errorf("timeout %v: deadline %v, %v", timeout, until, ctx.Err())
			}
			return nil
		}, weir.PoolConfig{HandlerTimeout: -1}, weir.Message{Timeout: timeout})
	}
}
