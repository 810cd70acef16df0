package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

func TestReadingIsSharedAndNeverOlderThanItMayBe(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1 << 30, MaxDepth: 1 << 30})
		second, err := weir.NewProducer(weir.New(g.fake), weir.ProducerConfig{Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		var done sync.WaitGroup
		for range 16 {
			done.Go(func() {
				for range 2000 {
					if _, err := g.timed(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		done.Wait()
		// 2 s, read every 88 ms: from 7/8 of the 100 ms on, the next reading is begun.
		if n := g.fake.Calls(backendtest.OpSignal); n < 20 || n > 24 {
			t.Errorf("%d readings in 2s, want about 23", n)
		}
		g.pretend(51, 0)
		time.Sleep(100 * time.Millisecond)
		if took, _ := g.timed(t.Context()); took != 500*time.Millisecond {
			t.Errorf("100ms later the new signal was not looked at: took %s", took)
		}
	})
}

// The next reading is begun before the last one is too old.
func TestABusyProducerWaitsForNoReadingButTheFirst(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LoadSheddingMaxRequests: 1 << 30, MaxDepth: 1 << 30})
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Delay: 10 * time.Millisecond})
		for i := range 1000 {
			if took, err := g.timed(t.Context()); err != nil || took != 0 && i > 0 {
				t.Fatalf("publish %d: %v after %s", i, err, took)
			}
			time.Sleep(time.Millisecond)
		}
		if n := g.fake.Calls(backendtest.OpSignal); n < 10 {
			t.Errorf("%d readings in 1s", n)
		}
	})
}

// As on Redis 6, which knows how much is waiting only while nothing is.
func TestASignalThatComesAndGoesIsNotLoggedEachTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		for range 150 { // five minutes
			g.fake.Pretend(&backend.Signal{Pending: 500, Lag: new(int64), XLen: 500})
			_, _ = g.timed(t.Context())
			time.Sleep(time.Second)
			g.pretend(1, 0)
			_, _ = g.timed(t.Context())
			time.Sleep(time.Second)
		}
		unknown, known := 0, 0
		for _, l := range g.log.of("") {
			switch l.text {
			case "the guard's signal is not known":
				unknown++
			case "the guard's signal is known again":
				known++
			}
		}
		if changes := len(g.known); changes < 290 || unknown < 20 || unknown > 31 || known < unknown-1 {
			t.Errorf("of %d changes in five minutes it is logged %d times that it is not known, and %d times that it is", changes, unknown, known)
		}
	})
}

// Who may not read the load is not asked again by every publish: a server logs each attempt.
func TestAReadingThatIsForbiddenIsTriedEverMoreRarely(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		permit := g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: weir.ErrForbidden})
		publish := func(d time.Duration) (readings int) {
			t.Helper()
			before := g.fake.Calls(backendtest.OpSignal)
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
				if took, err := g.timed(t.Context()); err != nil || took != 0 {
					t.Fatalf("%v after %s", err, took)
				}
			}
			return g.fake.Calls(backendtest.OpSignal) - before
		}
		if n := publish(2 * time.Minute); n < 5 || n > 8 {
			t.Errorf("%d readings in two minutes, want 7", n)
		}
		if n := publish(10 * time.Minute); n < 9 || n > 11 {
			t.Errorf("%d readings in ten minutes, want one a minute", n)
		}
		permit()
		publish(time.Minute + time.Second)
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: weir.ErrForbidden, Times: 1})
		publish(time.Second)
		if n := publish(2 * time.Second); n < 5 {
			t.Errorf("%d readings in the third second after a right was missing for a moment", n)
		}
	})
}

func TestReadingCanBeTakenForEveryPublish(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{LagCache: -1})
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Delay: time.Millisecond})
		for i := range 10 {
			if took, err := g.timed(t.Context()); err != nil || took != time.Millisecond {
				t.Fatalf("publish %d: %v after %s", i, err, took)
			}
		}
		if n := g.fake.Calls(backendtest.OpSignal); n != 10 {
			t.Errorf("%d readings for 10 publishes", n)
		}
	})
}

func TestSlowReadingIsWaitedForOnceAndThenUsed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Delay: 300 * time.Millisecond})
		var done sync.WaitGroup
		for range 50 {
			done.Go(func() {
				if took, err := g.timed(t.Context()); err != nil || took != 300*time.Millisecond {
					t.Errorf("%v after %s, want with the one reading that is under way", err, took)
				}
			})
		}
		done.Wait()
		if n := g.fake.Calls(backendtest.OpSignal); n != 1 {
			t.Errorf("%d readings for 50 publishes at once", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if took, err := g.timed(ctx); !errors.Is(err, context.DeadlineExceeded) || took != 20*time.Millisecond {
			t.Errorf("%v after %s: want no wait for a reading past the context", err, took)
		}
	})
}

func TestBackendThatDoesNotAnswerIsAnUnknownSignal(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(201, 9000)
		remove := g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Hang: true})
		if took, err := g.timed(t.Context()); err != nil || took != time.Second {
			t.Fatalf("%v after %s, want the policy open after 1s", err, took)
		}
		for range 20 {
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Fatalf("%v after %s: a second publish waits too", err, took)
			}
			time.Sleep(200 * time.Millisecond)
		}
		// The outage ends in the middle of a reading, which this publish begins if none is under way.
		time.Sleep(50 * time.Millisecond)
		if took, err := g.timed(t.Context()); err != nil || took != 0 {
			t.Fatalf("%v after %s", err, took)
		}
		synctest.Wait()
		g.pretend(0, 0)
		remove()
		time.Sleep(time.Second)
		if _, err := g.timed(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantList(t, "changes", g.known, []bool{false, true})
		if said := g.log.of(""); len(said) != 2 {
			t.Errorf("%d lines, want one for each of the two changes: %v", len(said), said)
		}
	})
}

// A publish that comes long after the backend did not answer is judged by the load of now.
func TestAnOutageThatIsOverSaysNothingOfTheLoad(t *testing.T) {
	for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardAdaptive} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: mode, BackpressureRetries: -1})
			g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Times: 1, Err: weir.ErrUnavailable})
			if _, err := g.timed(t.Context()); err != nil {
				t.Fatalf("%s: %v, want the policy open", mode, err)
			}
			time.Sleep(time.Hour)
			g.pretend(1, 9000)
			var full *weir.QueueFullError
			if _, err := g.timed(t.Context()); !errors.As(err, &full) || full.Depth != 9001 {
				t.Errorf("%s: %v an hour after the outage, with a queue that is full", mode, err)
			}
			if err := g.TryPublish(t.Context(), weir.Message{}); !errors.As(err, &full) {
				t.Errorf("%s: then %v", mode, err)
			}
		})
	}
}

func TestUnknownSignalDoesWhatThePolicySays(t *testing.T) {
	dead := &backend.Signal{Pending: 500, Lag: new(int64), XLen: 500}
	t.Run("open", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{})
			g.fake.Pretend(dead)
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Errorf("%v after %s", err, took)
			}
			wantList(t, "changes", g.known, []bool{false})
		})
	})
	t.Run("hold", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LagUnknown: weir.UnknownHold})
			g.fake.Pretend(dead)
			time.AfterFunc(2350*time.Millisecond, func() { g.pretend(200, 0) })
			if took, err := g.timed(t.Context()); err != nil || took != 2400*time.Millisecond {
				t.Errorf("%v after %s, want it held until the workers are on", err, took)
			}
			wantList(t, "changes", g.known, []bool{false, true})
		})
	})
	t.Run("hold without a limit", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LagUnknown: weir.UnknownHold, LagWarn: -1, LagPause: -1})
			g.fake.Pretend(dead)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if took, err := g.timed(ctx); err != nil || took != 0 {
				t.Errorf("%v after %s, though no limit looks at the signal", err, took)
			}
		})
	})
	t.Run("decay", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LagUnknown: weir.UnknownDecay})
			g.pretend(800, 0)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_ = g.Publish(ctx, weir.Message{}) // reads the 800 at 0
			g.fake.Pretend(dead)
			took, err := g.timed(t.Context())
			// 800, 400, 200 after two TTLs of 10 s: above 200 until then, for a fraction in whole numbers.
			if err != nil || took < 19*time.Second || took > 20*time.Second {
				t.Errorf("%v after %s, want a pause until 800 has halved twice", err, took)
			}
			time.Sleep(10 * time.Second) // 100: above the soft limit
			if took, _ := g.timed(t.Context()); took != 500*time.Millisecond {
				t.Errorf("at 100 it took %s", took)
			}
			time.Sleep(10 * time.Second) // less than 50
			if took, _ := g.timed(t.Context()); took != 0 {
				t.Errorf("below 50 it took %s", took)
			}
		})
	})
	t.Run("decay of a backlog", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LagSignal: weir.SignalBacklog, LagUnknown: weir.UnknownDecay, LagWarn: 50, LagPause: -1})
			g.pretend(0, 100)
			if took, err := g.timed(t.Context()); err != nil || took != 500*time.Millisecond {
				t.Errorf("%v after %s", err, took)
			}
			g.fake.Pretend(&backend.Signal{Behind: 100, XLen: 100})
			time.Sleep(time.Second)
			if took, err := g.timed(t.Context()); err != nil || took != 500*time.Millisecond {
				t.Errorf("unknown for a second: %v after %s", err, took)
			}
			time.Sleep(time.Minute)
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Errorf("unknown for a minute: %v after %s", err, took)
			}
		})
	})
	t.Run("decay of what was never known", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LagUnknown: weir.UnknownDecay})
			g.fake.Pretend(dead)
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Errorf("%v after %s", err, took)
			}
		})
	})
	t.Run("backlog without a lag", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{LagSignal: weir.SignalBacklog})
			g.fake.Pretend(&backend.Signal{Pending: 500, XLen: 500})
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Errorf("%v after %s", err, took)
			}
			wantList(t, "changes", g.known, []bool{false})
		})
	})
}

// plain is a backend without a signal of its workers.
type plain struct{ backend.Backend }

func TestBackendWithoutASignalIsReadByItsStats(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		p, err := weir.NewProducer(weir.New(plain{f}), weir.ProducerConfig{
			LagWarn: 1, Logger: quiet(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 3 {
			if err := p.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
		}
		claim := backend.ClaimRequest{Consumer: "c", Max: 3, ReclaimAfter: time.Minute}
		if _, err := f.Claim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := p.Publish(t.Context(), weir.Message{}); err != nil || time.Since(began) != 500*time.Millisecond {
			t.Errorf("%v after %s, want one sleep for 3 pending", err, time.Since(began))
		}
	})
}

// counting does not know how much waits, and counts as far as it is asked to.
type counting struct{ *backendtest.Fake }

func (c counting) Signal(ctx context.Context, most int64) (backend.Signal, error) {
	s, err := c.Fake.Signal(ctx, most)
	if err == nil {
		s.Lag, s.Behind = nil, min(*s.Lag, most)
	}
	return s, err
}

// Producers of a stream share their readings, also where each counts no further than its own
// limit needs.
func TestAReadingCountsAsFarAsTheHighestLimit(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		s := weir.New(counting{f})
		producer := func(most int64) *weir.Producer {
			p, err := weir.NewProducer(s, weir.ProducerConfig{
				Guard: weir.GuardStatic, MaxDepth: most, DisableLoadShedding: true, LagWarn: -1, LagPause: -1, BackpressureRetries: -1, Logger: quiet(),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			return p
		}
		low, high := producer(100), producer(1000)
		if err := high.PublishBatch(t.Context(), make([]weir.Message, 800)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		refusedFor(t, low.Publish(t.Context(), weir.Message{}), weir.QueueFull) // this reads
		refusedFor(t, high.Publish(t.Context(), weir.Message{}), weir.QueueFull)
	})
}

// A producer that is closed while it reads says nothing of the load to the others.
func TestTheEndOfAProducerIsNoUnknownLoad(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		full := int64(8000)
		f.Pretend(&backend.Signal{Workers: new(int64), Lag: &full, XLen: full})
		s := weir.New(f)
		var all []*weir.Producer
		for range 2 {
			p, err := weir.NewProducer(s, weir.ProducerConfig{Guard: weir.GuardStatic, BackpressureRetries: -1, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			all = append(all, p)
		}
		heal := f.Inject(backendtest.OpSignal, backendtest.Fault{Hang: true})
		ended := make(chan error, 1)
		go func() { ended <- all[0].Publish(t.Context(), weir.Message{}) }()
		synctest.Wait() // it reads
		all[0].Close()
		if err := <-ended; !errors.Is(err, weir.ErrClosed) {
			t.Errorf("the publish of a closed producer: %v", err)
		}
		heal()
		refusedFor(t, all[1].Publish(t.Context(), weir.Message{}), weir.QueueFull)
	})
}

func TestModeOffMeasuresAndStopsNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardOff, LoadSheddingMaxRequests: 1, ShedConcurrency: 1})
		g.pretend(201, 9000)
		remove := g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Hang: true})
		for range 5 {
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Fatalf("%v after %s", err, took)
			}
		}
		remove()
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Fatalf("%v after %s", err, took)
			}
		}
		wantList(t, "changes", g.known, []bool{true})
		if n := g.fake.Calls(backendtest.OpSignal); n < 9 {
			t.Errorf("%d readings in a second: it does not measure", n)
		}
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backendtest.Full(backend.ReasonQueueFull, 0)})
		took, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.QueueFull); took != 0 || full.Err == nil {
			t.Errorf("the server's own refusal: %+v after %s", full, took)
		}
	})
}

func TestShadowOnlyTellsWhatItWouldHaveDone(t *testing.T) {
	for _, c := range []struct {
		name         string
		workers, lag int64
		config       weir.ProducerConfig
		want         []string
	}{
		{name: "nothing"},
		{name: "soft", workers: 51, want: []string{"sleep"}},
		{name: "hard", workers: 201, want: []string{"pause"}},
		{name: "depth", lag: 8000, want: []string{"depth"}},
		{name: "both", workers: 201, lag: 8000, want: []string{"pause", "depth"}},
		{name: "of off", workers: 201, lag: 8000, config: weir.ProducerConfig{ShadowOf: weir.GuardOff}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				c.config.Guard = weir.GuardShadow
				g := guard(t, c.config)
				g.pretend(c.workers, c.lag)
				if took, err := g.timed(t.Context()); err != nil || took != 0 {
					t.Errorf("%v after %s: it acted", err, took)
				}
				wantList(t, "decisions", g.shadowed, c.want)
				for _, l := range append(g.log.of("QUEUE.BACKPRESSURE"), g.log.of("QUEUE.WARNING")...) {
					if !l.attrs["shadow"].Bool() {
						t.Errorf("a line without shadow=true: %v", l)
					}
				}
				if len(g.slowed)+len(g.failed) != 0 {
					t.Errorf("slowed %v, failed %v", g.slowed, g.failed)
				}
			})
		})
	}
	t.Run("window, gate and a full queue", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: weir.GuardShadow, LoadSheddingMaxRequests: 2})
			g.pretend(0, 8000)
			for range 3 {
				if err := g.Publish(t.Context(), weir.Message{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second) // longer than 0.1 + 0.2 + 0.4 s without room
			if err := g.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
			wantList(t, "decisions", g.shadowed, []string{"depth", "depth", "load_shedding", "queue_full"})
		})
	})
}

func TestSettingsAreExchangedWhileAPublishWaits(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(300, 0)
		time.AfterFunc(350*time.Millisecond, func() {
			if err := g.Reconfigure(weir.ProducerConfig{LagPause: 300}); err != nil {
				t.Error(err)
			}
		})
		if took, err := g.timed(t.Context()); err != nil || took != 400*time.Millisecond {
			t.Errorf("%v after %s, want it let go at the next poll", err, took)
		}
		if err := g.Reconfigure(weir.ProducerConfig{LagPoll: time.Hour}); err == nil {
			t.Error("a poll of an hour was taken")
		}
		if took, _ := g.timed(t.Context()); took != 500*time.Millisecond {
			t.Errorf("took %s: the refused settings changed something", took)
		}
	})
}

// A publish that waits goes on when the guard it waits for is replaced by one that would not
// have it wait.
func TestAnotherGuardLetsAWaitingPublishGo(t *testing.T) {
	for name, c := range map[string]weir.ProducerConfig{
		"off": {Guard: weir.GuardOff}, "shadow": {Guard: weir.GuardShadow, ShadowOf: weir.GuardStatic}, "adaptive": {Guard: weir.GuardAdaptive, MaxDepth: 20_000},
	} {
		for wait, load := range map[string][2]int64{"pause": {300, 0}, "depth": {0, 8000}} {
			t.Run(name+" after a "+wait, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					g := guard(t, weir.ProducerConfig{})
					g.pretend(load[0], load[1])
					time.AfterFunc(20*time.Millisecond, func() {
						if err := g.Reconfigure(c); err != nil {
							t.Error(err)
						}
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if took, err := g.timed(ctx); err != nil || took > 150*time.Millisecond {
						t.Errorf("%v after %s", err, took)
					}
				})
			})
		}
	}
}

// Many callers that one pause has held would otherwise all pass by the first
// reading that lets one pass.
func TestPauseDoesNotLetEveryoneGoAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{
			LagSignal: weir.SignalBacklog, LagWarn: -1, LagPause: 20, LoadSheddingMaxRequests: 1 << 20,
		})
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Delay: time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var done sync.WaitGroup
		for range 100 {
			done.Go(func() { _ = g.Publish(ctx, weir.Message{}) })
		}
		done.Wait()
		// Nobody works: 21 is the first backlog above the limit.
		if n := g.entries(t); n != 21 {
			t.Errorf("%d stored, want 21", n)
		}
		if n := g.fake.Calls(backendtest.OpSignal); n > 120 {
			t.Errorf("%d readings in 10s", n)
		}
	})
}

func TestSleepersLookAtTheDepthAfterTheirSleep(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{BackpressureRetries: -1})
		g.pretend(60, 0)
		time.AfterFunc(250*time.Millisecond, func() { g.pretend(60, 9000) })
		took, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.QueueFull); full.Depth != 9060 || took != 500*time.Millisecond {
			t.Errorf("%+v after %s", full, took)
		}
	})
}
