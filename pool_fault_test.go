package weir

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/capture"
)

// logged collects log lines as text.
type logged struct{ capture.Buffer }

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// claimAll claims for somebody else.
func claimAll(t *testing.T, f *backendtest.Fake) []*Delivery {
	t.Helper()
	got, err := f.Again().Claim(context.Background(), backend.ClaimRequest{Consumer: "other", Max: 1000, ReclaimAfter: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return got.Deliveries
}

func TestPoolKeepsWhatItRunsAndWhatItHasClaimedAhead(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 2)
		p := startPool(t, f, func(context.Context, *Delivery) error { time.Sleep(20 * time.Minute); return nil },
			PoolConfig{Workers: 1, HandlerTimeout: -1, DrainTimeout: time.Hour})
		for range 38 * 6 {
			time.Sleep(10 * time.Second)
			if got := claimAll(t, f); len(got) > 0 {
				t.Fatalf("somebody else gets message %s of a live pool", got[0].ID)
			}
		}
		// One extension for all is due every 10 s.
		if n := f.Calls(backendtest.OpExtend); n > 38*6+2 || n < 38*6-30 {
			t.Errorf("%d extensions in 38 minutes, want one every 10 s", n)
		}
		time.Sleep(3 * time.Minute)
		p.finish()
		p.expect(PoolStats{Acked: 2})
	})
}

func TestPoolCancelsAHandlerWhoseLeaseIsLost(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		var cause error
		var at time.Time
		p := startPool(t, f, func(ctx context.Context, d *Delivery) error {
			if d.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			cause, at = context.Cause(ctx), time.Now()
			return nil
		}, PoolConfig{Workers: 1})
		synctest.Wait()
		start := time.Now()
		thief := f.Again()
		thief.Inject(backendtest.OpClaim, backendtest.Fault{Repeat: true, Times: 1})
		got, err := thief.Claim(t.Context(), backend.ClaimRequest{Consumer: "thief", Max: 1, ReclaimAfter: time.Hour})
		if err != nil || len(got.Deliveries) != 1 {
			t.Fatal(got, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(cause, ErrLeaseLost) {
			t.Errorf("the handler's context ended with %v, want ErrLeaseLost", cause)
		}
		if took := at.Sub(start); took > 11*time.Second {
			t.Errorf("the loss was noticed after %s, want one heartbeat of 10 s", took)
		}
		p.finish()
		p.expect(PoolStats{Unsettled: 1})
		if len(f.Acked()) != 0 {
			t.Error("the result of a lost lease was acked")
		}
	})
}

func TestPoolCancelsAHandlerThatRunsTooLong(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		var took []time.Duration
		p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
			start := time.Now()
			if end, ok := ctx.Deadline(); !ok || end.Sub(start) != time.Minute {
				t.Errorf("the context's deadline is %v", end)
			}
			<-ctx.Done()
			took = append(took, time.Since(start))
			if !errors.Is(context.Cause(ctx), ErrHandlerTimeout) {
				t.Errorf("its context ended with %v", context.Cause(ctx))
			}
			return nil // too late: it counts as failed
		}, PoolConfig{Workers: 1, HandlerTimeout: time.Minute, MaxDeliveries: 2})
		time.Sleep(3 * time.Minute)
		p.finish()
		p.expect(PoolStats{Retried: 1, Dead: 1})
		for _, d := range took {
			if d < time.Minute || d > time.Minute+10*time.Millisecond {
				t.Errorf("a handler with a minute was cancelled after %s", d)
			}
		}
		letters, _ := f.List(t.Context(), "", "", 10)
		if len(letters) != 1 || !strings.Contains(letters[0].Error, ErrHandlerTimeout.Error()) {
			t.Errorf("dead letters: %+v", letters)
		}
	})
}

// A message whose handler ran too long is anybody's after ReclaimAfter, though nobody
// takes it back and the handler goes on.
func TestPoolDoesNotKeepWhatRunsTooLong(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		end := make(chan struct{})
		p := startPool(t, f, func(context.Context, *Delivery) error { <-end; return nil },
			PoolConfig{Workers: 1, ReclaimAfter: 30 * time.Second, HandlerTimeout: 57 * time.Second})
		synctest.Wait() // the handler has begun
		f.Inject(backendtest.OpNack, backendtest.Fault{Err: backend.ErrUnavailable})
		f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrUnavailable})
		time.Sleep(57 * time.Second)
		if got := claimAll(t, f); len(got) > 0 {
			t.Error("the message is not kept until HandlerTimeout")
		}
		time.Sleep(30 * time.Second)
		if got := claimAll(t, f); len(got) != 1 {
			t.Error("ReclaimAfter after HandlerTimeout nobody else gets the message")
		}
		close(end)
		p.finish()
	})
}

func TestPoolGoesOnWithoutAHandlerThatHangs(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		log := &logged{}
		release := make(chan struct{})
		start := time.Now()
		var done time.Duration
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if d.Attempt == 1 {
				hangForEver(release)
			}
			done = time.Since(start)
			return nil
		}, PoolConfig{Workers: 1, HandlerTimeout: time.Minute, Logger: log.logger()})
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		// Its timeout, the time to notice, a retry's delay.
		if done == 0 || done > time.Minute+30*time.Second+2*time.Second {
			t.Errorf("the message was done after %s, want handler timeout + ReclaimAfter + Block at most", done)
		}
		if s := p.Stats(); s.Acked != 1 || s.Retried != 1 || s.Stuck != 1 {
			t.Errorf("counts: %+v", s)
		}
		lines := log.Lines("ignores its context")
		if len(lines) != 1 || !strings.Contains(lines[0], "hangForEver") || !strings.Contains(lines[0], "message_id=1") {
			t.Errorf("log lines of the stuck handler: %q", lines)
		}
		close(release)
		synctest.Wait()
		if s := p.Stats(); s.Acked != 1 || s.Stuck != 0 {
			t.Errorf("counts after it came back: %+v", s)
		}
		p.finish()
	})
}

//go:noinline
func hangForEver(release <-chan struct{}) { <-release }

func TestPoolClaimsNothingWhileAllItsWorkersHang(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 100)
		release := make(chan struct{})
		p := startPool(t, f, func(context.Context, *Delivery) error { <-release; return nil },
			PoolConfig{Workers: 2, HandlerTimeout: time.Second, MaxDeliveries: -1})
		time.Sleep(2 * time.Minute)
		s := p.Stats()
		if s.Stuck != 4 || s.Busy != 0 || s.Waiting != 0 {
			t.Errorf("counts: %+v, want 2 workers and 2 in their place stuck and nothing held", s)
		}
		if got := claimAll(t, f); len(got) != 100 {
			t.Errorf("others get %d of 100 messages", len(got))
		}
		publish(t, f, 5)
		close(release)
		time.Sleep(time.Second)
		if s := p.Stats(); s.Acked != 5 || s.Stuck != 0 {
			t.Errorf("counts once the handlers came back: %+v", s)
		}
		p.finish()
	})
}

func TestPoolReturnsThoughAHandlerHangs(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		release := make(chan struct{})
		defer close(release)
		p := startPool(t, f, func(context.Context, *Delivery) error { <-release; return nil }, PoolConfig{Workers: 1})
		synctest.Wait()
		start := time.Now()
		p.Cancel()
		if err := <-p.done; err == nil || !strings.Contains(err.Error(), "1 handlers ignore") {
			t.Errorf("Run returned %v, a handler still runs", err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Run returned after %s", took)
		}
		if got := claimAll(t, f); len(got) != 1 || got[0].Attempt != 2 {
			t.Errorf("others get %v", got)
		}
	})
}

func TestPoolOutlivesPanicsAndGoexit(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 100)
		log := &logged{}
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			switch string(d.Data) {
			case "7":
				panic("seven")
			case "8":
				runtime.Goexit()
			}
			return nil
		}, PoolConfig{Workers: 2, RetryBase: time.Second, Logger: log.logger()})
		time.Sleep(time.Second / 4)
		p.expect(PoolStats{Acked: 98, Retried: 2})
		time.Sleep(time.Minute)
		p.finish()
		p.expect(PoolStats{Acked: 98, Retried: 4, Dead: 2})
		if lines := log.Lines("handler panicked"); len(lines) != 3 || !strings.Contains(lines[0], "pool_fault_test.go") {
			t.Errorf("3 panics were logged as %q", lines)
		}
		dead := log.Lines("dead letters")
		for _, attribute := range []string{"stream=jobs", "message_id=8", "attempt=3", "consumer=me", "delivery_limit=3"} {
			if len(dead) != 2 || !strings.Contains(dead[0]+dead[1], attribute) {
				t.Errorf("the lines of the dead letters lack %s: %q", attribute, dead)
			}
		}
	})
}

func TestPoolWaitsOutAnOutage(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		log := &logged{}
		p := startPool(t, f, nothing, PoolConfig{Workers: 2, Logger: log.logger(), Block: 100 * time.Millisecond})
		time.Sleep(time.Second)
		var back []func()
		for _, op := range []backendtest.Op{backendtest.OpClaim, backendtest.OpAck, backendtest.OpNack, backendtest.OpExtend, backendtest.OpPublishSignal} {
			back = append(back, f.Inject(op, backendtest.Fault{Err: fmt.Errorf("gone: %w", backend.ErrUnavailable)}))
		}
		time.Sleep(time.Second) // the claim under way ends
		publish(t, f, 50)
		before := f.Calls(backendtest.OpClaim)
		time.Sleep(10 * time.Minute)
		if n := f.Calls(backendtest.OpClaim) - before; n > 700 || n < 200 {
			t.Errorf("%d claims in 10 minutes without a server, want one in about 2 s", n)
		}
		for _, heal := range back {
			heal()
		}
		time.Sleep(4 * time.Second)
		p.expect(PoolStats{Acked: 50})
		if n := len(log.Lines("waiting for the backend")); n != 1 {
			t.Errorf("the outage was logged %d times", n)
		}
		if n := len(log.Lines("backend is back")); n != 1 {
			t.Errorf("its end was logged %d times", n)
		}
		p.finish()
	})
}

func TestPoolEndsIfItsFirstClaimIsRefusedForGood(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrStreamNotFound, Times: 1})
		p := startPool(t, f, nothing, PoolConfig{})
		if err := <-p.done; !errors.Is(err, ErrStreamNotFound) {
			t.Errorf("Run returned %v", err)
		}
	})
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		p := startPool(t, f, nothing, PoolConfig{})
		time.Sleep(time.Minute)
		f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrStreamNotFound, Times: 10})
		time.Sleep(time.Minute)
		publish(t, f, 1)
		time.Sleep(time.Second)
		p.expect(PoolStats{Acked: 1})
		p.finish()
	})
}

// What a pool has done it does not do again, however long the server did not
// take its acks, and nothing of it ends as a dead letter.
func TestPoolNeverRunsAgainWhatItHasHandled(t *testing.T) {
	for name, acks := range map[string]backendtest.Fault{
		"the server is away":             {Err: backend.ErrUnavailable},
		"the server hangs":               {Hang: true},
		"the server refuses acks":        {Err: errors.New("no permission"), Times: 1},
		"acks are not permitted":         {Err: backend.ErrForbidden},
		"a claim overtakes the late ack": {Err: backend.ErrUnavailable, Times: 4},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 30)
				var mu sync.Mutex
				runs := map[string]int{}
				p := startPool(t, f, func(_ context.Context, d *Delivery) error {
					mu.Lock()
					defer mu.Unlock()
					runs[string(d.Data)]++
					return nil
				}, PoolConfig{Workers: 2, Batch: 5, Block: 100 * time.Millisecond, ReclaimAfter: time.Second, MaxDeliveries: 2})
				heal := f.Inject(backendtest.OpAck, acks)
				var back func()
				if strings.HasPrefix(name, "the server is") || strings.HasPrefix(name, "the server hangs") {
					back = f.Inject(backendtest.OpExtend, acks)
				}
				if strings.HasPrefix(name, "a claim") {
					f.Inject(backendtest.OpClaim, backendtest.Fault{Skip: 1, Times: 1, Repeat: true})
				}
				time.Sleep(20 * time.Second)
				heal()
				if back != nil {
					back()
				}
				time.Sleep(time.Minute)
				p.finish()
				mu.Lock()
				defer mu.Unlock()
				for data, n := range runs {
					if n != 1 {
						t.Errorf("message %s was handled %d times", data, n)
					}
				}
				letters, _ := f.List(t.Context(), "", "", 10)
				stats, _ := f.Stats(t.Context())
				if len(runs) != 30 || len(f.Acked()) != 30 || len(letters) != 0 || stats.Pending != 0 {
					t.Errorf("%d handled, %d acked, %d dead, %d pending", len(runs), len(f.Acked()), len(letters), stats.Pending)
				}
			})
		})
	}
}

func TestPoolRepeatsAnAckWhoseAnswerWasLost(t *testing.T) {
	for _, fault := range []backendtest.Fault{
		{LoseAnswer: true, Times: 2}, {Err: backend.ErrUnavailable, Times: 3}, {Hang: true, Times: 1}, {Hang: true, LoseAnswer: true, Times: 1},
		{Err: backendtest.Full(backend.ReasonQueueFull, 3*time.Second), Times: 2},
	} {
		bubble.Run(t, func(t *testing.T) {
			f := backendtest.NewFake(backendtest.FakeOptions{})
			f.Inject(backendtest.OpAck, fault)
			f.Inject(backendtest.OpDeadLetter, fault)
			f.Inject(backendtest.OpNack, fault)
			publish(t, f, 10)
			p := startPool(t, f, func(_ context.Context, d *Delivery) error {
				switch {
				case string(d.Data) == "3":
					return Poison(errors.New("bad"))
				case string(d.Data) == "4" && d.Attempt == 1:
					return errors.New("again")
				}
				return nil
			}, PoolConfig{Workers: 2})
			time.Sleep(2 * time.Minute)
			p.finish()
			p.expect(PoolStats{Acked: 9, Retried: 1, Dead: 1})
			if letters, _ := f.List(t.Context(), "", "", 10); len(letters) != 1 || len(f.Acked()) != 9 {
				t.Errorf("%+v: %d letters, %d acks", fault, len(letters), len(f.Acked()))
			}
		})
	}
}

func TestPoolBeginsNothingUntilItsLeasesAreConfirmed(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 10)
		var begun atomic.Int64
		p := startPool(t, f, func(context.Context, *Delivery) error {
			begun.Add(1)
			time.Sleep(time.Second)
			return nil
		}, PoolConfig{Workers: 1})
		synctest.Wait()
		heal := f.Inject(backendtest.OpExtend, backendtest.Fault{Err: backend.ErrUnavailable})
		f.Inject(backendtest.OpAck, backendtest.Fault{Err: backend.ErrUnavailable, Times: 1})
		time.Sleep(5 * time.Second)
		if n := begun.Load(); n > 2 {
			t.Errorf("%d handlers began though the leases are in doubt", n)
		}
		heal()
		time.Sleep(20 * time.Second)
		p.expect(PoolStats{Acked: 10})
		p.finish()
	})
}

func TestPoolThatDiedIsHealedByTheOthers(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 500)
		start := time.Now()
		handle := func(context.Context, *Delivery) error { time.Sleep(100 * time.Millisecond); return nil }
		var pools []*testPool
		var dead []*backendtest.Fake
		for i := range 5 {
			own := f.Again()
			pools = append(pools, startPool(t, own, handle, PoolConfig{Workers: 4, Consumer: fmt.Sprint("pool-", i), MaxDeliveries: 3}))
			if i < 2 {
				dead = append(dead, own)
			}
		}
		time.Sleep(250 * time.Millisecond)
		for _, own := range dead {
			own.Close() // from now on nothing of this pool reaches the stream
		}
		died := time.Since(start)
		for len(f.Acked()) < 500 {
			time.Sleep(100 * time.Millisecond)
			if time.Since(start) > time.Minute {
				t.Fatalf("%d of 500 messages are done after a minute", len(f.Acked()))
			}
		}
		if took := time.Since(start) - died; took > 30*time.Second+2*time.Second+time.Second {
			t.Errorf("all is done %s after two pools died, want ReclaimAfter + Block + the work", took)
		}
		for i, p := range pools {
			if i < 2 {
				<-p.done
				continue
			}
			p.finish()
		}
	})
}

func TestPoolCountsAndLogsWhatAClaimMovedAside(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 3)
		claimAll(t, f)
		if _, err := f.Trim(t.Context(), backend.TrimRequest{MaxLen: 2}); err != nil {
			t.Fatal(err)
		}
		log := &logged{}
		var mu sync.Mutex
		outcomes := map[Outcome]int{}
		reclaimed := 0
		p := startPool(t, f, nothing, PoolConfig{MaxDeliveries: 1, Logger: log.logger(), Hooks: Hooks{
			Settled:   func(_ StreamName, o Outcome, n int) { mu.Lock(); outcomes[o] += n; mu.Unlock() },
			Reclaimed: func(_ StreamName, n int) { mu.Lock(); reclaimed += n; mu.Unlock() },
		}})
		time.Sleep(40 * time.Second)
		p.finish()
		p.expect(PoolStats{Dead: 2, Lost: 1})
		if outcomes[Dead] != 2 || outcomes[Lost] != 1 || len(outcomes) != 2 || reclaimed != 0 {
			t.Errorf("hooks were told %v, %d reclaimed", outcomes, reclaimed)
		}
		if n := len(log.Lines("dead letters")); n != 2 {
			t.Errorf("%d lines of dead letters", n)
		}
		if n := len(log.Lines("removed from the stream")); n != 1 {
			t.Errorf("%d lines of lost messages", n)
		}
	})
}

func TestPoolTellsProducersItsLoad(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		p := startPool(t, f, func(context.Context, *Delivery) error { time.Sleep(time.Minute); return nil }, PoolConfig{Workers: 3})
		publish(t, f, 3)
		time.Sleep(time.Second)
		for range 55 {
			time.Sleep(time.Second)
			if s, _ := f.Signal(t.Context(), 100); s.Workers == nil || *s.Workers != 3 {
				t.Fatalf("while 3 handlers run the signal is %v", s.Workers)
			}
		}
		if n := f.Calls(backendtest.OpPublishSignal); n > 60 {
			t.Errorf("%d publications in a minute with little going on", n)
		}
		before := f.Calls(backendtest.OpPublishSignal)
		time.Sleep(9 * time.Second)
		if s, _ := f.Signal(t.Context(), 100); s.Workers == nil || *s.Workers != 0 {
			t.Errorf("after the last ack the signal is %v", s.Workers)
		}
		p.finish()
		if s, _ := f.Signal(t.Context(), 100); s.Workers == nil || *s.Workers != 0 {
			t.Errorf("after the stop the signal is %v", s.Workers)
		}
		if f.Calls(backendtest.OpPublishSignal) == before {
			t.Error("nothing was published")
		}
	})
}

func TestPoolCoalescesItsSignal(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 2000)
		p := startPool(t, f, func(context.Context, *Delivery) error { time.Sleep(time.Millisecond); return nil }, PoolConfig{Workers: 2})
		time.Sleep(time.Second)
		if n := f.Calls(backendtest.OpPublishSignal); n > 21 || n < 15 {
			t.Errorf("%d publications in a busy second, want one in 50 ms", n)
		}
		p.finish()
	})
}

func TestPoolEndsOnceTheStreamIsEmpty(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T) {
			f := backendtest.NewFake(backendtest.FakeOptions{})
			f.SetLagUnknown(unknown)
			publish(t, f, 5)
			start := time.Now()
			p := startPool(t, f, func(_ context.Context, d *Delivery) error {
				if d.Attempt == 1 {
					return RetryIn(20*time.Second, errors.New("later"))
				}
				return nil
			}, PoolConfig{UntilEmpty: 3 * time.Second})
			if err := <-p.done; err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took < 23*time.Second || took > 26*time.Second {
				t.Errorf("Run returned after %s, want 3 s after the last retry at 20 s", took)
			}
			p.expect(PoolStats{Acked: 5, Retried: 5})
		})
	}
}

func TestPoolTellsHooksWhatHappens(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 4)
		var mu sync.Mutex
		var told []string
		handled, measured, trimmed := 0, 0, 0
		p := startPool(t, f, func(context.Context, *Delivery) error { time.Sleep(time.Second); return nil }, PoolConfig{
			Workers: 4, TrimEvery: 10 * time.Second,
			Hooks: Hooks{
				Handled: func(s StreamName, took time.Duration, err error) {
					mu.Lock()
					defer mu.Unlock()
					if handled++; took != time.Second || err != nil || s.Stream != "jobs" {
						t.Errorf("Handled(%v, %s, %v)", s, took, err)
					}
				},
				Workers:  func(_ StreamName, workers, busy int) { told = append(told, fmt.Sprint(workers, "/", busy)) },
				Measured: func(_ StreamName, m Measurement) { measured++; trimmed = int(m.Depth) },
			},
		})
		time.Sleep(31 * time.Second)
		p.finish()
		if text := strings.Join(told, " "); !strings.Contains(text, "4/4") || !strings.HasPrefix(text, "4/") || !strings.HasSuffix(text, "4/0 0/0") {
			t.Errorf("Workers was told %s", text)
		}
		if handled != 4 || measured != 6 || trimmed != 0 {
			t.Errorf("%d handled, %d readings, the last of depth %d", handled, measured, trimmed)
		}
		if s, _ := f.Stats(t.Context()); s.XLen != 0 {
			t.Errorf("%d entries are left after a trim", s.XLen)
		}
	})
}

func TestPoolStopsWhileTheBackendIsAway(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 5)
		p := startPool(t, f, nothing, PoolConfig{Workers: 1, DrainTimeout: 3 * time.Second})
		f.Inject(backendtest.OpAck, backendtest.Fault{Hang: true})
		f.Inject(backendtest.OpClaim, backendtest.Fault{Hang: true, Skip: 1})
		f.Inject(backendtest.OpPublishSignal, backendtest.Fault{Hang: true})
		time.Sleep(time.Second)
		start := time.Now()
		p.end()
		if err := <-p.done; err == nil || !strings.Contains(err.Error(), "for 2 messages") {
			t.Errorf("Run returned %v though no ack was answered", err)
		}
		if took := time.Since(start); took > 14*time.Second {
			t.Errorf("the stop took %s", took)
		}
	})
}

func TestHandlersContextIsAStandardOne(t *testing.T) {
	type key struct{}
	parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
	defer cancel(nil)
	c := &jobContext{pool: &Pool{work: parent}}
	child, stop := context.WithTimeout(c, time.Hour)
	defer stop()
	if c.Value(key{}) != "value" || c.Err() != nil {
		t.Error("a value or an error of its own")
	}
	c.cancel(ErrLeaseLost)
	c.cancel(ErrHandlerTimeout)
	<-child.Done()
	for _, ctx := range []context.Context{c, child} {
		if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), ErrLeaseLost) {
			t.Errorf("ended with %v because of %v", ctx.Err(), context.Cause(ctx))
		}
	}
	late := &jobContext{pool: &Pool{work: parent}}
	late.cancel(ErrLeaseLost)
	if context.Cause(late) != ErrLeaseLost {
		t.Error("one that is looked at after its end is not ended")
	}
}

// A message with a limit of its own says which one it has reached.
func TestTheLineOfADeadLetterHasTheLimitThatItReached(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		if _, err := f.Append(t.Context(), []Message{{Headers: map[string]string{backend.HeaderLimit: "2"}}}); err != nil {
			t.Fatal(err)
		}
		var log logged
		p := startPool(t, f, func(context.Context, *Delivery) error { return errors.New("no") }, PoolConfig{MaxDeliveries: 5, Logger: log.logger()})
		time.Sleep(time.Minute)
		p.finish()
		if got := log.String(); !strings.Contains(got, "attempt=2") || !strings.Contains(got, "delivery_limit=2") {
			t.Errorf("the log says\n%s", got)
		}
	})
}

// A pool whose stream was closed under it says so once, by what Run returns.
func TestThePoolOfAClosedStreamDoesNotWarn(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f, logs := backendtest.NewFake(backendtest.FakeOptions{}), &logged{}
		p, err := NewPool(New(f), func(context.Context, *Delivery) error { return nil }, PoolConfig{Trim: TrimOn, Logger: logs.logger()})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Minute, func() { _ = f.Close() })
		if err := p.Run(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("it ended with %v", err)
		}
		if text := logs.String(); strings.Contains(text, "WARN") {
			t.Errorf("the log:\n%s", text)
		}
	})
}
