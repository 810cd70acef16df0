package weir_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// counter is a backend whose processes share a window, in which there is room for left more
// requests. It gives as many as it is asked for, or at least as many.
type counter struct {
	*backendtest.Fake
	left, least int64
	ends        time.Time

	mu     sync.Mutex
	wanted []int64
}

func (c *counter) Window(_ context.Context, _, want int64, length time.Duration) (int64, time.Duration, error) {
	time.Sleep(10 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); !now.Before(c.ends) {
		c.ends = now.Add(length)
	}
	c.wanted = append(c.wanted, want)
	given := min(max(want, c.least), c.left)
	c.left -= given
	return given, time.Until(c.ends), nil
}

func windowed(t *testing.T, c *counter) *weir.Producer {
	t.Helper()
	c.Fake = backendtest.NewFake(backendtest.FakeOptions{})
	p, err := weir.NewProducer(weir.New(c), weir.ProducerConfig{
		Guard: weir.GuardStatic, ShedScope: weir.ShedStream, ShedWindow: time.Minute, LagWarn: -1, LagPause: -1, MaxDepth: 1 << 30, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// Of the window of all processes one takes few at a time, compared with what it uses: what it does
// not use is lost to the others. In the next window it begins with fewer.
func TestAProcessTakesLittleOfTheWindowOfAllAtATime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &counter{left: 1 << 30}
		p := windowed(t, c)
		send := func(n int) {
			for range n {
				if err := p.Publish(t.Context(), weir.Message{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(1000)
		used := int64(0)
		for _, want := range c.wanted {
			if want > max(1, used/4) {
				t.Errorf("it asks for %d when it has used %d", want, used)
			}
			used += want
		}
		if n := len(c.wanted); n > 50 {
			t.Errorf("it asks %d times for 1000 requests", n)
		}
		time.Sleep(time.Minute)
		c.wanted = nil
		if send(500); c.wanted[0] > 250 || c.wanted[1] > 125 {
			t.Errorf("it begins a window with %v, after one with 1000", c.wanted)
		}
	})
}

// A window that is used up is not asked about again before it is over, and who comes while
// somebody asks takes of what that is given.
func TestTheWindowOfAllIsAskedForOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &counter{left: 60, least: 60}
		p := windowed(t, c)
		several(t, 50, p).Wait()
		if !slices.Equal(c.wanted, []int64{1}) {
			t.Errorf("50 at once have asked %d times", len(c.wanted))
		}
		for range 10 {
			if err := p.Publish(t.Context(), weir.Message{}); err != nil {
				t.Error(err)
			}
		}
		for range 20 {
			err := p.Publish(t.Context(), weir.Message{})
			if full := refusedFor(t, err, weir.LoadShedding); full.RetryAfter < 59*time.Second || full.RetryAfter > time.Minute || !strings.Contains(err.Error(), "requests of all processes") {
				t.Errorf("it says %s: %v", full.RetryAfter, err)
			}
		}
		if n := len(c.wanted); n != 2 {
			t.Errorf("asked %d times, want once more when all was used", n)
		}
		c.left = 1
		time.Sleep(time.Minute)
		if err := p.Publish(t.Context(), weir.Message{}); err != nil {
			t.Errorf("in the next window: %v", err)
		}
	})
}

// uncounted is a backend that cannot count in a window of all processes: it refuses, or says nothing.
type uncounted struct {
	*backendtest.Fake
	hangs bool
	asked atomic.Int64
}

func (u *uncounted) Window(ctx context.Context, _, _ int64, _ time.Duration) (int64, time.Duration, error) {
	u.asked.Add(1)
	if u.hangs {
		<-ctx.Done()
		return 0, 0, ctx.Err()
	}
	return 0, 0, backend.ErrUnavailable
}

// While the processes cannot share a window each keeps the limit on its own, which is said once.
func TestAProcessThatCannotShareAWindowKeepsItOnItsOwn(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		bubble.Run(t, func(t *testing.T) {
			u := &uncounted{Fake: backendtest.NewFake(backendtest.FakeOptions{}), hangs: hangs}
			log := &stageLines{}
			p, err := weir.NewProducer(weir.New(u), weir.ProducerConfig{
				Guard: weir.GuardStatic, ShedScope: weir.ShedStream, LoadSheddingMaxRequests: 3, ShedWindow: time.Minute, LagWarn: -1, LagPause: -1, Logger: slog.New(log),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if hangs { // who has less time than the backend learns that nothing is stored
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				if err := p.Publish(ctx, weir.Message{}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, weir.ErrOutcomeUnknown) || time.Since(began) != 100*time.Millisecond {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
			}
			for i := range 6 {
				var full *weir.QueueFullError
				if err := p.Publish(t.Context(), weir.Message{}); i < 3 && err != nil || i >= 3 && (!errors.As(err, &full) || full.Reason != weir.LoadShedding || !strings.Contains(err.Error(), "requests of this process")) {
					t.Errorf("hangs %v, publish %d: %v", hangs, i, err)
				}
			}
			if n := u.Calls(backendtest.OpAppend); n != 3 || u.asked.Load() < 6 {
				t.Errorf("hangs %v: %d appends, asked %d times", hangs, n, u.asked.Load())
			}
			said := 0
			for _, line := range log.of("") {
				if strings.Contains(line.text, "only counts the requests of this process") {
					said++
				}
			}
			if said != 1 {
				t.Errorf("hangs %v: said %d times", hangs, said)
			}
		})
	}
}

// Where nothing can count the requests of all processes, a refusal speaks of this one's.
func TestAWindowOnABackendThatCannotCountIsThisProcesss(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p, err := weir.NewProducer(weir.New(backendtest.NewFake(backendtest.FakeOptions{})), weir.ProducerConfig{
			Guard: weir.GuardStatic, ShedScope: weir.ShedStream, LoadSheddingMaxRequests: 1, LagWarn: -1, LagPause: -1, Logger: quiet(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if err := p.Publish(t.Context(), weir.Message{}); err != nil {
			t.Fatal(err)
		}
		err = p.Publish(t.Context(), weir.Message{})
		if refusedFor(t, err, weir.LoadShedding); !strings.Contains(err.Error(), "requests of this process") {
			t.Error(err)
		}
	})
}
