package library

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/stall"
)

func TestAPublishOnAFrozenRedisEndsWithItsContext(t *testing.T) {
	const late = 50 * time.Millisecond
	s := newSite(t, "orders", "billing")
	// With the guard the reading of the workers' signal hangs, without it the append.
	for _, guard := range []weir.GuardMode{weir.GuardOff, weir.GuardStatic} {
		p, err := weir.NewProducer(openStream(t, s.url), weir.ProducerConfig{Guard: guard, LoadSheddingMaxRequests: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Publish(t.Context(), weir.Message{Data: []byte("before")}); err != nil {
			t.Fatal(err)
		}
		s.Pause()
		publishFrozen(t, p, string(guard), late)
		s.Resume()
	}
}

// publishFrozen calls everything that publishes, on a server that does not answer.
func publishFrozen(t *testing.T, p *weir.Producer, guard string, late time.Duration) {
	x := weir.Message{Data: []byte("x")}
	keyed := weir.Message{Data: []byte("x"), IdempotencyKey: "k"}
	for name, call := range map[string]func(context.Context) error{
		"Publish":         func(ctx context.Context) error { return p.Publish(ctx, x) },
		"Publish, keyed":  func(ctx context.Context) error { return p.Publish(ctx, keyed) },
		"TryPublish":      func(ctx context.Context) error { return p.TryPublish(ctx, x) },
		"PublishBatch 50": func(ctx context.Context) error { return p.PublishBatch(ctx, make([]weir.Message, 50)) },
	} {
		for _, deadline := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond} {
			worst, lost, errs := frozen(t, deadline, call)
			t.Logf("guard %s, %s, 16 goroutines, deadline %s: the last one returned %s after it (%v); the machine stalled for %s",
				guard, name, deadline, worst.Round(time.Millisecond), errs, lost.Round(time.Millisecond))
			if worst > late+lost {
				t.Errorf("%s with a deadline of %s returned %s after it, want at most %s", name, deadline, worst, late)
			}
		}
	}
}

func TestTryPublishAnswersSoonOnAFrozenRedis(t *testing.T) {
	const soon = 50 * time.Millisecond
	s := newSite(t, "orders", "billing")
	if err := s.client.Set(t.Context(), "{orders}:lag:billing", 0, time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []weir.ProducerConfig{
		{}, {Guard: weir.GuardStatic}, {Guard: weir.GuardOff}, {Guard: weir.GuardStatic, LagUnknown: weir.UnknownHold}, {ShedScope: weir.ShedStream}, {LagSignal: weir.SignalBacklog, LagCache: -1},
	} {
		c.LoadSheddingMaxRequests, c.Logger = 1<<20, quiet()
		p, err := weir.NewProducer(openStream(t, s.url), c)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Publish(t.Context(), weir.Message{Data: []byte("before")}); err != nil {
			t.Fatal(err)
		}
		s.Pause()
		least := time.Hour // the machine may be busy with other things in one round, not in all
		for range 3 {
			worst, lost, errs := frozen(t, soon, func(context.Context) error {
				return p.TryPublish(t.Context(), weir.Message{Data: []byte("x")})
			})
			t.Logf("guard %s, unknown %s, scope %s, signal %s: the last of 16 answered %s after 50ms (%v); the machine stalled for %s",
				c.Guard, c.LagUnknown, c.ShedScope, c.LagSignal, worst.Round(time.Millisecond), errs, lost.Round(time.Millisecond))
			least = min(least, worst-lost)
			if worst > lost+300*time.Millisecond {
				t.Errorf("a TryPublish took %s longer than 50ms", worst)
			}
			if errs["unavailable"]+errs["outcome unknown"] != 16 {
				t.Errorf("answered %v, want unavailable or outcome unknown", errs)
			}
		}
		if least > 0 {
			t.Errorf("a TryPublish took %s longer than 50ms in each of three rounds", least)
		}
		s.Resume()
	}
}

// frozen makes 16 calls at once and returns how long after the deadline the last
// one returned, for how long the machine kept a goroutine from running meanwhile,
// and how the calls ended.
func frozen(t *testing.T, deadline time.Duration, call func(context.Context) error) (worst, lost time.Duration, errs map[string]int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs, worst = map[string]int{}, -time.Hour
	stalled := stall.Watch()
	for range 16 {
		wg.Go(func() {
			end := time.Now().Add(deadline)
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			err := call(ctx)
			over := time.Since(end)
			mu.Lock()
			defer mu.Unlock()
			worst = max(worst, over)
			errs[ending(err)]++
		})
	}
	wg.Wait()
	lost = stalled()
	if errs["stored"] > 0 {
		t.Errorf("a frozen server stored %d messages", errs["stored"])
	}
	return worst, lost, errs
}

func ending(err error) string {
	switch {
	case err == nil:
		return "stored"
	case errors.Is(err, weir.ErrOutcomeUnknown):
		return "outcome unknown"
	case errors.Is(err, weir.ErrUnavailable):
		return "unavailable"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline, not stored"
	}
	return fmt.Sprint(err)
}
