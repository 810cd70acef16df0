package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// A roll-out of another ReclaimAfter takes nothing from workers that run with the
// old one, and what those leave behind is taken when their leases end. Who told
// nothing is judged by the claimer's own.
func TestALeaseLastsAsLongAsItsHolderSaid(t *testing.T) {
	const long, short = time.Hour, 40 * time.Millisecond
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		for _, test := range []struct {
			holder, claimer time.Duration
			foreign, taken  bool
		}{
			{holder: long, claimer: short},
			{holder: short, claimer: long, taken: true},
			{holder: short, claimer: short, taken: true},
			{claimer: short, foreign: true, taken: true},
			{claimer: long, foreign: true},
		} {
			t.Run(fmt.Sprint(test.holder, " ", test.claimer), func(t *testing.T) {
				s.Client().FlushAll(t.Context())
				old, next := open(t, s.Addr(), "stream=jobs"), open(t, s.Addr(), "stream=jobs")
				take := func() backend.Claimed {
					return claim(t, next, backend.ClaimRequest{Consumer: "next", Max: 5, ReclaimAfter: test.claimer, MaxDeliveries: 3})
				}
				if !test.taken || test.foreign {
					take() // it runs already, and knows of nobody
				}
				publish(t, old, 2)
				if test.foreign {
					read := goredis.XReadGroupArgs{Group: "weir", Consumer: "by-hand", Streams: []string{"jobs", ">"}}
					if err := s.Client().XReadGroup(t.Context(), &read).Err(); err != nil {
						t.Fatal(err)
					}
				} else if got := claim(t, old, backend.ClaimRequest{Consumer: "old", Max: 5, ReclaimAfter: test.holder}); len(got.Deliveries) != 2 {
					t.Fatalf("%+v", got)
				}
				if test.taken {
					n := 0
					wait(t, "both are taken over", func() bool {
						got := take()
						n += got.Reclaimed
						return n == 2
					})
					return
				}
				for start := time.Now(); time.Since(start) < 4*short; time.Sleep(5 * time.Millisecond) {
					if got := take(); len(got.Deliveries) > 0 {
						t.Fatalf("taken after %s: %+v", time.Since(start), got)
					}
				}
			})
		}
	})
}

// A hash that somebody removed is there again before anybody is judged without it.
func TestAWorkerTellsItsLeaseAgain(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		req := backend.ClaimRequest{Max: 1, ReclaimAfter: 100 * time.Millisecond}
		claim(t, b, req)
		s.Client().Del(t.Context(), "{jobs}:workers:weir", "{jobs}:weir")
		wait(t, "it is there again", func() bool {
			claim(t, b, req)
			return s.Client().HGet(t.Context(), "{jobs}:workers:weir", "c").Val() == "100" &&
				s.Client().HExists(t.Context(), "{jobs}:weir", "group:weir").Val()
		})
	})
}
