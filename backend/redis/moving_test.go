package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// eachClient runs a test with a handle on a Cluster of a URL, and with a lent one.
func eachClient(t *testing.T, test func(t *testing.T, c *redistest.Cluster, b *redis.Backend)) {
	t.Parallel()
	t.Run("of a URL", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 0, redistest.Options{})
		b := openOn(t, c.URL()+"?stream=jobs")
		t.Cleanup(func() { _ = b.Close() })
		test(t, c, b)
	})
	t.Run("lent", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 0, redistest.Options{})
		b := lend(t, goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{c.Masters[0].Addr()}}), redis.Options{Stream: "jobs"})
		t.Cleanup(func() { _ = b.Close() })
		test(t, c, b)
	})
}

// anotherMaster returns one that has not got the stream.
func anotherMaster(c *redistest.Cluster) *redistest.Server {
	if c.Masters[0] != c.Owner("jobs", nil) {
		return c.Masters[0]
	}
	return c.Masters[1]
}

// A node that has just been added is in no list of the slots until it has one, and is the owner of the
// stream's keys while that first one moves.
func TestAStreamGoesOnWhileItMovesToANewNode(t *testing.T) {
	eachClient(t, func(t *testing.T, c *redistest.Cluster, b *redis.Backend) {
		publish(t, b, 10)
		ack(t, b, take(t, b, 10)...)
		m := c.BeginMove("jobs", c.Join())
		m.Rest()
		goesOn := func() {
			t.Helper()
			publish(t, b, 10)
			ack(t, b, take(t, b, 10)...)
			if s, err := b.Stats(t.Context()); err != nil || s.Pending != 0 || s.Lag == nil || *s.Lag != 0 {
				t.Errorf("%+v, %v", s, err)
			}
			if got, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorStart, Max: 100}); err != nil || len(got.Records) < 20 {
				t.Errorf("%d records, %v", len(got.Records), err)
			}
		}
		goesOn()
		m.Finish()
		goesOn()
	})
}

// waiter is a claim that waits. It returns what the claim got.
func waiter(t *testing.T, b *redis.Backend) <-chan backend.Claimed {
	t.Helper()
	claimed := make(chan backend.Claimed, 1)
	go func() {
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: 20 * time.Second, ReclaimAfter: time.Hour})
		if err != nil {
			t.Error(err)
		}
		claimed <- got
	}()
	return claimed
}

// waits waits until a read waits at a server.
func waits(t *testing.T, s *redistest.Server) {
	t.Helper()
	admin := s.Client()
	wait(t, "the claim waits", func() bool {
		return strings.Contains(admin.Do(t.Context(), "CLIENT", "LIST").String(), "cmd=xreadgroup")
	})
}

// A worker with nothing to do sees nothing of a move but the message that is published behind it.
func TestAWaitFollowsAStreamThatMoves(t *testing.T) {
	eachClient(t, func(t *testing.T, c *redistest.Cluster, b *redis.Backend) {
		publish(t, b, 1)
		ack(t, b, take(t, b, 1)...)
		to := anotherMaster(c)
		from := c.Owner("jobs", nil)
		claimed := waiter(t, b)
		waits(t, from)
		m := c.BeginMove("jobs", to)
		m.Rest()
		waits(t, to)
		publish(t, b, 1)
		if got := <-claimed; len(got.Deliveries) != 1 {
			t.Errorf("while it moves: %+v", got)
		}
		claimed = waiter(t, b)
		waits(t, to)
		m.Finish()
		publish(t, b, 1)
		if got := <-claimed; len(got.Deliveries) != 1 {
			t.Errorf("once it has moved: %+v", got)
		}
	})
}

// While a slot moves, a script of several keys is refused if one of them is not there: most of them are not
// if nothing has been delayed and nothing has failed. A move may stop halfway, for as long as nobody mends it.
func TestWhatNeedsNoOtherKeyGoesOnWhileTheSlotMoves(t *testing.T) {
	eachClient(t, func(t *testing.T, c *redistest.Cluster, b *redis.Backend) {
		publish(t, b, 10)
		const lease = 30 * time.Second
		got := claim(t, b, backend.ClaimRequest{Max: 2, ReclaimAfter: lease})
		if len(got.Deliveries) != 2 {
			t.Fatalf("%+v", got)
		}
		slow, late := got.Deliveries[0].Lease, got.Deliveries[1].Lease
		late.Since = late.Since.Add(-lease) // from then on it is asked whether it is still held
		c.BeginMove("jobs", anotherMaster(c))
		began, stalled := time.Now(), stall.Watch()
		lost, err := b.Extend(t.Context(), []backend.Lease{slow}, lease)
		if took := time.Since(began); err != nil || len(lost) > 0 || took > time.Second/3+stalled() { // as long as a pool gives it if a lease is a second
			t.Errorf("a handler that goes on, after %s: lost %v, %v", took, lost, err)
		}
		if lost, err := b.Ack(t.Context(), []backend.Lease{late}); err != nil || len(lost) > 0 {
			t.Errorf("an ack after a long time: lost %v, %v", lost, err)
		}
		if lost, err := b.Ack(t.Context(), []backend.Lease{late}); err != nil || len(lost) != 1 {
			t.Errorf("the same once more: lost %v, %v", lost, err)
		}
		for range 3 {
			if got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 2, ReclaimAfter: time.Hour}); err != nil || len(got.Deliveries) != 2 || got.Failed != nil {
				t.Errorf("%+v, %v", got, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if s, err := b.Stats(ctx); err != nil || s.Pending != 7 || s.Lag == nil || *s.Lag != 2 || s.XLen != 10 {
			t.Errorf("%+v, %v", s, err)
		}
		if s, err := b.Signal(ctx, 100); err != nil || s.Pending != 7 || s.Lag == nil || *s.Lag != 2 {
			t.Errorf("%+v, %v", s, err)
		}
		if s, room, err := b.Share(ctx, backend.RoomRequest{Limit: 100, Need: 1, Want: 1, Lifetime: time.Second}); err != nil || s.Pending != 7 || room.Err == nil {
			t.Errorf("%+v, %+v, %v", s, room, err)
		}
		_, err = b.Append(ctx, []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}})
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "moves to another node") {
			t.Errorf("what cannot be done now: %v", err)
		}
	})
}

// Delayed messages wait for the end of the move, and it is said if that lasts. Whoever reads the depth sees them.
func TestDelayedMessagesComeOnceTheSlotHasMoved(t *testing.T) {
	eachClient(t, func(t *testing.T, c *redistest.Cluster, b *redis.Backend) {
		publish(t, b, 1)
		ack(t, b, take(t, b, 1)...)
		appendAll(t, b, append(numbers(1, time.Millisecond), numbers(1, time.Hour)...))
		m := c.BeginMove("jobs", anotherMaster(c))
		m.Keys("{jobs}:later")
		began := time.Now()
		for {
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: 100 * time.Millisecond, ReclaimAfter: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if got.Failed != nil {
				if !strings.Contains(got.Failed.Error(), "moves to another node") {
					t.Error(got.Failed)
				}
				break
			}
			if time.Since(began) > 20*time.Second {
				t.Fatal("nobody says that what is due stays where it is")
			}
		}
		s, err := b.Stats(t.Context())
		if err != nil || s.Delayed != 1 || s.Lag == nil || *s.Lag != 1 || s.XLen != 3 || s.OldestAge <= 0 {
			t.Errorf("%+v, %v", s, err)
		}
		m.Rest()
		m.Finish()
		comes(t, b, "0")
	})
}
