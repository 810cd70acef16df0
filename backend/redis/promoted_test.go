package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// Redis 7.0, and 7.2 at first, does not tell replicas how many entries a group has read
// (redis/redis#12898): once they take over, what was read since they began counts as waiting.
func TestLagIsTrueOfAReplicaThatHasTakenOver(t *testing.T) {
	t.Parallel()
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			primary := redistest.Start(t, redistest.Options{Version: version, Args: []string{"--repl-diskless-sync-delay", "0"}})
			replica := redistest.Start(t, redistest.Options{Version: version})
			s := &stage{t: t, c: primary.Client(), stream: "k"}
			s.play("XGROUP CREATE K G 0 MKSTREAM; +100; XREADGROUP GROUP G c COUNT 50 STREAMS K >")
			follows(t, replica, primary)
			s.play("XREADGROUP GROUP G c COUNT 30 STREAMS K >")
			wait(t, "the replica has it", func() bool {
				mine, err := s.c.XInfoGroups(t.Context(), "k").Result()
				its, err1 := replica.Client().XInfoGroups(t.Context(), "k").Result()
				return err == nil && err1 == nil && its[0].LastDeliveredID == mine[0].LastDeliveredID
			})
			if err := replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			b := open(t, replica.Addr(), "stream=k&group=g")
			s.c = replica.Client()
			for _, then := range []string{
				"+1", "XREADGROUP GROUP G c COUNT 5 STREAMS K >",
				"XREADGROUP GROUP G c COUNT 100 STREAMS K >", "+1", // that nothing waits says nothing of the next number
			} {
				s.play(then)
				truth := s.behind()
				stats, err := b.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if stats.Lag != nil && *stats.Lag != truth {
					t.Errorf("after %s the lag is %d; by hand %d", then, *stats.Lag, truth)
				}
			}
		})
	}
}

// What was verified of the primary says nothing of the replica that has taken over from it.
func TestALagIsVerifiedAnewOnAnotherServer(t *testing.T) {
	t.Parallel()
	t.Run("with a client of a URL", func(t *testing.T) {
		lagOnAnotherServer(t, func(addr string) *redis.Backend { return open(t, addr, "stream=k&group=g") })
	})
	t.Run("with a lent client, which connects unseen", func(t *testing.T) {
		lagOnAnotherServer(t, func(addr string) *redis.Backend {
			b := lend(t, goredis.NewClient(&goredis.Options{Addr: addr}), redis.Options{Stream: "k", Group: "g"})
			t.Cleanup(func() { _ = b.Close() })
			return b
		})
	})
}

func lagOnAnotherServer(t *testing.T, open func(addr string) *redis.Backend) {
	t.Parallel()
	primary := redistest.Start(t, redistest.Options{Args: []string{"--repl-diskless-sync-delay", "0"}})
	replica := redistest.Start(t, redistest.Options{})
	s := &stage{t: t, c: primary.Client(), stream: "k"}
	s.play("XGROUP CREATE K G 0 MKSTREAM; +100; XREADGROUP GROUP G c COUNT 50 STREAMS K >")
	follows(t, replica, primary)
	s.play("XREADGROUP GROUP G c COUNT 20 STREAMS K >")
	e := startEndpoint(t, primary)
	b := open(e.Addr().String())
	if stats, err := b.Stats(t.Context()); err != nil || stats.Lag == nil || *stats.Lag != 30 {
		t.Fatalf("%+v, %v", stats, err)
	}
	wait(t, "the replica has it", func() bool {
		its, err := replica.Client().XInfoGroups(t.Context(), "k").Result()
		return err == nil && its[0].LastDeliveredID == s.ids[69]
	})
	if err := replica.Client().Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	e.lead(replica)
	primary.Kill()
	killed, stalled := time.Now(), stall.Watch()
	wait(t, "the new primary's lag is not taken for true", func() bool {
		stats, err := b.Stats(t.Context())
		return err == nil && (stats.Lag == nil || *stats.Lag == 30)
	})
	if took := time.Since(killed); took > 7*time.Second+stalled() { // what was verified counts for 10 s
		t.Errorf("that took %v", took)
	}
}
