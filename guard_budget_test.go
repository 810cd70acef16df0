package weir_test

import (
	"context"
	"errors"
	"log/slog"
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

// ofBudget makes a producer of a budget of 100 messages, whose name is the test's, that does
// not look twice for room.
func ofBudget(t *testing.T, b backend.Backend) *weir.Producer {
	t.Helper()
	p, err := weir.NewProducer(weir.New(b), weir.ProducerConfig{
		Guard: weir.GuardStatic, LagWarn: -1, LagPause: -1, BackpressureRetries: -1, DisableLoadShedding: true,
		Budget: t.Name(), BudgetMaxDepth: 100, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func wantFull(t *testing.T, err error) {
	t.Helper()
	var full *weir.QueueFullError
	if !errors.As(err, &full) || full.Reason != weir.QueueFull {
		t.Errorf("got %v, want a refusal with queue_full", err)
	}
}

// What becomes free in a full budget is kept for the stream that has less than its part. The
// other is refused, and does not read the load over and over until it is over.
func TestAStreamAboveItsPartIsRefusedWhatIsKeptForAnother(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		full, poor := backendtest.NewFake(backendtest.FakeOptions{Stream: "full"}), backendtest.NewFake(backendtest.FakeOptions{Stream: "poor"})
		full.Inject(backendtest.OpSignal, backendtest.Fault{Delay: time.Millisecond})
		greedy, late := ofBudget(t, full), ofBudget(t, poor)
		for range 120 {
			_ = greedy.Publish(t.Context(), weir.Message{})
		}
		wantFull(t, late.Publish(t.Context(), weir.Message{}))
		got, err := full.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 5, ReclaimAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got.Deliveries {
			if _, err := full.Ack(t.Context(), []backend.Lease{d.Lease}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(150 * time.Millisecond)
		before := full.Calls(backendtest.OpSignal)
		wantFull(t, greedy.Publish(t.Context(), weir.Message{}))
		if n := full.Calls(backendtest.OpSignal) - before; n > 3 {
			t.Errorf("the load was read %d times", n)
		}
		if err := late.Publish(t.Context(), weir.Message{}); err != nil {
			t.Errorf("for whom it is kept: %v", err)
		}
	})
}

// Who is not held to a budget takes none of its room but for what it stores.
func TestAProducerWithoutLimitsKeepsNoRoomOfABudget(t *testing.T) {
	for _, mode := range []weir.GuardMode{weir.GuardOff, weir.GuardShadow} {
		t.Run(string(mode), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				free, err := weir.NewProducer(weir.New(backendtest.NewFake(backendtest.FakeOptions{Stream: "free"})), weir.ProducerConfig{
					Guard: mode, Budget: t.Name(), BudgetMaxDepth: 100, Logger: quiet(),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer free.Close()
				bound, stored := ofBudget(t, backendtest.NewFake(backendtest.FakeOptions{})), 0
				for range 10 {
					if err := free.Publish(t.Context(), weir.Message{}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(200 * time.Millisecond)
				}
				for range 120 {
					if bound.Publish(t.Context(), weir.Message{}) == nil {
						stored++
					}
				}
				if stored < 90 {
					t.Errorf("%d messages beside 10 in a budget of 100", stored)
				}
			})
		})
	}
}

func TestWhatIsNotDueTakesRoomOfABudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		p := ofBudget(t, f)
		stored := 0
		for range 300 {
			if p.Publish(t.Context(), weir.Message{Delay: time.Hour}) == nil {
				stored++
			}
			time.Sleep(50 * time.Millisecond)
		}
		if stored != 100 {
			t.Errorf("%d messages in a budget of 100", stored)
		}
	})
}

// Queues of one name on two servers are two streams.
func TestAnEqualNameElsewhereIsAnotherStreamOfABudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var producers []*weir.Producer
		for _, place := range []string{"one", "two"} {
			producers = append(producers, ofBudget(t, placed{backendtest.NewFake(backendtest.FakeOptions{}), place}))
		}
		stored := 0
		for range 200 {
			for _, p := range producers {
				if p.Publish(t.Context(), weir.Message{}) == nil {
					stored++
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
		if stored != 100 {
			t.Errorf("%d messages in a budget of 100", stored)
		}
	})
}

// A pause is not taken for workers that are too slow, with a budget as without.
func TestAPausedStreamOfABudgetRefusesNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{Budget: t.Name()}, 62, func(g *guarded) { g.offer(30, weir.Low, "") })
		refused, held, finished := 0, int64(20), int64(400)
		for i := range int64(100) {
			waiting := 500 + 10*i
			g.fake.Pretend(&backend.Signal{Workers: &held, Pending: held, Lag: &waiting, XLen: waiting + held, Finished: &finished, Paused: true})
			if n := g.offer(10, weir.Low, ""); i >= 5 { // the first offers find the cut of before
				refused += n
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if refused > 0 {
			t.Errorf("%d refused while it was paused", refused)
		}
	})
}

// What waits in a stream of a budget that is paused, or has no workers, is not taken for work
// that the others' workers are too slow for, and they are not left without a guard because of it.
func TestAStreamOfABudgetOnWhichNobodyWorksStandsInNobodysWay(t *testing.T) {
	for name, c := range map[string]struct {
		offered, done int64
		paused        bool
	}{
		"paused": {8, 2400, true}, "paused, beside an overloaded one": {100, 2900, true},
		"deserted": {8, 2400, false}, "deserted, beside an overloaded one": {100, 2900, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				works, stops := streamOfBudget(t, "works"), streamOfBudget(t, "stops")
				var waiting, finished, held, refused int64
				for range 300 {
					lag := held
					stops.fake.Pretend(&backend.Signal{Workers: new(int64), Lag: &lag, XLen: lag, Finished: new(int64), Paused: c.paused})
					works.load(waiting, 10, finished)
					n := int64(stops.offer(5, weir.Normal, ""))
					refused += n
					held += 5 - n
					waiting += c.offered - int64(works.offer(int(c.offered), weir.Normal, ""))
					done := min(waiting, 10) // 100 a second
					waiting -= done
					finished += done
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
				}
				if refused > 15 || finished < c.done { // three tenths of a second until that is seen
					t.Errorf("%d of the messages on which nobody works refused; of the other's %d are done, want %d", refused, finished, c.done)
				}
				if waiting > 200 { // 62 is the target
					t.Errorf("%d messages wait for workers that do 100 a second", waiting)
				}
			})
		})
	}
}

// What a stream had finished before it joined its budget is not taken for work that the workers
// get done now, whenever it comes back.
func TestAStreamWithAPastJoinsItsBudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		works, old := streamOfBudget(t, "works"), streamOfBudget(t, "old")
		past := int64(1_000_000)
		old.fake.Pretend(&backend.Signal{Workers: new(int64), Lag: new(int64), Finished: &past})
		works.flood(t, func(i int, _ *backend.Signal) {
			if i%150 == 100 { // it is forgotten after 10 s
				old.offer(1, weir.Normal, "")
				synctest.Wait()
			}
		})
	})
}

// Each stream of a budget has its fair part of what the workers can do, however much another is
// offered.
func TestAdaptiveIsFairToTheStreamsOfABudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		greedy, small := streamOfBudget(t, "greedy"), streamOfBudget(t, "small")
		var passed, refused int64
		greedy.flood(t, func(i int, _ *backend.Signal) {
			done := passed
			small.fake.Pretend(&backend.Signal{Workers: new(int64), Lag: new(int64), Finished: &done})
			n := int64(small.offer(4, weir.Normal, ""))
			passed += 4 - n
			if i > 150 { // it has learned what is offered and done
				refused += n
			}
		})
		if refused > 450 {
			t.Errorf("%d of 1800 messages of the small stream refused", refused)
		}
	})
}

// Where a server does not count what is finished, it follows from what the process has sent: to
// all streams of the budget, since the load is read of all.
func TestABudgetOfStreamsThatDoNotCountWhatIsFinished(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		works, other := streamOfBudget(t, "works"), streamOfBudget(t, "other")
		works.flood(t, func(_ int, s *backend.Signal) {
			s.Finished = nil
			other.fake.Pretend(&backend.Signal{Workers: new(int64), Lag: new(int64)})
			other.offer(1, weir.Normal, "")
		})
	})
}

// keeper keeps the budgets of a stream that is alone in them, and has much behind it.
type keeper struct {
	*backendtest.Fake
	away  *atomic.Bool
	tally error // of counting what is offered
	draw  error
}

func (k keeper) Spent(context.Context, string, string) (int64, error) {
	if k.away.Load() {
		return 0, backend.ErrUnavailable
	}
	return 0, nil
}

func (k keeper) Draw(_ context.Context, req backend.DrawRequest) (backend.Signal, backend.Room, error) {
	sum := req.Signal
	sum.Finished = new(*sum.Finished + 1_000_000)
	return sum, backend.Room{Given: max(req.Need, req.Want)}, k.draw
}

func (k keeper) TallyBudget(context.Context, string, []uint32) ([]uint32, error) { return nil, k.tally }

// What one count of the finished messages says is not compared with what another does.
func TestABudgetThatCannotBeKeptForAMoment(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var away atomic.Bool
		f := backendtest.NewFake(backendtest.FakeOptions{})
		g := producerOfBudget(t, f, keeper{Fake: f, away: &away})
		g.flood(t, func(i int, _ *backend.Signal) { away.Store(i%100 >= 50 && i%100 < 53) })
	})
}

// While a budget cannot be shared each process keeps it on its own, over all of its streams. A producer stays with its budget.
func TestABudgetThatCannotBeSharedIsKeptByTheProcess(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var away atomic.Bool
		away.Store(true)
		stored := 0
		for _, name := range []string{"a", "b"} {
			f := backendtest.NewFake(backendtest.FakeOptions{Stream: name})
			p := ofBudget(t, keeper{Fake: f, away: &away})
			for range 80 {
				if p.Publish(t.Context(), weir.Message{}) == nil {
					stored++
				}
			}
			if err := p.Reconfigure(weir.ProducerConfig{Budget: "another", BudgetMaxDepth: 100}); err == nil || !strings.Contains(err.Error(), "make another producer") {
				t.Errorf("another budget: %v", err)
			}
		}
		if stored > 100 || stored < 80 {
			t.Errorf("%d messages are stored under a budget of 100", stored)
		}
	})
}

// That the processes cannot count what they are offered together, or not keep the budget, is
// logged once.
func TestABudgetThatCannotBeSharedIsLoggedOnce(t *testing.T) {
	for what, k := range map[string]keeper{
		"holds the wait on its own":   {away: new(atomic.Bool), tally: backend.ErrForbidden},
		"keeps the budget on its own": {away: new(atomic.Bool)},
		"keeps the limits on its own": {away: new(atomic.Bool), draw: backend.ErrForbidden},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				k.Fake = backendtest.NewFake(backendtest.FakeOptions{})
				k.away.Store(k.tally == nil && k.draw == nil)
				g := producerOfBudget(t, k.Fake, k)
				for range 20 {
					g.load(0, 0, 1)
					g.offer(1, weir.Normal, "")
					time.Sleep(time.Second)
				}
				var lines []string
				for _, l := range g.log.of("") {
					lines = append(lines, l.text)
				}
				if len(lines) != 1 || !strings.Contains(lines[0], what) {
					t.Errorf("the log says %q", lines)
				}
			})
		})
	}
}

// What a stream's own appends under way may come to counts in its budget while it is read.
func TestWhatIsUnderWayTakesRoomOfABudget(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		slow, other := backendtest.NewFake(backendtest.FakeOptions{Stream: "slow"}), backendtest.NewFake(backendtest.FakeOptions{Stream: "other"})
		slow.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: 5 * time.Second})
		one, two := ofBudget(t, slow), ofBudget(t, other)
		var first sync.WaitGroup
		first.Go(func() {
			if err := one.PublishBatch(t.Context(), make([]weir.Message, 60)); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		if err := one.Publish(t.Context(), weir.Message{}); err != nil { // it reads the stream
			t.Error(err)
		}
		stored := 0
		for range 60 {
			if two.Publish(t.Context(), weir.Message{}) == nil {
				stored++
			}
		}
		if first.Wait(); stored > 39 {
			t.Errorf("%d were stored beside 61 of 100", stored)
		}
	})
}

// streamOfBudget is a stream, and an adaptive producer with the budget of the test's name.
func streamOfBudget(t *testing.T, name string) *guarded {
	t.Helper()
	f := backendtest.NewFake(backendtest.FakeOptions{Stream: name})
	return producerOfBudget(t, f, f)
}

func producerOfBudget(t *testing.T, f *backendtest.Fake, b backend.Backend) *guarded {
	t.Helper()
	g := &guarded{fake: f, log: &stageLines{}}
	s := weir.New(b)
	p, err := weir.NewProducer(s, weir.ProducerConfig{WaitSLO: 10 * time.Second, Budget: t.Name(), BudgetMaxDepth: 100_000, Logger: slog.New(g.log)})
	if err != nil {
		t.Fatal(err)
	}
	g.Producer = p
	t.Cleanup(func() { _ = errors.Join(p.Close(), s.Close()) })
	return g
}

// The guard goes by the sum of the budget's streams; what metrics show of a stream is its own.
func TestTheReadingsOfAStreamWithABudgetAreItsOwn(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var mu sync.Mutex
		last := map[string]weir.Measurement{}
		producer := func(stream string) *weir.Producer {
			p, err := weir.NewProducer(weir.New(backendtest.NewFake(backendtest.FakeOptions{Stream: stream})), weir.ProducerConfig{
				Guard: weir.GuardStatic, LagWarn: -1, LagPause: -1, DisableLoadShedding: true, Budget: t.Name(), Logger: quiet(),
				Hooks: weir.Hooks{Measured: func(s weir.StreamName, m weir.Measurement) {
					mu.Lock()
					defer mu.Unlock()
					last[s.Stream] = m
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			return p
		}
		many, few := producer("many"), producer("few")
		for range 3 {
			for range 20 {
				if err := many.Publish(t.Context(), weir.Message{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := few.Publish(t.Context(), weir.Message{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(150 * time.Millisecond) // the next ones read again
		}
		mu.Lock()
		defer mu.Unlock()
		for stream, want := range map[string]int64{"many": 40, "few": 2} {
			if m := last[stream]; m.Depth != want || m.Lag == nil || *m.Lag != want {
				t.Errorf("%s: depth %d; want %d, what was in it when it was read last", stream, m.Depth, want)
			}
		}
	})
}
