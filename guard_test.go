package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// refusedFor fails the test unless err is a complete refusal for the reason.
func refusedFor(t *testing.T, err error, reason weir.Reason) *weir.QueueFullError {
	t.Helper()
	var full *weir.QueueFullError
	if !errors.As(err, &full) {
		t.Fatalf("got %v, want a QueueFullError", err)
	}
	if full.Reason != reason || full.Queue != "jobs" || full.RetryAfter <= 0 {
		t.Fatalf("got %+v, want reason %s, queue jobs and a RetryAfter", full, reason)
	}
	return full
}

func TestSoftLimitSleepsOnce(t *testing.T) {
	for _, c := range []struct {
		name   string
		config weir.ProducerConfig
		signal int64
		want   time.Duration
	}{
		{"at the limit", weir.ProducerConfig{Guard: weir.GuardStatic}, 50, 0},
		{"just above", weir.ProducerConfig{Guard: weir.GuardStatic}, 51, 500 * time.Millisecond},
		{"far above", weir.ProducerConfig{Guard: weir.GuardStatic}, 200, 500 * time.Millisecond},
		{"other numbers", weir.ProducerConfig{LagWarn: 5, LagWarnSleep: time.Second}, 6, time.Second},
		{"limit off", weir.ProducerConfig{LagWarn: -1}, 200, 0},
		{"proportional, at the limit", weir.ProducerConfig{Guard: weir.GuardProportional}, 50, 0},
		{"proportional, just above", weir.ProducerConfig{Guard: weir.GuardProportional}, 51, 510 * time.Millisecond},
		{"proportional, far above", weir.ProducerConfig{Guard: weir.GuardProportional}, 200, 2 * time.Second},
		{"proportional, no hard limit", weir.ProducerConfig{Guard: weir.GuardProportional, LagPause: -1}, 1e9, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				g.pretend(c.signal, 0)
				c.config.MaxDepth = 1 << 40
				if err := g.Reconfigure(c.config); err != nil {
					t.Fatal(err)
				}
				took, err := g.timed(t.Context())
				if err != nil || took != c.want {
					t.Fatalf("signal %d: %v after %s, want %s", c.signal, err, took, c.want)
				}
				var slept []time.Duration
				if c.want > 0 {
					slept = append(slept, c.want)
				}
				wantList(t, "sleeps told", g.slowed[weir.SoftSleep], slept)
			})
		})
	}
}

func TestHardLimitPollsUntilTheSignalIsNotAboveIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(201, 0)
		began := time.Now()
		time.AfterFunc(750*time.Millisecond, func() {
			if len(g.slowing) != 1 || !strings.HasPrefix(g.slowing[0], "pause: ") || !strings.Contains(g.slowing[0], "201") || g.slowed[weir.HardPause] != nil {
				t.Errorf("told of the beginning of a pause: %q, of its end %v", g.slowing, g.slowed)
			}
			g.pretend(200, 0)
		})
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Fatal(err)
		}
		// 200 is above the soft limit, but who has paused does not sleep too.
		if took := time.Since(began); took != 800*time.Millisecond {
			t.Errorf("paused for %s, want 800ms", took)
		}
		if reads := g.fake.Calls(backendtest.OpSignal); reads != 9 {
			t.Errorf("%d readings, want one at once and 8 polls", reads)
		}
		wantList(t, "pauses told", g.slowed[weir.HardPause], []time.Duration{800 * time.Millisecond})
		wantList(t, "sleeps told", g.slowed[weir.SoftSleep], nil)
	})
}

func TestBacklogCanBeTheSignal(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardProportional, LagSignal: weir.SignalBacklog})
		g.pretend(10, 90)
		if took, err := g.timed(t.Context()); err != nil || took != time.Second {
			t.Errorf("%v after %s, want 1s for a backlog of 100", err, took)
		}
	})
}

// What keeps a publish waiting, and the settings for it.
var waits = map[string]struct {
	config       weir.ProducerConfig
	workers, lag int64
	fault        error
}{
	"soft sleep":  {workers: 51},
	"hard pause":  {workers: 201},
	"depth":       {lag: 8000},
	"hold":        {config: weir.ProducerConfig{LagUnknown: weir.UnknownHold}, workers: -1},
	"server full": {fault: backendtest.Full(backend.ReasonQueueFull, time.Minute)},
}

func TestEveryWaitEndsWithItsContext(t *testing.T) {
	for name, c := range waits {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				g.pretend(c.workers, c.lag)
				if c.workers < 0 {
					g.fake.Pretend(&backend.Signal{})
				}
				g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.fault})
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(23*time.Millisecond, cancel)
				took, err := g.timed(ctx)
				if !errors.Is(err, context.Canceled) || took != 23*time.Millisecond {
					t.Errorf("ended with %v after %s, want the context's error after 23ms", err, took)
				}
				if n := g.entries(t); n != 0 || g.failed["cancelled"] != 1 {
					t.Errorf("%d stored, failures %v: want none stored and one cancelled", n, g.failed)
				}
			})
		})
	}
}

func TestEveryWaitEndsWithItsProducer(t *testing.T) {
	for name, c := range waits {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				g.pretend(c.workers, c.lag)
				if c.workers < 0 {
					g.fake.Pretend(&backend.Signal{})
				}
				g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.fault})
				time.AfterFunc(23*time.Millisecond, func() { _ = g.Close() })
				took, err := g.timed(t.Context())
				if !errors.Is(err, weir.ErrClosed) || took != 23*time.Millisecond {
					t.Errorf("ended with %v after %s, want ErrClosed after 23ms", err, took)
				}
				if err := g.Publish(t.Context(), weir.Message{}); !errors.Is(err, weir.ErrClosed) {
					t.Errorf("a publish after Close: %v, want ErrClosed", err)
				}
				if n := g.entries(t); n != 0 {
					t.Errorf("%d stored", n)
				}
			})
		})
	}
}

// Nothing is known of a stream that is closed, nor will be: no policy for an unknown load
// makes a publish wait for it.
func TestEveryWaitEndsWithItsStream(t *testing.T) {
	for name, c := range waits {
		t.Run(name, func(t *testing.T) {
			for _, unknown := range []weir.UnknownPolicy{weir.UnknownOpen, weir.UnknownHold, weir.UnknownDecay} {
				bubble.Run(t, func(t *testing.T) {
					c.config.LagUnknown = unknown
					g := guard(t, c.config)
					g.pretend(c.workers, c.lag)
					if c.workers < 0 {
						g.fake.Pretend(&backend.Signal{})
					}
					g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.fault})
					time.AfterFunc(23*time.Millisecond, func() { _ = g.fake.Close() })
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					if took, err := g.timed(ctx); took > 0 && !errors.Is(err, weir.ErrClosed) {
						t.Errorf("%s: ended with %v after %s, want ErrClosed", unknown, err, took)
					}
					time.Sleep(time.Second)
					for what, publish := range map[string]func(context.Context, weir.Message) error{"Publish": g.Publish, "TryPublish": g.TryPublish} {
						if err := publish(ctx, weir.Message{}); !errors.Is(err, weir.ErrClosed) {
							t.Errorf("%s: %s to a closed stream: %v, want ErrClosed", unknown, what, err)
						}
					}
				})
			}
		})
	}
}

func TestTryPublishNeverWaits(t *testing.T) {
	for name, c := range waits {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				g.pretend(c.workers, c.lag)
				if c.workers < 0 {
					g.fake.Pretend(&backend.Signal{})
				}
				g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.fault})
				began := time.Now()
				err := g.TryPublish(t.Context(), weir.Message{})
				if took := time.Since(began); took != 0 {
					t.Errorf("waited %s", took)
				}
				if name == "soft sleep" {
					if err != nil {
						t.Errorf("the soft limit refused: %v", err)
					}
					return
				}
				refusedFor(t, err, weir.QueueFull)
			})
		})
	}
}

func TestDepthIsLookedAtAgainThreeTimesThenRefused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(0, 7999)
		if took, err := g.timed(t.Context()); err != nil || took != 0 {
			t.Fatalf("below the limit: %v after %s", err, took)
		}
		different := map[time.Duration]bool{}
		for range 20 {
			time.Sleep(time.Second)
			g.pretend(0, 8000)
			g.slowed, g.tries = map[weir.SlowKind][]time.Duration{}, nil
			reads := g.fake.Calls(backendtest.OpSignal)
			took, err := g.timed(t.Context())
			full := refusedFor(t, err, weir.QueueFull)
			if full.Depth != 8000 || full.MaxDepth != 10_000 || full.Err != nil {
				t.Fatalf("got %+v", full)
			}
			wantList(t, "tries told", g.tries, []int{1, 2, 3})
			if n := g.fake.Calls(backendtest.OpSignal) - reads; n != 4 {
				t.Errorf("%d readings, want one for each look", n)
			}
			sum := time.Duration(0)
			for i, base := range []time.Duration{100, 200, 400} {
				d := g.slowed[weir.DepthWait][i]
				if base *= time.Millisecond; d < base/2 || d > base*3/2 {
					t.Errorf("wait %d was %s, want %s ± 50 %%", i+1, d, base)
				}
				sum += d
				different[d] = true
			}
			if took != sum {
				t.Errorf("took %s, its waits %s", took, sum)
			}
		}
		if len(different) < 50 {
			t.Errorf("60 waits had %d different lengths: no jitter", len(different))
		}
		if n := g.fake.Calls(backendtest.OpAppend); n != 1 {
			t.Errorf("%d appends, want the first one's only", n)
		}
	})
}

func TestRoomThatComesInTimeIsUsed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		g.pretend(0, 9000)
		time.AfterFunc(200*time.Millisecond, func() { g.pretend(0, 10) })
		if _, err := g.timed(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(g.tries) == 0 || len(g.tries) > 3 || g.stored != 1 {
			t.Errorf("tries %v, stored %d", g.tries, g.stored)
		}
	})
}

func TestDepthIsTheWorkAndNeverWhatIsStored(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{BackpressureRetries: -1})
		zero := int64(0)
		g.fake.Pretend(&backend.Signal{Workers: &zero, Lag: &zero, XLen: 50_000})
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Fatalf("a long stream without work: %v", err)
		}
		time.Sleep(time.Second)
		g.fake.Pretend(&backend.Signal{Workers: &zero, XLen: 50_000})
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Fatalf("the same with a lag that is not known: %v", err)
		}
		time.Sleep(time.Second)
		g.fake.Pretend(&backend.Signal{Workers: &zero, Pending: 100, Behind: 9900, XLen: 50_000})
		took, err := g.timed(t.Context())
		if full := refusedFor(t, err, weir.QueueFull); full.Depth != 10_000 || took != 0 {
			t.Errorf("got %+v after %s, want depth 10000 at once", full, took)
		}
	})
}

// A reading may be old, but one producer cannot rush past the limit with it.
func TestOneReadingGivesOutNoMoreRoomThanItSaw(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{MaxDepth: 100, DisableLoadShedding: true, LagCache: time.Minute, BackpressureRetries: -1})
		var err error
		stored := 0
		for err == nil {
			if err = g.Publish(t.Context(), weir.Message{}); err == nil {
				stored++
			}
		}
		if full := refusedFor(t, err, weir.QueueFull); stored != 80 || full.Depth != 80 {
			t.Errorf("%d stored, refused at %d: want 80", stored, full.Depth)
		}
		if n := g.fake.Calls(backendtest.OpSignal); n != 2 {
			t.Errorf("%d readings, want the first and one when its room was used up", n)
		}
	})
}

// 80 % of the limit of 8,000 is 6,400.
func TestAQueueThatComesNearItsCapacityIsToldBeforeAnythingWaits(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		for _, depth := range []int64{6399, 6400, 7999, 6500, 6399, 0, 6400} {
			g.pretend(0, depth)
			if took, err := g.timed(t.Context()); err != nil || took != 0 {
				t.Fatalf("depth %d: %v after %s", depth, err, took)
			}
			time.Sleep(2 * time.Second)
		}
		wantList(t, "changes", g.near, []bool{true, false, true})
		said := g.log.of("QUEUE.WARNING")
		if len(said) != 2 || said[0].attrs["depth"].Int64() != 6400 || said[0].attrs["decision"].String() != "near" {
			t.Errorf("lines %v, want one for each time that it came near", said)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		wantList(t, "changes with the end", g.near, []bool{true, false, true, false})
	})
}

func TestARefusalNamesTheLimitThatWasPassedAndNoOther(t *testing.T) {
	down := fmt.Errorf("connect: %w", weir.ErrUnavailable)
	for _, c := range []struct {
		name         string
		config       weir.ProducerConfig
		workers, lag int64
		reading      error
		appending    error
		want, not    string
	}{
		{name: "window", config: weir.ProducerConfig{LoadSheddingMaxRequests: 1}, want: "1 requests of this process within 1s", not: "depth"},
		{name: "gate", config: weir.ProducerConfig{ShedConcurrency: 1}, workers: 201, want: "shed_concurrency", not: "depth"},
		{name: "hard limit", workers: 201, want: "201 messages are pending, more than lag_pause 200", not: "DEPTH"},
		{name: "hard limit of the backlog", config: weir.ProducerConfig{LagSignal: weir.SignalBacklog}, workers: 1, lag: 200,
			want: "the backlog is 201, more than lag_pause 200", not: "DEPTH"},
		{name: "depth", lag: 8000, want: "depth 8000; the limit is 8000 (QUEUE_BACKPRESSURE_THRESHOLD 0.8 of QUEUE_MAX_DEPTH 10000)", not: "lag_pause"},
		{name: "server", appending: backendtest.Full(backend.ReasonQueueFull, 0), want: "the server has no room", not: "depth"},
		{name: "nobody answers", reading: down, appending: down, want: "connect", not: "queue_full"},
		{name: "nobody answers, hold", config: weir.ProducerConfig{LagUnknown: weir.UnknownHold}, reading: down, want: "connect", not: "queue_full"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, c.config)
				g.pretend(c.workers, c.lag)
				if c.reading != nil {
					g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: c.reading})
				}
				if c.appending != nil {
					g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: c.appending})
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.name == "window" || c.name == "gate" {
					go func() { _ = g.Publish(ctx, weir.Message{}) }()
					synctest.Wait()
				}
				err := g.TryPublish(ctx, weir.Message{})
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), c.not) || strings.Contains(err.Error(), "is full") {
					t.Errorf("got %v, want %q and not %q", err, c.want, c.not)
				}
				if c.not == "queue_full" && (!errors.Is(err, weir.ErrUnavailable) || g.failed["unavailable"] != 1) {
					t.Errorf("got %v, counted as %v: want ErrUnavailable", err, g.failed)
				}
			})
		})
	}
}

// A caller whose context ends while it waits is told what it waited for.
func TestPublishThatEndsWhileWaitingSaysWhatFor(t *testing.T) {
	whileWaiting(t, func(t *testing.T, g *guarded, want string) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := g.timed(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to end with its context and to say %q", err, want)
		}
	})
}
