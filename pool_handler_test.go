package weir

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// fragile is an error whose methods do not expect a nil pointer.
type fragile struct{ text string }

func (e *fragile) Error() string   { return e.text }
func (e *fragile) Unwrap() error   { return errors.New(e.text) }
func (e *fragile) Is(error) bool   { return e.text == "" }
func (e *fragile) As(any) bool     { return e.text == "" }
func (e *fragile) String() string  { return e.text }
func (e *fragile) Timeout() bool   { return e.text == "" }
func (e *fragile) Temporary() bool { return e.text == "" }

// Whatever a handler returns or panics with is the failure of one message, never of the pool.
func TestPoolOutlivesEveryErrorOfAHandler(t *testing.T) {
	var none *fragile
	for name, fail := range map[string]func() error{
		"poison of nothing":             func() error { return Poison(nil) },
		"retry of nothing":              func() error { return RetryIn(0, nil) },
		"poison without an error":       func() error { return &PoisonError{} },
		"a retry without an error":      func() error { return &RetryError{Delay: -time.Second} },
		"nil poison":                    func() error { return (*PoisonError)(nil) },
		"a nil pointer":                 func() error { return none },
		"a wrapped nil pointer":         func() error { return fmt.Errorf("wrapped: %w", none) },
		"a joined nil pointer":          func() error { return errors.Join(errors.New("one"), none) },
		"poison of a nil pointer":       func() error { return Poison(none) },
		"retry of a nil pointer":        func() error { return RetryIn(time.Second, none) },
		"a panic with nil":              func() error { panic(nil) },
		"a panic with a nil pointer":    func() error { panic(none) },
		"a panic with an error":         func() error { panic(errors.New("no")) },
		"a panic with its own poison":   func() error { panic(Poison(none)) },
		"a panic of the runtime":        func() error { var s []string; return errors.New(s[len(s)]) },
		"an error with no text":         func() error { return errors.New("") },
		"an error with invalid UTF-8":   func() error { return errors.New("\xff\xfe") },
		"a timeout around a nil":        func() error { return errors.Join(ErrHandlerTimeout, none) },
		"a stop around a nil pointer":   func() error { return errors.Join(context.Canceled, none) },
		"a lost lease that it invented": func() error { return ErrLeaseLost },
	} {
		for _, timed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, timed out %v", name, timed), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					f := backendtest.NewFake(backendtest.FakeOptions{})
					publish(t, f, 1)
					failures := 0
					var log logged
					p := startPool(t, f, func(ctx context.Context, d *Delivery) error {
						if string(d.Data) == "good" {
							return nil
						}
						if failures++; timed {
							<-ctx.Done()
						}
						return fail()
					}, PoolConfig{Workers: 1, MaxDeliveries: 2, HandlerTimeout: time.Second, Logger: log.logger()})
					time.Sleep(time.Minute)
					if _, err := f.Append(t.Context(), []Message{{Data: []byte("good")}}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Minute)
					p.finish()
					got := p.Stats()
					if got.Acked != 1 || got.Dead != 1 || failures < 1 || failures > 2 {
						t.Errorf("after %d failures %+v; want one acked, one dead", failures, got)
					}
					letters, err := f.List(t.Context(), "", "", 10)
					if err != nil || len(letters) != 1 {
						t.Errorf("%+v, %v", letters, err)
					}
				})
			})
		}
	}
}

// A delivery is its handler's, also of one that was given up and goes on: the pool neither
// reads it meanwhile nor stores what has become of it.
func TestADeadLetterIsNotWhatTheHandlerMadeOfIt(t *testing.T) {
	headers := map[string]string{"k": "v", backend.HeaderTrace: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}
	for name, fail := range map[string]error{"fails": errors.New("no"), "is poisoned": Poison(errors.New("no")), "is given up": nil} {
		t.Run(name, func(t *testing.T) {
			f := backendtest.NewFake(backendtest.FakeOptions{})
			if _, err := f.Append(t.Context(), []Message{{Data: []byte("as it was"), Headers: headers}}); err != nil {
				t.Fatal(err)
			}
			var over atomic.Bool
			var log logged
			p := startPool(t, f, func(_ context.Context, d *Delivery) error {
				for n := 0; ; n++ {
					for i := range d.Data {
						d.Data[i] = 'x'
					}
					d.Headers[fmt.Sprint(n%50)] = "x"
					delete(d.Headers, fmt.Sprint((n+25)%50))
					d.Headers["k"], d.Attempt, d.ID, d.Deadline = "x", 9, "x", time.Now()
					if fail != nil || over.Load() {
						return fail
					}
				}
			}, PoolConfig{Workers: 2, MaxDeliveries: 1, HandlerTimeout: 50 * time.Millisecond, ReclaimAfter: 300 * time.Millisecond, Logger: log.logger()})
			for end := time.Now().Add(10 * time.Second); p.Stats().Dead < 1 && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			letters, err := f.List(t.Context(), "", "", 10)
			if err != nil || len(letters) != 1 || string(letters[0].Data) != "as it was" || letters[0].Headers["k"] != "v" || len(letters[0].Headers) != 2 {
				t.Errorf("the letters are %+v, %v", letters, err)
			}
			over.Store(true)
			for p.Stats().Stuck > 0 {
				time.Sleep(time.Millisecond)
			}
			p.finish()
		})
	}
}

// A burst of messages that fail for good is moved before the leases run out, over a link on
// which each takes a while: no more are claimed than that.
func TestABurstOfDeadLettersIsMovedWhileItsLeasesHold(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const messages = 6000
		f := backendtest.NewFake(backendtest.FakeOptions{})
		var bad atomic.Bool
		f.Inject(backendtest.OpDeadLetter, backendtest.Fault{Delay: 80 * time.Millisecond})
		p := startPool(t, f, func(context.Context, *Delivery) error {
			if bad.Load() {
				return Poison(errors.New("no"))
			}
			return nil
		}, PoolConfig{Workers: 10, ReclaimAfter: 5 * time.Second})
		publish(t, f, messages) // what went well before is no reason to claim more
		time.Sleep(time.Minute)
		bad.Store(true)
		publish(t, f, messages)
		time.Sleep(time.Minute)
		p.finish()
		if got := p.Stats(); got.Acked != messages || got.Dead != messages || got.Unsettled > 0 {
			t.Errorf("of %d messages %+v", messages, got)
		}
	})
}

// What a handler calls poison is a dead letter, though the pool ends and has cancelled it.
func TestPoisonIsPoisonWhenThePoolEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
			<-ctx.Done()
			return Poison(errors.New("no"))
		}, PoolConfig{Workers: 1})
		synctest.Wait()
		p.Cancel()
		p.finish()
		p.expect(PoolStats{Dead: 1})
	})
}

// Messages that wait for a worker whose handler ends its goroutine get another one.
func TestWhatWaitsForAWorkerThatEndsIsHandled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 3)
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if string(d.Data) == "0" {
				runtime.Goexit()
			}
			return nil
		}, PoolConfig{Workers: 1, RetryBase: time.Hour, RetryMax: time.Hour})
		time.Sleep(time.Minute)
		p.expect(PoolStats{Acked: 2, Retried: 1})
		p.finish()
	})
}

// A message's own timeout is kept to the moment, whatever the pool has to look after otherwise.
func TestAHandlerIsCancelledAtTheTimeoutOfItsMessage(t *testing.T) {
	const timeout = 200 * time.Millisecond
	for name, pool := range map[string]time.Duration{"shorter": 0, "alone": -1} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
					start := time.Now()
					<-ctx.Done()
					if took := time.Since(start); took < timeout || took > timeout+10*time.Millisecond || context.Cause(ctx) != ErrHandlerTimeout {
						t.Errorf("cancelled after %s with %v, want %s", took, context.Cause(ctx), timeout)
					}
					return nil
				}, PoolConfig{Workers: 1, HandlerTimeout: pool})
				for range 3 {
					time.Sleep(3 * time.Second)
					if _, err := f.Append(t.Context(), []Message{withLimits(Message{Timeout: timeout, MaxDeliveries: 1})}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				p.finish()
				p.expect(PoolStats{Dead: 3})
			})
		})
	}
}

// What a handler calls compares its deadline with the time: a step of the wall clock must not
// have it give up at once, or never.
func TestTheDeadlineOfAHandlerDoesNotMoveWithTheWallClock(t *testing.T) {
	f := backendtest.NewFake(backendtest.FakeOptions{})
	publish(t, f, 1)
	seen := make(chan time.Time, 1)
	p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
		end, _ := ctx.Deadline()
		seen <- end
		return nil
	}, PoolConfig{Workers: 1, HandlerTimeout: time.Hour})
	if end := <-seen; end == end.Round(0) { // which takes the monotonic reading away
		t.Errorf("the deadline %s is one of the wall clock", end)
	}
	p.finish()
}

// What was claimed ahead is begun as soon as the handler before it has been given up, though nothing more comes.
func TestWhatWaitsBehindAHandlerThatHangsIsHandled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 2)
		release := make(chan struct{})
		start := time.Now()
		var began time.Duration
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if string(d.Data) == "0" {
				hangForEver(release)
				return nil
			}
			began = time.Since(start)
			return nil
		}, PoolConfig{Workers: 1, HandlerTimeout: time.Second, RetryBase: time.Hour, RetryMax: time.Hour})
		time.Sleep(time.Minute)
		close(release)
		synctest.Wait()
		p.finish()
		if began == 0 || began > time.Second+stuckGrace+time.Second {
			t.Errorf("the second message was begun after %s", began)
		}
	})
}
