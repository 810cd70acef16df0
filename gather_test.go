package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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

// gathering is a producer over a fake that asks for gathering.
type gathering struct {
	*weir.Producer
	t    *testing.T
	fake *backendtest.Fake
}

func gather(t *testing.T, how backend.Gathering) *gathering {
	return gatherOn(t, backendtest.NewFake(backendtest.FakeOptions{Gathering: how}), func(f *backendtest.Fake) backend.Backend { return f })
}

// gatherOn makes a producer on what wrap makes of the fake.
func gatherOn(t *testing.T, fake *backendtest.Fake, wrap func(*backendtest.Fake) backend.Backend) *gathering {
	t.Helper()
	p, err := weir.NewProducer(weir.New(wrap(fake)), weir.ProducerConfig{Guard: weir.GuardOff, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return &gathering{p, t, fake}
}

// start publishes on a goroutine of its own, which has got as far as it can when start returns.
func (g *gathering) start(ctx context.Context, m weir.Message) <-chan error {
	done := make(chan error, 1)
	go func() { done <- g.Publish(ctx, m) }()
	synctest.Wait()
	return done
}

func text(s string) weir.Message { return weir.Message{Data: []byte(s)} }

// stored counts what is in the stream.
func (g *gathering) stored() map[string]int {
	g.t.Helper()
	all, err := g.fake.Read(context.Background(), backend.ReadRequest{Max: 100_000})
	if err != nil {
		g.t.Fatal(err)
	}
	n := map[string]int{}
	for _, r := range all.Records {
		n[string(r.Data)]++
	}
	return n
}

// ids returns under which ID each message is stored.
func (g *gathering) ids() map[string]string {
	g.t.Helper()
	all, err := g.fake.Read(context.Background(), backend.ReadRequest{Max: 100_000})
	if err != nil {
		g.t.Fatal(err)
	}
	ids := map[string]string{}
	for _, r := range all.Records {
		ids[string(r.Data)] = r.ID
	}
	return ids
}

// busy takes all slots for d.
func (g *gathering) busy(d time.Duration) (outcomes []<-chan error) {
	how := g.fake.Gathering()
	g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: how.Appends, Delay: d})
	for i := range how.Appends {
		outcomes = append(outcomes, g.start(g.t.Context(), text(fmt.Sprint("busy", i))))
	}
	return outcomes
}

var twoSlots = backend.Gathering{Appends: 2, Keyed: true}

func TestPublishesThatComeWhileOthersAreUnderWayShareOneAppend(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		outcomes := g.busy(time.Second)
		for i := range 50 {
			outcomes = append(outcomes, g.start(t.Context(), text(fmt.Sprint(i))))
		}
		for i, done := range outcomes {
			if err := <-done; err != nil {
				t.Errorf("publish %d: %v", i, err)
			}
		}
		if n := g.fake.Calls(backendtest.OpAppend); n != 3 {
			t.Errorf("52 publishes took %d appends, want 3", n)
		}
		for what, n := range g.stored() {
			if n != 1 {
				t.Errorf("message %s is stored %d times", what, n)
			}
		}
		if n := len(g.stored()); n != 52 {
			t.Errorf("%d of 52 messages are stored", n)
		}
	})
}

// Publishes that come one after the other find nothing to wait for.
func TestPublishesOneAfterTheOtherDoNotWait(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		began := time.Now()
		for i := range 10 {
			done := g.start(t.Context(), text(fmt.Sprint(i)))
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("publish %d waits", i)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("they took %s", took)
		}
	})
}

func TestNothingIsGatheredWhenItIsDisabled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		if err := g.Reconfigure(weir.ProducerConfig{Guard: weir.GuardOff, DisableGathering: true}); err != nil {
			t.Fatal(err)
		}
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Delay: time.Second})
		for i := range 10 {
			g.start(t.Context(), text(fmt.Sprint(i)))
		}
		if n := g.fake.Active(backendtest.OpAppend); n != 10 {
			t.Errorf("%d appends are under way, want 10", n)
		}
		time.Sleep(2 * time.Second)
	})
}

func TestAPublishWhoseContextEndsBeforeItIsSentStoresNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.busy(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		gone, stays := g.start(ctx, text("gone")), g.start(t.Context(), text("stays"))
		cancel()
		synctest.Wait()
		select {
		case err := <-gone:
			if !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrOutcomeUnknown) {
				t.Errorf("got %v, want the context's error and no doubt", err)
			}
		default:
			t.Error("the publish goes on waiting")
		}
		if err := <-stays; err != nil {
			t.Error(err)
		}
		if n := g.stored(); n["gone"] != 0 || n["stays"] != 1 {
			t.Errorf("stored: %v", n)
		}
	})
}

func TestATryPublishBehindSlowAppendsReturnsInTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.busy(time.Second)
		began := time.Now()
		err := g.TryPublish(t.Context(), text("late"))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		if !errors.Is(err, weir.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
		time.Sleep(2 * time.Second)
		if n := g.stored()["late"]; n != 0 {
			t.Error("it is stored nevertheless")
		}
	})
}

// What has been sent may be stored: the error must not also say that nothing was done.
func TestATryPublishThatIsUnderWayIsUnknownAndNothingElse(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, backend.Gathering{Appends: 1})
		g.busy(10 * time.Millisecond)
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Skip: 0, Times: 1, Late: time.Second})
		other := g.start(t.Context(), text("other"))
		err := g.TryPublish(t.Context(), text("try"))
		if !errors.Is(err, weir.ErrOutcomeUnknown) || errors.Is(err, weir.ErrUnavailable) || strings.Contains(err.Error(), "nothing is stored") {
			t.Errorf("got %v, want ErrOutcomeUnknown alone", err)
		}
		if err := <-other; err != nil || g.stored()["try"] != 1 {
			t.Errorf("%v, stored %v", err, g.stored())
		}
	})
}

func TestAPublishWhoseContextEndsWhileItIsUnderWayLeavesTheOthersAlone(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: 500 * time.Millisecond})
		g.busy(time.Second)
		why := errors.New("the caller is gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		data := []byte("gone")
		gone, stays := g.start(ctx, weir.Message{Data: data, Headers: map[string]string{"a": "b"}}), g.start(t.Context(), text("stays"))
		time.Sleep(1200 * time.Millisecond) // both are under way
		cancel(why)
		began := time.Now()
		if err := <-gone; !errors.Is(err, weir.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
			t.Errorf("got %v, want that the outcome is unknown, the context's error and its cause", err)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it returned %s after its context had ended", took)
		}
		copy(data, "XXXX") // the caller's again
		if err := <-stays; err != nil {
			t.Error(err)
		}
		if n := g.stored(); n["gone"] != 1 || n["stays"] != 1 {
			t.Errorf("stored: %v", n)
		}
	})
}

func TestAnAppendThatNobodyWaitsForIsCancelled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.busy(time.Second)
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		a, b := g.start(ctx, text("a")), g.start(ctx, text("b"))
		time.Sleep(2 * time.Second)
		if n := g.fake.Active(backendtest.OpAppend); n != 1 {
			t.Fatalf("%d appends are under way, want the one of both", n)
		}
		cancel()
		for _, done := range []<-chan error{a, b} {
			if err := <-done; !errors.Is(err, weir.ErrOutcomeUnknown) {
				t.Errorf("got %v, want that the outcome is unknown", err)
			}
		}
		synctest.Wait()
		if n := g.fake.Active(backendtest.OpAppend); n != 0 {
			t.Error("the append goes on")
		}
	})
}

func TestAMessageWhoseDeadlinePassesBehindOthersIsNotStored(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.busy(time.Second)
		began := time.Now()
		late := g.start(t.Context(), weir.Message{Data: []byte("late"), Deadline: began.Add(500 * time.Millisecond)})
		stays := g.start(t.Context(), text("stays"))
		batch := make(chan error, 1)
		go func() {
			batch <- g.PublishBatch(t.Context(), []weir.Message{{Data: []byte("late"), Deadline: began.Add(500 * time.Millisecond)}, text("stays, too")})
		}()
		if err := <-late; !errors.Is(err, weir.ErrExpired) {
			t.Errorf("got %v, want ErrExpired", err)
		}
		if took := time.Since(began); took != 500*time.Millisecond {
			t.Errorf("it ended after %s, its deadline was 500 ms away", took)
		}
		if err := <-stays; err != nil {
			t.Error(err)
		}
		var each *weir.BatchError
		if err := <-batch; !errors.As(err, &each) || !errors.Is(each.Errs[0], weir.ErrExpired) || each.Errs[1] != nil {
			t.Errorf("the batch: %v", err)
		}
		if n := g.stored(); n["late"] != 0 || n["stays"] != 1 || n["stays, too"] != 1 {
			t.Errorf("stored: %v", n)
		}
	})
}

// With others under way it may be stored: nobody may take it for expired.
func TestAMessageWhoseDeadlinePassesWhileItIsUnderWayWithOthersIsUnknown(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 1, Delay: 5 * time.Second})
		g.busy(time.Second)
		began := time.Now()
		late := g.start(t.Context(), weir.Message{Data: []byte("late"), Deadline: began.Add(2 * time.Second)})
		stays := g.start(t.Context(), text("stays"))
		if err := <-late; !errors.Is(err, weir.ErrOutcomeUnknown) || errors.Is(err, weir.ErrExpired) {
			t.Errorf("got %v, want ErrOutcomeUnknown alone", err)
		}
		if took := time.Since(began); took > 2050*time.Millisecond {
			t.Errorf("it ended after %s, its deadline was 2 s away", took)
		}
		if err := <-stays; err != nil || g.stored()["stays"] != 1 {
			t.Errorf("%v, stored %v", err, g.stored())
		}
	})
}

// picky refuses an append with a bad message: as a whole, or only that message.
type picky struct {
	*backendtest.Fake
	whole bool
}

var errPicky = errors.New("this message is bad")

func (p picky) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	bad := func(m backend.Message) bool { return strings.HasPrefix(string(m.Data), "bad") }
	var out []backend.Appended
	var first error
	for _, m := range msgs {
		if bad(m) && p.whole {
			return nil, errPicky
		}
	}
	for _, m := range msgs {
		if bad(m) {
			out, first = append(out, backend.Appended{Err: errPicky}), errPicky
			continue
		}
		one, err := p.Fake.Append(ctx, []backend.Message{m})
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	return out, first
}

func TestOneMessageThatIsRefusedCostsTheOthersNothing(t *testing.T) {
	for _, joint := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T) {
			fake := backendtest.NewFake(backendtest.FakeOptions{Gathering: backend.Gathering{Appends: 1, Joint: joint}})
			g := gatherOn(t, fake, func(f *backendtest.Fake) backend.Backend { return picky{f, joint} })
			g.busy(time.Second)
			bad := g.start(t.Context(), text("bad"))
			var good []<-chan error
			for i := range 20 {
				good = append(good, g.start(t.Context(), text(fmt.Sprint(i))))
			}
			if err := <-bad; !errors.Is(err, errPicky) {
				t.Errorf("joint %v: got %v, want the refusal", joint, err)
			}
			for i, done := range good {
				if err := <-done; err != nil {
					t.Errorf("joint %v: message %d: %v", joint, i, err)
				}
			}
			if n := len(g.stored()); n != 21 {
				t.Errorf("joint %v: %d messages are stored, want 21", joint, n)
			}
		})
	}
}

func TestALostAnswerIsUnknownToEachAndHarmlessWithKeys(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, backend.Gathering{Appends: 1, Keyed: true})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, LoseAnswer: true})
		busy := g.busy(time.Second)
		var keyed, plain []<-chan error
		for i := range 5 {
			keyed = append(keyed, g.start(t.Context(), weir.Message{Data: fmt.Append(nil, "keyed", i), IdempotencyKey: fmt.Sprint("k", i)}))
			plain = append(plain, g.start(t.Context(), text(fmt.Sprint("plain", i))))
		}
		for _, done := range keyed {
			if err := <-done; err != nil {
				t.Errorf("with a key: %v", err)
			}
		}
		for _, done := range plain {
			if err := <-done; !errors.Is(err, weir.ErrOutcomeUnknown) {
				t.Errorf("without: %v, want that the outcome is unknown", err)
			}
		}
		if err := <-busy[0]; err != nil {
			t.Error(err)
		}
		for what, n := range g.stored() {
			if n != 1 {
				t.Errorf("message %s is stored %d times", what, n)
			}
		}
		if n := len(g.stored()); n != 11 {
			t.Errorf("%d of 11 messages are stored", n)
		}
	})
}

func TestCloseWaitsForWhatIsGathered(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.busy(time.Second)
		waiting := []<-chan error{g.start(t.Context(), text("a")), g.start(t.Context(), text("b"))}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		for _, done := range waiting {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Nanosecond):
				t.Error("Close returned before the publish")
			}
		}
		if n := g.stored(); n["a"] != 1 || n["b"] != 1 {
			t.Errorf("stored: %v", n)
		}
		if err := g.Close(); err != nil {
			t.Error("again:", err)
		}
	})
}

// torn is a backend that refuses "bad" and stores everything else, but loses the answer about
// "lost".
type torn struct{ *backendtest.Fake }

func (b torn) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	out := make([]backend.Appended, len(msgs))
	var first error
	for i := range msgs {
		switch string(msgs[i].Data) {
		case "bad":
			out[i].Err = errPicky
		case "lost":
			_, out[i].Err = b.Fake.Append(ctx, msgs[i:i+1])
			out[i].Err = errors.Join(backend.ErrOutcomeUnknown, out[i].Err)
		default:
			one, err := b.Fake.Append(ctx, msgs[i:i+1])
			if err != nil {
				return nil, err
			}
			out[i] = one[0]
		}
		if first == nil {
			first = out[i].Err
		}
	}
	return out, first
}

// What may be stored is not appended once more because something beside it was refused.
func TestAMessageThatMayBeStoredIsNotAppendedAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{Gathering: backend.Gathering{Appends: 1, Joint: true}})
		g := gatherOn(t, fake, func(f *backendtest.Fake) backend.Backend { return torn{f} })
		g.busy(time.Second)
		bad, lost, good := g.start(t.Context(), text("bad")), g.start(t.Context(), text("lost")), g.start(t.Context(), text("good"))
		if err := <-bad; !errors.Is(err, errPicky) {
			t.Errorf("the message that is refused: %v", err)
		}
		if err := <-lost; !errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Errorf("the message whose answer is lost: %v", err)
		}
		if err := <-good; err != nil {
			t.Error(err)
		}
		if n := g.stored(); n["lost"] != 1 || n["good"] != 1 {
			t.Errorf("stored: %v", n)
		}
	})
}

// A Close that waits for a publish behind slow appends ends when that gives up.
func TestCloseDoesNotWaitForAPublishThatGaveUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		g.busy(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		gone := g.start(ctx, text("gone"))
		closed := make(chan error, 1)
		go func() { closed <- g.Close() }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the publish ends with %v", err)
		}
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Close waits for ever")
		}
	})
}

func TestAnAppendThatHangsDoesNotHoldUpTheOthersForLong(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, twoSlots)
		remove := g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Hang: true})
		hung := []<-chan error{g.start(t.Context(), text("hung")), g.start(t.Context(), text("hung too"))}
		waits := g.start(t.Context(), text("waits"))
		time.Sleep(1100 * time.Millisecond)
		for _, done := range []<-chan error{g.start(t.Context(), text("next")), waits} {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Millisecond):
				t.Error("a publish waits for appends that hang")
			}
		}
		remove()
		for _, done := range hung {
			<-done
		}
	})
}

func TestWhatIsGatheredIsBounded(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fake := backendtest.NewFake(backendtest.FakeOptions{Gathering: backend.Gathering{Appends: 1}})
		sizes := &measured{Fake: fake}
		g := gatherOn(t, fake, func(*backendtest.Fake) backend.Backend { return sizes })
		outcomes := g.busy(time.Second)
		large := strings.Repeat("x", 100<<10)
		outcomes = append(outcomes, g.start(t.Context(), text(large)))
		if err := <-outcomes[len(outcomes)-1]; err != nil || fake.Active(backendtest.OpAppend) != 1 {
			t.Errorf("a large message waited for others: %v", err)
		}
		for i := range 4000 {
			outcomes = append(outcomes, g.start(t.Context(), text(large[:1000>>(i/2000*4)])))
		}
		for range 1000 { // what is in headers and keys counts, too
			outcomes = append(outcomes, g.start(t.Context(), weir.Message{FairKey: large[:200], Headers: map[string]string{"h": large[:1000]}}))
		}
		for _, done := range outcomes {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
			}
		}
		if sizes.most > 512 || sizes.bytes > 256<<10 || sizes.most < 200 {
			t.Errorf("the largest append had %d messages, and the most bytes were %d", sizes.most, sizes.bytes)
		}
	})
}

// measured notes how large appends of many messages are.
type measured struct {
	*backendtest.Fake
	mu          sync.Mutex
	most, bytes int
}

func (f *measured) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	n := 0
	for _, m := range msgs {
		n += len(m.Data) + len(m.FairKey)
		for name, value := range m.Headers {
			n += len(name) + len(value)
		}
	}
	f.mu.Lock()
	if len(msgs) > 1 {
		f.most, f.bytes = max(f.most, len(msgs)), max(f.bytes, n)
	}
	f.mu.Unlock()
	return f.Fake.Append(ctx, msgs)
}

// TestEachOutcomeIsRightWhateverHappens publishes from many goroutines whose contexts end
// at any time, on a backend that is slow, refuses and loses answers.
func TestEachOutcomeIsRightWhateverHappens(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) { gatherChaos(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func gatherChaos(t *testing.T, random *rand.Rand) {
	g := gather(t, backend.Gathering{Appends: 1 + random.IntN(3), Keyed: random.IntN(2) == 0, Joint: random.IntN(2) == 0})
	var mu sync.Mutex
	outcomes, ids := map[string]error{}, map[string]string{}
	var all sync.WaitGroup
	for i := range 40 {
		own := rand.New(rand.NewPCG(random.Uint64(), 4))
		all.Go(func() {
			for j := range 10 {
				m := text(fmt.Sprintf("%d.%d", i, j))
				if own.IntN(3) == 0 {
					m.IdempotencyKey = string(m.Data)
				}
				if own.IntN(5) == 0 {
					m.Deadline = time.Now().Add(time.Duration(own.IntN(100)) * time.Millisecond)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+own.IntN(300))*time.Millisecond)
				receipt, err := g.Send(ctx, m)
				cancel()
				copy(m.Data, "XXXXX") // the caller's again
				mu.Lock()
				what := fmt.Sprintf("%d.%d", i, j)
				if outcomes[what] = err; err == nil {
					ids[what] = receipt.ID
				}
				mu.Unlock()
				time.Sleep(time.Duration(own.IntN(20)) * time.Millisecond)
			}
		})
	}
	for range 30 {
		fault := backendtest.Fault{Times: 1 + random.IntN(5), Skip: random.IntN(3), Delay: time.Duration(random.IntN(60)) * time.Millisecond}
		switch random.IntN(5) {
		case 0:
			fault.Err = fmt.Errorf("away: %w", backend.ErrUnavailable)
		case 1:
			fault.LoseAnswer = true
		case 2:
			fault.Err, fault.Stored = errors.New("bad"), random.IntN(10)
		case 3:
			fault.Late = time.Duration(random.IntN(200)) * time.Millisecond
		}
		g.fake.Inject(backendtest.OpAppend, fault)
		time.Sleep(time.Duration(random.IntN(50)) * time.Millisecond)
	}
	all.Wait()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	stored := g.stored()
	places := g.ids()
	for what, id := range ids {
		if places[what] != id {
			t.Errorf("message %s is stored as %s, and its publish returned %s", what, places[what], id)
		}
	}
	for what, err := range outcomes {
		n := stored[what]
		if known := !errors.Is(err, weir.ErrOutcomeUnknown); n > 1 || known && (n == 1) != (err == nil) {
			t.Errorf("message %s is stored %d times, and its publish returned %v", what, n, err)
		}
	}
	if len(outcomes) != 400 {
		t.Errorf("%d outcomes of 400 publishes", len(outcomes))
	}
}

// A publish that has left may use its message for something else, though it is still to be
// stored.
func TestWhatIsStoredIsWhatWasPublishedThoughItsPublishHasLeft(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := gather(t, backend.Gathering{Appends: 1})
		g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Times: 2, Delay: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		m := weir.Message{Data: []byte("left"), Headers: map[string]string{"k": "v"}}
		first, left, stays := g.start(t.Context(), text("first")), g.start(ctx, m), g.start(t.Context(), text("stays"))
		time.Sleep(1500 * time.Millisecond)
		cancel()
		if err := <-left; !errors.Is(err, weir.ErrOutcomeUnknown) {
			t.Fatalf("%v, want that the outcome is unknown", err)
		}
		copy(m.Data, "gone")
		m.Headers["k"] = "w"
		if err := errors.Join(<-first, <-stays); err != nil {
			t.Fatal(err)
		}
		all, err := g.fake.Read(t.Context(), backend.ReadRequest{Max: 10})
		if err != nil || len(all.Records) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		if r := all.Records[1]; string(r.Data) != "left" || r.Headers["k"] != "v" {
			t.Errorf("stored is %q %v", r.Data, r.Headers)
		}
	})
}
