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

// overloaded is an adaptive guard that has seen a queue of waiting messages from which
// 100 a second are finished, and as many as offer says offered between two readings.
func overloaded(t *testing.T, c weir.ProducerConfig, waiting int64, offer func(g *guarded)) *guarded {
	t.Helper()
	if c.Guard == "" {
		c.Guard = weir.GuardAdaptive
	}
	if c.WaitSLO == 0 {
		c.WaitSLO = 10 * time.Second
	}
	g := guard(t, c)
	for i := range int64(40) {
		g.load(waiting, 20, i*10)
		offer(g)
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	return g
}

// load sets what the backend says of the stream.
func (g *guarded) load(waiting, working, finished int64) {
	g.fake.Pretend(&backend.Signal{Workers: &working, Pending: working, Lag: &waiting, XLen: waiting + working, Finished: &finished})
}

func (g *guarded) offer(n int, p weir.Priority, key string) (refused int) {
	for range n {
		if err := g.TryPublish(context.Background(), weir.Message{Priority: p, FairKey: key}); err != nil {
			refused++
		}
	}
	return refused
}

// flood offers an adaptive guard with a WaitSLO of 10 s ten times what the workers do, which is
// 100 a second, for a minute, and fails unless they are kept busy and no more than what is
// aimed at waits. each is called with what is read in each tenth of a second.
func (g *guarded) flood(t *testing.T, each func(i int, s *backend.Signal)) {
	t.Helper()
	var waiting, finished, most int64
	for i := range 600 {
		working, lag, done := int64(10), waiting, finished
		s := &backend.Signal{Workers: &working, Pending: working, Lag: &lag, XLen: lag + working, Finished: &done}
		each(i, s)
		g.fake.Pretend(s)
		waiting += 100 - int64(g.offer(100, weir.Normal, ""))
		n := min(waiting, 10)
		waiting -= n
		finished += n
		if i > 150 { // it has learned what is offered and done
			most = max(most, waiting)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	if most > 120 || finished < 5900 { // 62 is the target
		t.Errorf("up to %d messages waited for workers that do 100 a second, %d of 6000 done", most, finished)
	}
}

// A server that does not know for a moment what is finished says nothing of the workers.
func TestAdaptiveWhereTheCountOfWhatIsFinishedIsNotKnownForAMoment(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, WaitSLO: 10 * time.Second})
		g.flood(t, func(i int, s *backend.Signal) {
			*s.Finished += 1_000_000
			if i%100 >= 50 && i%100 < 53 {
				s.Finished = nil
			}
		})
	})
}

func TestAdaptiveRefusesTheLowerTiersAtOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		offer := func(g *guarded) {
			g.offer(4, weir.Critical, "")
			g.offer(4, weir.High, "")
			g.offer(20, weir.Low, "")
		}
		g := overloaded(t, weir.ProducerConfig{}, 62, offer) // 62 is the target: 10 s ÷ 16 × 100 a second
		if n := g.offer(20, weir.Critical, ""); n != 0 {
			t.Errorf("%d of 20 critical messages refused", n)
		}
		if n := g.offer(200, weir.Low, ""); n < 100 || n == 200 {
			t.Errorf("%d of 200 low messages refused, want most of them: 20 a second of 200 fit", n)
		}
		began := time.Now()
		var err error
		for err == nil {
			err = g.Publish(t.Context(), weir.Message{Priority: weir.Low})
		}
		full := refusedFor(t, err, weir.LoadShedding)
		if took := time.Since(began); took != 0 {
			t.Errorf("refused after %s, want at once", took)
		}
		// The queue, a bit more than what 62 take in 620 ms, is not empty before the caller comes again.
		if !strings.Contains(full.Limit, "wait_slo is 10s") || full.RetryAfter < 150*time.Millisecond || full.RetryAfter > time.Second || full.Depth != 82 {
			t.Errorf("%+v", full)
		}
		if err := g.TryPublish(t.Context(), weir.Message{Priority: weir.Background}); err != nil {
			refusedFor(t, err, weir.LoadShedding)
		}
		after := map[time.Duration]bool{}
		for len(after) < 5 {
			if err := g.TryPublish(t.Context(), weir.Message{Priority: weir.Low}); err != nil {
				was := len(after)
				if after[refusedFor(t, err, weir.LoadShedding).RetryAfter] = true; len(after) == was {
					t.Fatalf("several refused at once are told the same: %v", after)
				}
			}
		}
	})
}

func TestAdaptiveRefusesNothingBelowItsTarget(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{}, 20, func(g *guarded) { g.offer(10, weir.Low, "") })
		if n := g.offer(10, weir.Background, "one key"); n != 0 { // 62 are aimed at, and below half of that nothing is refused
			t.Errorf("%d refused with 0.2 s to wait", n)
		}
	})
}

func TestAdaptiveIsFairToKeys(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		refused, offered, rounds := map[string]int{}, map[string]int{}, 0
		overloaded(t, weir.ProducerConfig{}, 62, func(g *guarded) {
			if rounds++; rounds == 25 { // it has learned what is offered and done
				clear(refused)
				clear(offered)
			}
			for i := range 5 {
				key := fmt.Sprint("small ", i)
				refused[key] += g.offer(1, weir.Normal, key)
				offered[key]++
			}
			refused["greedy"] += g.offer(45, weir.Normal, "greedy")
			offered["greedy"] += 45
		})
		for key, n := range refused {
			if key == "greedy" && n < offered[key]/2 || key != "greedy" && n > offered[key]/4 {
				t.Errorf("%s: %d of %d refused", key, n, offered[key])
			}
		}
	})
}

// What cannot be done before its deadline is refused, whatever its priority.
func TestAdaptiveRefusesWhatWouldComeTooLate(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{}, 62, func(g *guarded) {
			g.offer(4, weir.Critical, "")
			g.offer(20, weir.Low, "")
		})
		for _, c := range []struct {
			worth time.Duration
			pass  bool
		}{{500 * time.Millisecond, false}, {2 * time.Second, true}} { // it waits 0.6 s, and a worker has it for 0.2 s
			m := weir.Message{Priority: weir.Critical, Deadline: time.Now().Add(c.worth)}
			if err := g.TryPublish(t.Context(), m); (err == nil) != c.pass {
				t.Errorf("worth anything for %s: %v", c.worth, err)
			} else if !c.pass {
				refusedFor(t, err, weir.LoadShedding)
			}
		}
	})
}

// A window that is set counts what the cut lets through, and its end is for the higher
// priorities.
func TestAdaptiveKeepsTheEndOfTheWindowForHigherPriorities(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, LoadSheddingMaxRequests: 100})
		for _, c := range []struct {
			priority weir.Priority
			pass     int
		}{{weir.Background, 80}, {weir.Normal, 12}, {weir.Critical, 8}} {
			if n := 100 - g.offer(100, c.priority, ""); n != c.pass {
				t.Errorf("%d of priority %s passed, want %d", n, c.priority, c.pass)
			}
		}
		time.Sleep(time.Second)
		if n := g.offer(80, weir.Background, ""); n != 0 {
			t.Errorf("%d refused in the next window", n)
		}
	})
}

// A batch is judged message by message.
func TestAdaptiveJudgesTheMessagesOfABatch(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{}, 62, func(g *guarded) {
			g.offer(5, weir.Critical, "")
			g.offer(100, weir.Bulk, "")
		})
		before := g.stored
		msgs := make([]weir.Message, 20)
		for i := range msgs {
			if msgs[i].Priority = weir.Bulk; i%2 == 0 {
				msgs[i].Priority = weir.Critical
			}
		}
		var some *weir.BatchError
		if err := g.PublishBatch(t.Context(), msgs); !errors.As(err, &some) {
			t.Fatalf("%v, want a BatchError", err)
		}
		failed := 0
		for i, err := range some.Errs {
			if err != nil {
				refusedFor(t, err, weir.LoadShedding)
				failed++
			}
			if i%2 == 0 && err != nil {
				t.Errorf("critical message %d: %v", i, err)
			}
		}
		if failed < 7 || g.stored-before != len(msgs)-failed {
			t.Errorf("%d failed, %d stored", failed, g.stored-before)
		}
	})
}

// While little is refused, a publish that has the time waits before it is refused.
func TestAdaptiveSlowsBeforeItRefuses(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{}, 65, func(g *guarded) { g.offer(11, weir.Normal, "") })
		for range 40 {
			_ = g.Publish(t.Context(), weir.Message{})
		}
		if len(g.slowed[weir.SoftSleep]) == 0 {
			t.Error("no publish slept")
		}
		refused := 0
		for i := range int64(40) {
			g.load(65, 20, 400+i*10)
			for j := range 11 {
				patience := 100 * time.Millisecond
				if j%2 == 0 {
					patience = 500 * time.Millisecond // enough to sleep, and not for the wait behind that
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				took, err := g.timed(ctx)
				cancel()
				if took > 0 {
					t.Fatalf("%v after %s: a caller without the time waits", err, took)
				}
				if err != nil {
					refused++
				}
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if refused == 0 {
			t.Error("none of 440 was refused: none had to wait")
		}
	})
}

// Producers of a stream share its queue, and so how long may be waited in it: the shortest
// that one of them wants, whoever came last, and while it is there.
func TestTheShortestWaitOfAllProducersIsHeld(t *testing.T) {
	for _, first := range []bool{true, false} {
		bubble.Run(t, func(t *testing.T) {
			f := backendtest.NewFake(backendtest.FakeOptions{})
			s := weir.New(f)
			on := func(c weir.ProducerConfig) *weir.Producer {
				c.Logger = quiet()
				p, err := weir.NewProducer(s, c)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = p.Close() })
				return p
			}
			short, long := weir.ProducerConfig{WaitSLO: time.Second}, weir.ProducerConfig{WaitSLO: time.Hour}
			watching := weir.ProducerConfig{Guard: weir.GuardShadow, ShadowOf: weir.GuardAdaptive, WaitSLO: time.Millisecond}
			var hasty, patient *weir.Producer
			if first {
				hasty, _, patient = on(short), on(watching), on(long)
			} else {
				patient, hasty, _ = on(long), on(short), on(watching)
			}
			g, done := &guarded{fake: f}, int64(0)
			// refused counts for a second, while the workers do 100 of 200 that wait.
			refused := func(p *weir.Producer) (n int) {
				for range 10 {
					done += 10
					g.load(200, 20, done)
					for range 20 {
						if err := p.TryPublish(t.Context(), weir.Message{}); err != nil {
							refusedFor(t, err, weir.LoadShedding)
							n++
						}
					}
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
				}
				return n
			}
			refused(hasty) // it learns what the workers do
			refused(hasty)
			if n := refused(hasty); n != 200 {
				t.Errorf("%d of 200 refused by a producer with a WaitSLO of 1s, though 2s are to be waited", n)
			}
			if n := refused(patient); n != 200 {
				t.Errorf("%d of 200 refused by one with an hour: they would wait in front of the other's", n)
			}
			if err := hasty.Reconfigure(weir.ProducerConfig{WaitSLO: 2 * time.Hour}); err != nil {
				t.Fatal(err)
			}
			if n := refused(patient); n > 0 {
				t.Errorf("%d refused though nobody wants a short wait any more", n)
			}
			if err := hasty.Reconfigure(short); err != nil {
				t.Fatal(err)
			}
			if err := hasty.Close(); err != nil {
				t.Fatal(err)
			}
			if n := refused(patient); n > 0 {
				t.Errorf("%d refused though who wants a short wait is closed", n)
			}
			_ = hasty.Reconfigure(short)
			if n := refused(patient); n > 0 {
				t.Errorf("%d refused because of a producer that is closed", n)
			}
		})
	}
}

// What a Stream knows of a queue that others have filled meanwhile is too old to go by.
func TestAdaptiveIsNotJudgedByWhatWasLongAgo(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{}, 62, func(g *guarded) { g.offer(60, weir.Low, "") })
		time.Sleep(8 * time.Second)
		g.load(5000, 20, 1200) // 50 s of work
		if n := g.offer(20, weir.Low, ""); n != 20 {
			t.Errorf("%d of 20 refused", n)
		}
	})
}

// A batch is one request, in however many parts it is stored.
func TestAdaptiveCountsABatchOnceInTheWindow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, LoadSheddingMaxRequests: 2, MaxDepth: 10})
		g.load(0, 0, 0)
		for i := range 3 {
			err := g.PublishBatch(t.Context(), make([]weir.Message, 20))
			if full := (*weir.QueueFullError)(nil); i < 2 && err != nil || i == 2 && !errors.As(err, &full) {
				t.Errorf("batch %d of a window of 2: %v", i+1, err)
			}
		}
	})
}

// What is not known does what the policy says, and shadow refuses nothing.
func TestAdaptiveWithoutAReading(t *testing.T) {
	flood := func(g *guarded) { g.offer(60, weir.Low, "") }
	for policy, c := range map[weir.UnknownPolicy]struct{ least, most int }{
		weir.UnknownOpen:  {0, 0},
		weir.UnknownDecay: {6, 45}, // half of what was refused, a ttl later, less what a short queue takes anyway
	} {
		t.Run(string(policy), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := overloaded(t, weir.ProducerConfig{LagUnknown: policy}, 62, flood)
				g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: backend.ErrUnavailable})
				time.Sleep(10 * time.Second) // lag_ttl
				g.offer(1, weir.Low, "")
				synctest.Wait()
				if n := g.offer(60, weir.Low, ""); n < c.least || n > c.most {
					t.Errorf("%d of 60 refused", n)
				}
				time.Sleep(30 * time.Second)
				g.offer(1, weir.Low, "")
				synctest.Wait()
				if n := g.offer(60, weir.Low, ""); n > c.most/4 {
					t.Errorf("%d of 60 refused three ttls later", n)
				}
			})
		})
	}
	t.Run("for less than its ttl", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := overloaded(t, weir.ProducerConfig{}, 62, flood)
			g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: backend.ErrUnavailable})
			refused := 0
			for range 90 { // 9 s, while the workers may do 900
				refused += g.offer(60, weir.Low, "")
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			if passed := 5400 - refused; passed > 1200 {
				t.Errorf("%d of 5400 passed", passed)
			}
		})
	})
	t.Run("hold", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, LagUnknown: weir.UnknownHold})
			away := g.fake.Inject(backendtest.OpSignal, backendtest.Fault{Err: backend.ErrUnavailable})
			time.AfterFunc(2350*time.Millisecond, away)
			if took, err := g.timed(t.Context()); err != nil || took != 2400*time.Millisecond {
				t.Errorf("%v after %s, want it held until the load is known", err, took)
			}
			wantList(t, "changes", g.known, []bool{false, true})
		})
	})
	t.Run("shadow", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			refused := 0
			g := overloaded(t, weir.ProducerConfig{Guard: weir.GuardShadow, ShadowOf: weir.GuardAdaptive}, 62, func(g *guarded) { refused += g.offer(60, weir.Low, "") })
			if refused > 0 || len(g.shadowed) < 500 {
				t.Errorf("%d refused, %d would have been", refused, len(g.shadowed))
			}
		})
	})
	t.Run("nobody works", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive})
			for range 100 {
				g.load(5000, 0, 7)
				if n := g.offer(10, weir.Normal, ""); n > 0 {
					t.Fatalf("%d refused", n)
				}
				time.Sleep(time.Second)
			}
		})
	})
}

// placed is a fake that says where it is.
type placed struct {
	*backendtest.Fake
	place string
}

func (p placed) Place() string { return p.place }

// A second Stream on a loaded queue knows the cut before it has a reading of its own.
func TestTheFirstReadingOfASecondStreamMayBeSlow(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		on := func(f *backendtest.Fake) *weir.Producer {
			p, err := weir.NewProducer(weir.New(placed{f, "here"}), weir.ProducerConfig{WaitSLO: time.Second, Logger: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			return p
		}
		first := on(f)
		working, waiting := int64(20), int64(2)
		for finished := range int64(40) {
			finished *= 10
			f.Pretend(&backend.Signal{Workers: &working, Pending: working, Lag: &waiting, XLen: working + waiting, Finished: &finished})
			for range 5 {
				_ = first.TryPublish(t.Context(), weir.Message{})
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		slow := f.Again()
		slow.Inject(backendtest.OpSignal, backendtest.Fault{Delay: 500 * time.Millisecond})
		if err := on(slow).Publish(t.Context(), weir.Message{Priority: weir.Critical}); err != nil {
			t.Error(err)
		}
	})
}

// What PublishSome leaves to the next call is not in its error.
func TestAdaptiveRefusesSomeAndLeavesTheRest(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{MaxDepth: 200}, 62, func(g *guarded) {
			g.offer(5, weir.Critical, "")
			g.offer(100, weir.Bulk, "")
		})
		msgs := make([]weir.Message, 400)
		for i := range msgs {
			msgs[i].Priority = weir.Bulk
		}
		n, err := g.PublishSome(t.Context(), msgs)
		var some *weir.BatchError
		if !errors.As(err, &some) || len(some.Errs) != n || n != 160 {
			t.Errorf("%d tried, %d of them in the error: %v", n, len(some.Errs), err)
		}
	})
}

// Messages that are not due wait for their time, not for a worker: those for later, and those
// that are to be tried again.
func TestAdaptiveTakesWhatIsNotDueForNoWait(t *testing.T) {
	working, retrying := int64(2), int64(5000)
	for name, s := range map[string]backend.Signal{
		"delayed":  {Lag: new(int64), Delayed: 5000},
		"retrying": {Lag: &retrying, Retrying: retrying},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, WaitSLO: 10 * time.Second})
				refused := 0
				for i := range int64(100) {
					finished := 2 * i
					s.Workers, s.Pending, s.XLen, s.Finished = &working, working, 5000+working, &finished
					g.fake.Pretend(&s)
					refused += g.offer(2, weir.Normal, "")
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
				}
				if refused > 0 {
					t.Errorf("%d of 200 messages refused: the workers do each at once, and 5000 others are not due", refused)
				}
			})
		})
	}
}

// What is due when all that waits now is done is not refused because of it.
func TestAdaptiveTakesWhatIsForLater(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := overloaded(t, weir.ProducerConfig{}, 400, func(g *guarded) { g.offer(40, weir.Normal, "") })
		refused := func(m weir.Message) (n int) {
			for range 100 {
				if g.TryPublish(t.Context(), m) != nil {
					n++
				}
			}
			return n
		}
		for name, m := range map[string]weir.Message{
			"in an hour":                {Delay: time.Hour},
			"at a time":                 {NotBefore: time.Now().Add(time.Hour)},
			"in an hour, with deadline": {Delay: time.Hour, Deadline: time.Now().Add(2 * time.Hour)},
		} {
			if n := refused(m); n > 0 {
				t.Errorf("%s: %d of 100 are refused", name, n)
			}
		}
		for name, m := range map[string]weir.Message{"now": {}, "in a second, with a wait_slo of ten": {Delay: time.Second}} {
			if n := refused(m); n < 50 {
				t.Errorf("%s: %d of 100 are refused, want most", name, n)
			}
		}
	})
}

// Workers that were killed leave what they held with nobody, and on Redis pending for ever. Once
// they have given no sign of life for as long as that counts, there is no load to hold a wait for.
func TestAdaptiveWithoutWorkersThatHadMessages(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		offer := func(g *guarded) { g.offer(10, weir.Normal, "") }
		g := overloaded(t, weir.ProducerConfig{LagTTL: 10 * time.Second}, 20, offer)
		var finished, working int64 = 400, 20
		refused := 0
		for i := range 300 {
			waiting := int64(20 + 10*i - refused)
			s := &backend.Signal{Pending: working, Lag: &waiting, XLen: waiting + working, Finished: &finished}
			if i < 100 {
				s.Workers = &working
			}
			g.fake.Pretend(s)
			n := g.offer(10, weir.Normal, "")
			if refused += n; i > 110 && n > 0 {
				t.Fatalf("%d of 10 refused %d tenths of a second after the workers were killed", n, i)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if refused == 0 {
			t.Error("nothing was refused while the workers' signal was believed")
		}
	})
}

// What failed and is tried again in minutes is pending on Redis, and in nobody's hands: it says
// nothing of how soon a message would be done.
func TestAdaptiveJudgesDeadlinesByWhatWorkersHaveInHand(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{Guard: weir.GuardAdaptive, WaitSLO: 10 * time.Second})
		passed := 0
		for i := range 100 {
			waiting, pending, finished := int64(62), int64(420), int64(10*i)
			g.fake.Pretend(&backend.Signal{Workers: &pending, Pending: pending, GivenBack: 400, Lag: &waiting, XLen: waiting + pending, Finished: &finished})
			for range 20 { // twice of what is done; a message is in hand for 0.2 s
				err := g.TryPublish(t.Context(), weir.Message{Deadline: time.Now().Add(2 * time.Second)})
				if err == nil && i >= 50 {
					passed++
				}
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		if passed < 400 || passed > 600 {
			t.Errorf("%d of 1000 passed, want the 500 that the workers do", passed)
		}
	})
}
