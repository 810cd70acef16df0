package weir

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/capture"
)

// All pools of a paused stream finish what they hold and take nothing new, while messages
// are published and the workers' signal stays known; they go on at its end.
func TestPausedPoolsFinishWhatTheyHold(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 20)
		slow := func(context.Context, *Delivery) error { time.Sleep(time.Second); return nil }
		one := startPool(t, f, slow, PoolConfig{Workers: 2, Batch: 2})
		two := startPool(t, f.Again(), slow, PoolConfig{Workers: 2, Batch: 2})
		time.Sleep(500 * time.Millisecond) // each has two at work and two ahead
		s := New(f)
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		done := len(f.Acked())
		publish(t, f, 5)
		time.Sleep(time.Minute)
		p, err := s.Pressure(t.Context())
		if err != nil || !p.Paused || p.Pending != 0 || *p.Lag != int64(25-done) || p.OldestAge < time.Minute {
			t.Errorf("in the pause: %+v, lag %d, %v", p, *p.Lag, err)
		}
		if len(f.Acked()) != done || done < 4 || done > 8 {
			t.Errorf("%d were done in the pause, %d soon after it began", len(f.Acked()), done)
		}
		if sig, err := f.Signal(t.Context(), 100); err != nil || sig.Workers == nil {
			t.Errorf("in a pause the workers' signal expired, as if they were dead: %v", err)
		}
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if n := len(f.Acked()); n != 25 {
			t.Errorf("%d of 25 are done after the pause", n)
		}
		one.finish()
		two.finish()
	})
}

// A pool that is to end with the stream says why it does not.
func TestAPoolUntilEmptySaysThatTheStreamIsPaused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		s := New(f)
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		logs := &capture.Buffer{}
		pool := startPool(t, f, func(context.Context, *Delivery) error { return nil },
			PoolConfig{UntilEmpty: time.Second, Logger: slog.New(slog.NewTextHandler(logs, nil))})
		time.Sleep(time.Minute)
		if strings.Count(logs.String(), "weir queue resume") != 1 {
			t.Errorf("the log in a pause:\n%s", logs)
		}
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if len(f.Acked()) != 1 {
			t.Error("nothing was done after the pause")
		}
		pool.finish()
	})
}

// An adaptive guard does not take a pause for workers that are too slow.
func TestAnAdaptiveGuardRefusesNothingInAPause(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		pool := startPool(t, f, func(context.Context, *Delivery) error { time.Sleep(10 * time.Millisecond); return nil }, PoolConfig{Workers: 1})
		s := New(f)
		p, err := NewProducer(s, ProducerConfig{Guard: GuardAdaptive, WaitSLO: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		send := func(n int) (refused int) {
			for range n {
				time.Sleep(10 * time.Millisecond)
				if err := p.TryPublish(t.Context(), Message{Data: []byte("x")}); err != nil {
					refused++
				}
			}
			return refused
		}
		send(500)
		if err := s.Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		send(2) // the first asks for a reading
		if n := send(500); n > 0 {
			t.Errorf("%d of 500 messages are refused in a pause", n)
		}
		if err := s.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := send(200); n == 0 {
			t.Error("none is refused after the pause, when 5 s of work wait and 1 s is the objective")
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		pool.finish()
	})
}

func TestAStreamThatCannotBePausedSaysSo(t *testing.T) {
	s := New(struct{ backend.Backend }{backendtest.NewFake(backendtest.FakeOptions{Kind: "kafka"})})
	for what, err := range map[string]error{"pause": s.Pause(t.Context()), "resume": s.Resume(t.Context())} {
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), what+" of a kafka stream") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A worker with nothing to do is there: neither a dashboard nor a guard that holds may miss it,
// however long its claims wait.
func TestAnIdlePoolIsKnownHoweverLongItsClaimsWait(t *testing.T) {
	for name, c := range map[string]PoolConfig{
		"long claims":    {Block: 30 * time.Second, ReclaimAfter: 10 * time.Minute},
		"a short signal": {LagTTL: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 1)
				p := startPool(t, f, nothing, c)
				time.Sleep(time.Second)
				missed := 0
				for range 600 {
					if sig, err := f.Signal(t.Context(), 0); err != nil || sig.Workers == nil {
						missed++
					}
					time.Sleep(100 * time.Millisecond)
				}
				if missed > 0 {
					t.Errorf("no worker was known for %s of a minute", time.Duration(missed)*100*time.Millisecond)
				}
				p.finish()
			})
		})
	}
}
