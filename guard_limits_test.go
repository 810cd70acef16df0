package weir_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// Where no hard limit ends it, the sleep that grows with the signal ends after a minute, or after
// lag_warn_sleep if that is longer.
func TestTheSleepThatGrowsHasAnEnd(t *testing.T) {
	for _, c := range []struct {
		sleep, want time.Duration
	}{{500 * time.Millisecond, time.Minute}, {2 * time.Minute, 2 * time.Minute}} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: weir.GuardProportional, LagPause: -1, LagWarn: 50, LagWarnSleep: c.sleep, MaxDepth: 1 << 30})
			g.pretend(1_000_000, 0)
			if took, err := g.timed(t.Context()); err != nil || took != c.want {
				t.Errorf("lag_warn_sleep %s: %v after %s, want %s", c.sleep, err, took, c.want)
			}
		})
	}
}

// A share of a depth is seldom a whole number in binary: 0.07 of 100 is a little more than 7.
func TestTheThresholdIsTheShareThatWasAskedFor(t *testing.T) {
	for _, c := range []struct {
		share   float64
		of, has int64
		room    bool
	}{
		{0.07, 100, 6, true}, {0.07, 100, 7, false}, {0.01, 1, 0, true}, {0.01, 1, 1, false}, {0.25, 10, 2, true}, {0.25, 10, 3, false},
	} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{MaxDepth: c.of, BackpressureThreshold: c.share, BackpressureRetries: -1})
			g.pretend(0, c.has)
			if err := g.Publish(t.Context(), weir.Message{}); (err == nil) != c.room {
				t.Errorf("%v of %d, %d there: %v", c.share, c.of, c.has, err)
			}
		})
	}
}

// Publishes that wait for a window follow new settings from the next one on.
func TestSettingsAreExchangedWhilePublishesWaitForTheWindow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := weir.ProducerConfig{Guard: weir.GuardStatic, LoadSheddingMaxRequests: 1, ShedWait: true}
		g := guard(t, c)
		began := time.Now()
		all := several(t, 4, g.Producer)
		time.Sleep(500 * time.Millisecond)
		c.LoadSheddingMaxRequests = 10
		if err := g.Reconfigure(c); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("all are through after %s, want the next window to take them", took)
		}
	})
}

// A refusal by the gate says when to come back, and no refusal says less than a millisecond.
func TestARefusalSaysWhenToComeBack(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{ShedConcurrency: 1, BackpressureBaseDelay: 3 * time.Second})
		g.pretend(201, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() { _ = g.Publish(ctx, weir.Message{}) })
		synctest.Wait()
		if full := refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.LoadShedding); full.RetryAfter != 3*time.Second {
			t.Errorf("the gate says %s", full.RetryAfter)
		}
		cancel()
		first.Wait()
	})
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{BackpressureRetries: -1, BackpressureBaseDelay: time.Millisecond})
		g.pretend(0, 8000)
		for range 50 {
			if full := refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.QueueFull); full.RetryAfter < time.Millisecond {
				t.Fatalf("it says %s", full.RetryAfter)
			}
		}
	})
}

// Callers who find no room at the same time do not look again at the same time.
func TestWaitsForRoomAreSpread(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{BackpressureRetries: 1})
		g.pretend(0, 8000)
		for range 200 {
			_ = g.Publish(t.Context(), weir.Message{})
		}
		early, late := 0, 0
		for _, d := range g.slowed[weir.DepthWait] {
			switch {
			case d < 50*time.Millisecond || d > 150*time.Millisecond:
				t.Fatalf("a wait of %s, want 100 ms ± 50 %%", d)
			case d < 75*time.Millisecond:
				early++
			case d > 125*time.Millisecond:
				late++
			}
		}
		if n := len(g.slowed[weir.DepthWait]); early < n/10 || late < n/10 {
			t.Errorf("of %d waits %d are short and %d long", n, early, late)
		}
	})
}

// With lag_unknown=hold one limit of the lag is enough to make a publish wait.
func TestAnUnknownLoadHoldsThoughThereIsNoHardLimit(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LagUnknown: weir.UnknownHold, LagWarn: 50, LagPause: -1})
		g.fake.Pretend(&backend.Signal{Pending: 500, Lag: new(int64), XLen: 500})
		refusedFor(t, g.TryPublish(t.Context(), weir.Message{}), weir.QueueFull)
	})
}

// What the adaptive guard holds is the wait: that a queue is full is no reason to look again.
func TestAdaptiveRefusesAtOnceWithoutRoom(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, MaxDepth: 100})
		g.pretend(0, 80)
		took, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.QueueFull); took != 0 || len(g.tries) > 0 || full.Depth != 80 || full.MaxDepth != 100 {
			t.Errorf("%v after %s and %d checks", err, took, len(g.tries))
		}
	})
}

// A publish that waits because others are on their way to the hard limit waits once, until
// they have arrived and the workers have caught up.
func TestAPauseForWhatIsOnItsWayIsOnePause(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LagSignal: weir.SignalBacklog, LagWarn: -1, LagPause: 200})
		g.pretend(0, 200)
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: 2 * time.Second})
		first := several(t, 1, g.Producer)
		synctest.Wait()
		time.AfterFunc(2500*time.Millisecond, func() { g.pretend(0, 0) })
		if _, err := g.timed(t.Context()); err != nil {
			t.Error(err)
		}
		first.Wait()
		if n := len(g.slowed[weir.HardPause]); n != 1 || !strings.Contains(strings.Join(g.slowing, "\n"), "1 more on their way") {
			t.Errorf("%d pauses: %v", n, g.slowing)
		}
	})
}

// With a reading for every publish, one that was begun before the publish came is not its own.
func TestAReadingThatIsUnderWayIsNotOneOfALaterPublish(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LagCache: -1})
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Delay: 100 * time.Millisecond})
		var first sync.WaitGroup
		first.Go(func() { _, _ = g.timed(t.Context()) })
		time.Sleep(50 * time.Millisecond)
		if took, err := g.timed(t.Context()); err != nil || took != 150*time.Millisecond {
			t.Errorf("%v after %s, want the rest of the other's reading and its own", err, took)
		}
		first.Wait()
	})
}

// roomy is a backend that shares out room, and counts who asks for some.
type roomy struct {
	*backendtest.Fake
	asked atomic.Int64
	least int64        // how much it gives
	kept  atomic.Int64 // the most that was kept
}

func (r *roomy) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	r.asked.Add(1)
	r.kept.Store(max(r.kept.Load(), req.Kept))
	s, err := r.Signal(ctx, req.Limit)
	return s, backend.Room{Given: max(req.Need, req.Want, r.least)}, err
}

// A guard that decides nothing takes no room from those that do.
func TestAGuardThatOnlyLooksTakesNoRoom(t *testing.T) {
	for mode, asks := range map[weir.GuardMode]bool{weir.GuardShadow: false, weir.GuardOff: false, weir.GuardStatic: true, weir.GuardAdaptive: true} {
		bubble.Run(t, func(t *testing.T) {
			r := &roomy{Fake: backendtest.NewFake(backendtest.FakeOptions{})}
			p, err := weir.NewProducer(weir.New(r), weir.ProducerConfig{Guard: mode, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for range 3 {
				if err := p.Publish(t.Context(), weir.Message{}); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
			}
			if (r.asked.Load() > 0) != asks {
				t.Errorf("%s asked %d times for room", mode, r.asked.Load())
			}
		})
	}
}

// A shadow says that it would wait for as long as its waits would take, and that it would refuse
// from then on; each time that there is no room anew.
func TestAShadowWouldRefuseOnceItsWaitsAreOver(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardShadow, LagCache: time.Millisecond})
		for range 2 {
			g.shadowed = nil
			g.pretend(0, 8000)
			time.Sleep(time.Second) // the last reading is too old by then
			for _, after := range []time.Duration{0, 690 * time.Millisecond, 10 * time.Millisecond} {
				time.Sleep(after)
				_ = g.Publish(t.Context(), weir.Message{})
			}
			wantList(t, "would have", g.shadowed, []string{"depth", "depth", "queue_full"})
			g.pretend(0, 0)
			time.Sleep(time.Second)
			_ = g.Publish(t.Context(), weir.Message{})
		}
	})
}

// Who publishes steadily waits for the first share of the room and for no other: the next one is
// asked for while there is some left.
func TestTheNextShareOfTheRoomIsAskedForInTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		r := &roomy{Fake: backendtest.NewFake(backendtest.FakeOptions{}), least: 200}
		r.Inject(backendtest.OpSignal, backendtest.Fault{Delay: 50 * time.Millisecond})
		p, err := weir.NewProducer(weir.New(r), weir.ProducerConfig{Guard: weir.GuardStatic, LagWarn: -1, LagPause: -1, LagCache: time.Minute, MaxDepth: 1 << 20, DisableLoadShedding: true, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		waited := 0
		for range 1000 {
			began := time.Now()
			if err := p.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
			if time.Since(began) > 0 {
				waited++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if waited != 1 || r.asked.Load() < 3 {
			t.Errorf("%d publishes have waited for %d shares", waited, r.asked.Load())
		}
	})
}

// What is being appended while the room is read counts for the producer that has taken it.
func TestWhatIsUnderWayIsKeptOfAShare(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		r := &roomy{Fake: backendtest.NewFake(backendtest.FakeOptions{})}
		r.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: 5 * time.Second})
		p, err := weir.NewProducer(weir.New(r), weir.ProducerConfig{Guard: weir.GuardStatic, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		var first sync.WaitGroup
		first.Go(func() {
			if err := p.PublishBatch(t.Context(), make([]weir.Message, 40)); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		if err := p.Publish(t.Context(), weir.Message{}); err != nil {
			t.Error(err)
		}
		if first.Wait(); r.kept.Load() < 40 {
			t.Errorf("%d were kept while 40 were under way", r.kept.Load())
		}
	})
}
