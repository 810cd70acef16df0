package shard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// fill publishes so much that every shard has some of it.
func fill(t *testing.T, b backend.Backend) {
	t.Helper()
	for range 100 {
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
}

func pause(t *testing.T, b backend.Backend, paused bool) {
	t.Helper()
	if err := b.(backend.Pauser).Pause(t.Context(), paused); err != nil {
		t.Fatal(err)
	}
}

// claimable is how many messages a worker is given.
func claimable(t *testing.T, b backend.Backend) int {
	t.Helper()
	got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1000, ReclaimAfter: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return len(got.Deliveries)
}

// A stream that grows in a pause is paused as a whole, also if the one who lets it grow
// has to try twice.
func TestAStreamThatGrowsInAPauseStaysPaused(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &cellar{}
		a := c.open(t, 2)
		fill(t, a)
		pause(t, a, true)
		b := c.openWith(t, 4, func(number int, f *backendtest.Fake) {
			if number == 3 {
				f.Inject(backendtest.OpPause, backendtest.Fault{Times: 1, Err: backend.ErrUnavailable})
			}
		})
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err == nil {
			t.Fatal("a shard could not be paused")
		}
		fill(t, b)
		time.Sleep(2 * time.Second)
		fill(t, b)
		if n := claimable(t, b); n > 0 {
			t.Errorf("%d messages of a paused stream", n)
		}
		pause(t, a, false)
		if n := claimable(t, b); n != 300 {
			t.Errorf("%d of 300 messages after the pause", n)
		}
	})
}

// Whoever pauses or resumes need not have noticed that the stream has grown.
func TestAPauseReachesShardsThatAreNew(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &cellar{}
		a := c.open(t, 2)
		fill(t, a)
		b := c.open(t, 4)
		fill(t, b)
		pause(t, a, true)
		time.Sleep(2 * time.Second)
		fill(t, b)
		if n := claimable(t, b); n > 0 {
			t.Errorf("%d messages of a paused stream", n)
		}
	})
}

// openTwo opens a stream of two shards, and returns the second of them, too.
func (c *cellar) openTwo(t *testing.T) (b backend.Backend, second *backendtest.Fake) {
	t.Helper()
	b = c.openWith(t, 2, func(number int, f *backendtest.Fake) {
		if number == 1 {
			second = f
		}
	})
	return b, second
}

// A pause that fails changes nothing: what was paused before stays so, and what was not goes
// on, even if the caller's time is over by then.
func TestAPauseThatFailsChangesNothing(t *testing.T) {
	for _, fault := range []backendtest.Fault{{Hang: true}, {Err: backend.ErrUnavailable}, {LoseAnswer: true}} {
		bubble.Run(t, func(t *testing.T) {
			c := &cellar{}
			a, second := c.openTwo(t)
			fill(t, a)
			for _, before := range []bool{true, false} {
				pause(t, a, before)
				heal := second.Inject(backendtest.OpPause, fault)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				if err := a.(backend.Pauser).Pause(ctx, true); err == nil {
					t.Error("a shard could not be paused")
				}
				cancel()
				heal()
				if n := claimable(t, a); before && n > 0 || !before && n != 100 {
					t.Errorf("%+v: %d of 100 messages; paused before: %v", fault, n, before)
				}
			}
		})
	}
}

// A stream of which one shard is paused is shown as paused, whichever it is.
func TestAStreamWithAPausedShardIsPaused(t *testing.T) {
	for number := range 2 {
		bubble.Run(t, func(t *testing.T) {
			b, fakes := inMemory(t, 2)
			pause(t, fakes[number], true)
			stats, err := b.Stats(t.Context())
			if err != nil || !stats.Paused {
				t.Errorf("shard %d is paused: %+v, %v", number, stats, err)
			}
			signal, err := b.(backend.Signaler).Signal(t.Context(), 100)
			if err != nil || !signal.Paused {
				t.Errorf("shard %d is paused: %+v, %v", number, signal, err)
			}
		})
	}
}

// A stream is neither paused nor resumed if that is not so for every shard, or if it is not known how many there are.
func TestAPauseThatIsNotOfAllShardsIsAnError(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		c := &cellar{}
		a, second := c.openTwo(t)
		fill(t, a)
		for _, paused := range []bool{false, true} {
			heal := second.Inject(backendtest.OpPause, backendtest.Fault{Err: backend.ErrForbidden})
			if err := a.(backend.Pauser).Pause(t.Context(), paused); !errors.Is(err, backend.ErrForbidden) {
				t.Errorf("paused %v in one of two shards: %v", paused, err)
			}
			heal()
			c.fail(backend.ErrUnavailable)
			if err := a.(backend.Pauser).Pause(t.Context(), paused); !errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("paused %v of who knows how many shards: %v", paused, err)
			}
			c.fail(nil)
		}
	})
}
