package weir

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// publishUntil appends a message for each deadline after now; 0 is none.
func publishUntil(t *testing.T, f *backendtest.Fake, worth ...time.Duration) {
	t.Helper()
	msgs := make([]Message, len(worth))
	for i, d := range worth {
		if msgs[i].Data = fmt.Append(nil, i); d != 0 {
			msgs[i].Deadline = time.Now().Add(d)
		}
	}
	if _, err := f.Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
}

// One worker takes 10 s for each message. The first and the third begin in time, and run
// to their end although their deadlines pass meanwhile; the second and the fourth do not.
func TestPoolSetsAsideOnlyWhatExpiresBeforeItsHandlerBegins(t *testing.T) {
	for _, mode := range []ExpiredMode{"", ExpiredDrop} {
		t.Run(string(mode), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publishUntil(t, f, 5*time.Second, 10*time.Second, 10*time.Second+time.Millisecond, time.Millisecond, 0)
				var mu sync.Mutex
				var handled []string
				told := map[Outcome]int{}
				p := startPool(t, f, func(ctx context.Context, d *Delivery) error {
					time.Sleep(10 * time.Second)
					mu.Lock()
					defer mu.Unlock()
					handled = append(handled, string(d.Data))
					if string(d.Data) == "0" && time.Since(d.Deadline) != 5*time.Second || string(d.Data) == "4" && !d.Deadline.IsZero() {
						t.Errorf("message %s has the deadline %s", d.Data, d.Deadline)
					}
					return ctx.Err()
				}, PoolConfig{Workers: 1, Expired: mode, Hooks: Hooks{Settled: func(_ StreamName, o Outcome, n int) {
					mu.Lock()
					defer mu.Unlock()
					told[o] += n
				}}})
				time.Sleep(time.Minute)
				p.finish()
				p.expect(PoolStats{Acked: 3, Expired: 2})
				if fmt.Sprint(handled) != "[0 2 4]" || fmt.Sprint(told) != "map[acked:3 expired:2]" {
					t.Errorf("handled %s, told of %v", handled, told)
				}
				letters, _ := f.List(t.Context(), "", "", 10)
				if mode == ExpiredDrop {
					if len(letters) > 0 || len(f.Acked()) != 5 {
						t.Errorf("dead letters: %+v; acked %s", letters, f.Acked())
					}
					return
				}
				if len(letters) != 2 || string(letters[0].Data)+string(letters[1].Data) != "13" && string(letters[0].Data)+string(letters[1].Data) != "31" {
					t.Fatalf("dead letters: %+v", letters)
				}
				for _, l := range letters {
					if l.Reason != backend.ReasonExpired || l.Attempts != 0 || !strings.Contains(l.Error, "before a handler could begin") {
						t.Errorf("dead letter %+v", l)
					}
				}
			})
		})
	}
}

func TestPoolSetsAsideARetryThatComesTooLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publishUntil(t, f, 30*time.Second)
		p := startPool(t, f, func(context.Context, *Delivery) error { return errors.New("not yet") }, PoolConfig{Workers: 1, RetryBase: time.Minute})
		time.Sleep(3 * time.Minute)
		p.finish()
		p.expect(PoolStats{Retried: 1, Expired: 1})
		letters, _ := f.List(t.Context(), "", "", 10)
		if len(letters) != 1 || letters[0].Reason != backend.ReasonExpired || letters[0].Attempts != 1 {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// After an overload there are many, and each is a call: they neither keep the others
// waiting nor fill the log.
func TestPoolSetsManyAsideAtATime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		worth := make([]time.Duration, 3201)
		for i := range 3200 {
			worth[i] = -time.Second
		}
		publishUntil(t, f, worth...)
		f.Inject(backendtest.OpDeadLetter, backendtest.Fault{Delay: 100 * time.Millisecond})
		began, handled := time.Now(), time.Duration(0)
		log := &logged{}
		p := startPool(t, f, func(context.Context, *Delivery) error { handled = time.Since(began); return nil },
			PoolConfig{Workers: 2, Batch: 100, Logger: log.logger()})
		time.Sleep(25 * time.Second)
		p.expect(PoolStats{Acked: 1, Expired: 3200})
		if handled > time.Second {
			t.Errorf("what had not expired was handled after %s", handled)
		}
		if n := len(log.Lines("message expired")); n == 0 || n > 25*failureLines {
			t.Errorf("%d lines in 25 s", n)
		}
		p.finish()
	})
}

// A message that is another worker's by the time it is set aside is not counted as expired.
func TestPoolLeavesAnExpiredMessageToWhoeverHasIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publishUntil(t, f, -time.Second)
		f.Inject(backendtest.OpDeadLetter, backendtest.Fault{Err: ErrLeaseLost, Times: 1})
		p := startPool(t, f, nothing, PoolConfig{Workers: 1, ReclaimAfter: 10 * time.Second})
		time.Sleep(5 * time.Second)
		p.expect(PoolStats{Unsettled: 1})
		time.Sleep(10 * time.Second) // the lease that the fake still has runs out
		p.expect(PoolStats{Unsettled: 1, Expired: 1})
		p.finish()
	})
}

// A drop whose call fails is repeated.
func TestPoolDropsThoughTheBackendIsAway(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publishUntil(t, f, -time.Second, -time.Second)
		f.Inject(backendtest.OpAck, backendtest.Fault{Err: ErrUnavailable, Times: 3})
		p := startPool(t, f, nothing, PoolConfig{Workers: 1, Expired: ExpiredDrop})
		time.Sleep(5 * time.Second)
		p.expect(PoolStats{Expired: 2})
		p.finish()
	})
}
