package redis_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/redistest"
)

// What a node of a Cluster refuses of a budget means what it means on one server: that it is full
// passes, and the budget is kept as soon as it has.
func TestABudgetOnAClusterGoesOnWhenARefusalHasPassed(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.Options{})
	b := openOn(t, c.URL()+"?stream=jobs")
	t.Cleanup(func() { _ = b.Close() })
	draw := func() error {
		_, failed := b.Spent(t.Context(), "all", "jobs")
		_, room, err := b.Draw(t.Context(), backend.DrawRequest{
			RoomRequest: backend.RoomRequest{Limit: 100, Need: 1, Want: 1, Lifetime: 1e9}, Budget: "all", Stream: "jobs", Producer: "p",
		})
		return errors.Join(failed, err, room.Err)
	}
	if err := draw(); err != nil {
		t.Fatal(err)
	}
	limit := func(memory string) {
		for _, s := range c.Masters {
			if err := s.Client().ConfigSet(t.Context(), "maxmemory", memory).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	limit("1")
	var full *backend.FullError
	if err := draw(); !errors.As(err, &full) {
		t.Errorf("on a full server: %v", err)
	}
	limit("0")
	if err := draw(); err != nil {
		t.Errorf("when it has room again: %v", err)
	}
	for _, s := range c.Masters {
		if err := s.Client().Do(t.Context(), "ACL", "SETUSER", "default", "-hset").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := draw(); !errors.Is(err, backend.ErrForbidden) {
		t.Errorf("of a user who may not: %v", err)
	}
}

func TestABudgetCountsWhatIsFinishedNow(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	b := openOn(t, server.URL()+"?stream=jobs")
	t.Cleanup(func() { _ = b.Close() })
	const key = "weir:budget:jobs"
	backendtest.BudgetCounts(t, b, "jobs", func() {
		streams, err := server.Client().HGetAll(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		for field, value := range streams {
			if n := strings.Fields(value); strings.HasPrefix(field, "s:") {
				n[3] = "1" // until when it counts
				if err := server.Client().HSet(t.Context(), key, field, strings.Join(n, " ")).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}
