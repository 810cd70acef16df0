package weir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// everyGuard runs a test with each guard that has limits.
func everyGuard(t *testing.T, test func(t *testing.T, mode weir.GuardMode)) {
	for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardProportional, weir.GuardAdaptive} {
		t.Run(string(mode), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) { test(t, mode) })
		})
	}
}

// A burst at the start of a producer finds the queue empty at every reading while it is
// on its way there, however often the guard reads meanwhile.
func TestABurstStaysBelowTheLimitWhileItIsUnderWay(t *testing.T) {
	for _, gathering := range []bool{true, false} {
		t.Run(fmt.Sprint("gathering ", gathering), func(t *testing.T) {
			everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
				g := guard(t, weir.ProducerConfig{
					Guard: mode, MaxDepth: 500, DisableLoadShedding: true, LagWarn: -1, LagPause: -1, DisableGathering: !gathering,
				})
				g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Delay: 300 * time.Millisecond})
				g.fake.Inject(backendtest.OpStats, backendtest.Fault{Delay: 3 * time.Millisecond})
				var all sync.WaitGroup
				for i := range 2000 {
					all.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Microsecond)
						err := g.Publish(t.Context(), weir.Message{})
						var full *weir.QueueFullError
						if err != nil && !errors.As(err, &full) {
							t.Error(err)
						}
					})
				}
				all.Wait()
				s, err := g.fake.Stats(t.Context())
				if err != nil || s.XLen > 400 || s.XLen < 300 {
					t.Errorf("%d of 2000 stored at a limit of 400, %v", s.XLen, err)
				}
			})
		})
	}
}

// A batch that is larger than the limit is stored up to there.
func TestALargeBatchStaysBelowTheLimit(t *testing.T) {
	everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
		g := guard(t, weir.ProducerConfig{Guard: mode, MaxDepth: 20, LagWarn: -1, LagPause: -1, BackpressureRetries: -1})
		err := g.PublishBatch(t.Context(), make([]weir.Message, 400))
		var parts *weir.BatchError
		if !errors.As(err, &parts) {
			t.Fatalf("%v, want a *BatchError", err)
		}
		refused := 0
		for _, err := range parts.Errs {
			var full *weir.QueueFullError
			if errors.As(err, &full) && full.Reason == weir.QueueFull {
				refused++
			}
		}
		s, err := g.fake.Stats(t.Context())
		if err != nil || s.XLen != 16 || refused != 384 {
			t.Errorf("%d of 400 stored and %d refused at a limit of 16, %v", s.XLen, refused, err)
		}
	})
}

// Who finds no room again and again is not told that the workers are too slow: nobody works,
// and the backend does not count what is finished.
func TestAPublisherWithoutRoomIsToldSo(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, MaxDepth: 100, WaitSLO: 30 * time.Second})
		for range 300 {
			err := g.Publish(t.Context(), weir.Message{})
			var full *weir.QueueFullError
			if errors.As(err, &full) && full.Reason != weir.QueueFull {
				t.Fatal(err)
			}
			if err != nil {
				time.Sleep(300 * time.Millisecond)
			}
		}
		if n := g.entries(t); n != 80 {
			t.Errorf("%d stored, want 80", n)
		}
	})
}

// What was let through while the load could not be read counts once it can be, also before it
// has arrived.
func TestWhatPassedUnseenCountsAtTheNextReading(t *testing.T) {
	everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
		g := guard(t, weir.ProducerConfig{Guard: mode, MaxDepth: 500, DisableLoadShedding: true, LagWarn: -1, LagPause: -1, BackpressureRetries: -1})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Delay: 2 * time.Second})
		away := g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: backend.ErrUnavailable})
		var all sync.WaitGroup
		publish := func(n int) {
			for range n {
				all.Go(func() { _ = g.Publish(t.Context(), weir.Message{}) })
			}
			time.Sleep(200 * time.Millisecond)
		}
		publish(350)
		away()
		publish(1) // by the last reading, and begins one
		for range 5 {
			publish(100)
		}
		all.Wait()
		if n := g.entries(t); n > 400 || n < 350 {
			t.Errorf("%d stored, 350 of them unseen, at a limit of 400", n)
		}
	})
}

// What passes unseen while a slow reading is under way counts beside what that has seen.
func TestWhatPassesDuringAReadingCountsBesideIt(t *testing.T) {
	everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
		g := guard(t, weir.ProducerConfig{
			Guard: mode, MaxDepth: 500, LagCache: 2 * time.Second, DisableLoadShedding: true, LagWarn: -1, LagPause: -1, BackpressureRetries: -1,
		})
		publish := func(n int) (stored int) {
			for range n {
				if g.Publish(t.Context(), weir.Message{}) == nil {
					stored++
				}
			}
			return stored
		}
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: backend.ErrUnavailable, Times: 1})
		publish(1)
		g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Late: 900 * time.Millisecond})
		time.Sleep(2 * time.Second)
		publish(1) // begins the slow one
		time.Sleep(100 * time.Millisecond)
		if n := publish(300); n != 300 {
			t.Fatalf("%d of 300 passed while the load was unknown", n)
		}
		time.Sleep(850 * time.Millisecond) // it says what there was when it began
		publish(300)
		if n := g.entries(t); n > 400 {
			t.Errorf("%d were stored at a limit of 400", n)
		}
	})
}

// A publish is not refused because of what a reading saw that is older than itself.
func TestAPublishIsNotRefusedByAReadingBeforeIt(t *testing.T) {
	everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
		g := guard(t, weir.ProducerConfig{Guard: mode, MaxDepth: 100, DisableLoadShedding: true, LagWarn: -1, LagPause: -1, BackpressureRetries: -1})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Delay: 200 * time.Millisecond})
		all := several(t, 80, g.Producer)
		time.Sleep(150 * time.Millisecond)
		refusedFor(t, g.Publish(t.Context(), weir.Message{}), weir.QueueFull) // 80 are on their way
		all.Wait()
		got, err := g.fake.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 100, ReclaimAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var leases []backend.Lease
		for _, d := range got.Deliveries {
			leases = append(leases, d.Lease)
		}
		if _, err := g.fake.Ack(t.Context(), leases); err != nil || len(leases) != 80 {
			t.Fatalf("%d were stored: %v", len(leases), err)
		}
		if err := g.Publish(t.Context(), weir.Message{}); err != nil {
			t.Errorf("the queue is empty: %v", err)
		}
	})
}

// A publish that leaves while its message is under way with others has room until that is over:
// no longer, or the queue would seem full for ever, and no shorter.
func TestTheRoomOfAPublishThatLeavesIsGivenBackOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{Gathering: backend.Gathering{Appends: 1}})
		p, err := weir.NewProducer(weir.New(fake), weir.ProducerConfig{
			Guard: weir.GuardStatic, MaxDepth: 20, LagWarn: -1, LagPause: -1, BackpressureRetries: -1, Logger: quiet(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		g := &gathering{p, t, fake}
		for round := range 6 {
			fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Delay: time.Second})
			first := g.start(t.Context(), text("first"))
			ctx, cancel := context.WithCancel(t.Context())
			var gone []<-chan error
			for range 3 {
				gone = append(gone, g.start(ctx, text("gone")))
			}
			stays := g.start(t.Context(), text("stays"))
			time.Sleep(1500 * time.Millisecond) // all are under way
			cancel()
			for _, done := range gone {
				if err := <-done; !errors.Is(err, weir.ErrOutcomeUnknown) {
					t.Fatalf("round %d: got %v, want that the outcome is unknown", round, err)
				}
			}
			if err := errors.Join(<-first, <-stays); err != nil {
				t.Fatal(err)
			}
			got, err := fake.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 100, ReclaimAfter: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var leases []backend.Lease
			for _, d := range got.Deliveries {
				leases = append(leases, d.Lease)
			}
			if _, err := fake.Ack(t.Context(), leases); err != nil || len(leases) != 5 {
				t.Fatalf("%d messages were stored: %v", len(leases), err)
			}
			time.Sleep(time.Minute)
		}
		fake.Inject(backendtest.OpAppend, backendtest.Fault{Delay: time.Second})
		var burst []<-chan error
		for range 40 {
			burst = append(burst, g.start(t.Context(), text("")))
		}
		for _, done := range burst {
			var full *weir.QueueFullError
			if err := <-done; err != nil && !errors.As(err, &full) {
				t.Error(err)
			}
		}
		if n := g.stored()[""]; n != 16 {
			t.Errorf("%d messages are stored, want the 16 that an empty queue has room for", n)
		}
	})
}

// lender shares its room out, and notes what a producer claims to keep of a share that is over.
type lender struct {
	*backendtest.Fake
	mu    sync.Mutex
	until time.Time
	over  int64
}

func (l *lender) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().After(l.until) {
		l.over += req.Kept
	}
	l.until = time.Now().Add(req.Lifetime)
	s, err := l.Signal(ctx, req.Limit)
	return s, backend.Room{Given: 100}, err
}

// What is left of a share that has run out is the others' by then.
func TestAShareThatIsOverIsNotUsed(t *testing.T) {
	everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
		l := &lender{Fake: backendtest.NewFake(backendtest.FakeOptions{})}
		p, err := weir.NewProducer(weir.New(l), weir.ProducerConfig{Guard: mode, LagWarn: -1, LagPause: -1, Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for range 5 {
			for range 10 {
				if err := p.Publish(t.Context(), weir.Message{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Second)
		}
		if l.over != 0 {
			t.Errorf("%d messages of room were kept of shares that were over", l.over)
		}
	})
}

// cutLender's answers come when nobody waits for them any more.
type cutLender struct{ *backendtest.Fake }

func (l *cutLender) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	s, err := l.Signal(ctx, req.Limit)
	<-ctx.Done()
	return s, backend.Room{Err: ctx.Err()}, err
}

// A producer that ends while it asks for room has published all that it should, and logs no trouble with that.
func TestAProducerThatEndsWhileItAsksForRoom(t *testing.T) {
	everyGuard(t, func(t *testing.T, mode weir.GuardMode) {
		var log bytes.Buffer
		l := &cutLender{backendtest.NewFake(backendtest.FakeOptions{})}
		p, err := weir.NewProducer(weir.New(l), weir.ProducerConfig{Guard: mode, LagWarn: -1, LagPause: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Publish(t.Context(), weir.Message{}) }()
		synctest.Wait() // it waits for room
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		<-done // whatever it is
		if text := log.String(); strings.Contains(text, "room") {
			t.Errorf("it logs %s", text)
		}
	})
}

// However a publish ends, the room that it took is free after it, also if it was let pass while the load was not known: else
// what a long outage had let pass would count against the limit for ever.
func TestEveryEndOfAPublishFreesItsRoom(t *testing.T) {
	full := &backend.FullError{Reason: backend.ReasonQueueFull, Err: errors.New("the disk is full")}
	for name, fault := range map[string]backendtest.Fault{
		"stored":                 {},
		"refused by the server":  {Err: full},
		"not sent":               {Err: backend.ErrUnavailable},
		"of an unknown outcome":  {LoseAnswer: true},
		"left while it was sent": {Hang: true},
	} {
		for _, unread := range []error{nil, backend.ErrUnavailable} {
			for _, mode := range []weir.GuardMode{weir.GuardStatic, weir.GuardAdaptive, weir.GuardShadow} {
				bubble.Run(t, func(t *testing.T) {
					g := guard(t, weir.ProducerConfig{Guard: mode, MaxDepth: 100, BackpressureThreshold: 0.5, LagWarn: -1, LagPause: -1, BackpressureRetries: 1})
					readable := func() {}
					if unread != nil {
						readable = g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: unread})
					}
					heal := g.fake.Inject(backendtest.OpAppend, fault)
					for range 40 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						_ = g.Publish(ctx, weir.Message{})
						cancel()
					}
					heal()
					readable()
					g.pretend(0, 0)
					time.Sleep(time.Minute)
					if err := g.Reconfigure(weir.ProducerConfig{Guard: weir.GuardStatic, MaxDepth: 100, BackpressureThreshold: 0.5, LagWarn: -1, LagPause: -1, BackpressureRetries: 1}); err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					if n, err := g.PublishSome(t.Context(), make([]weir.Message, 50)); n != 50 || err != nil || time.Since(began) > 0 {
						t.Errorf("%s, %s, read %v: of 50 messages %d had room after %s, %v", name, mode, unread, n, time.Since(began), err)
					}
				})
			}
		}
	}
}
