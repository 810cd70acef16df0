package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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

func TestABudgetForgetsWhatIsOfBeforeTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	b := openOn(t, server.URL()+"?stream=jobs")
	t.Cleanup(func() { _ = b.Close() })
	draw := func(stream string) int64 {
		spent, failed := b.Spent(t.Context(), "all", stream)
		_, room, err := b.Draw(t.Context(), backend.DrawRequest{
			RoomRequest: backend.RoomRequest{Limit: 100, Need: 20, Want: 20, Lifetime: time.Second}, Budget: "all", Stream: stream, Producer: "of " + stream, Spent: spent,
		})
		if err = errors.Join(failed, err); err != nil {
			t.Fatal(err)
		}
		return room.Given
	}
	if given := draw("lives"); given < 20 {
		t.Fatalf("%d given of an empty budget", given)
	}
	ahead := server.Client().Time(t.Context()).Val().Add(time.Hour).UnixMilli()
	server.Client().HSet(t.Context(), "weir:budget:all",
		"p:gone", fmt.Sprintf("40 %d lives", ahead), "p:of full", fmt.Sprintf("0 %d full", ahead),
		"s:full", fmt.Sprintf("0 60 0 %d 0 60 0 0 0 60 0 0", ahead), "s:short", fmt.Sprintf("0 0 %d %d 0 0 0 0 0 0 0 0", ahead, ahead))
	draw("lives")
	if given := draw("lives"); given < 20 {
		t.Errorf("%d given beside what the clock was set back behind", given)
	}
}

// What a producer that is gone may have appended counts for its stream until that is read again,
// whichever stream's producer finds that its share is over.
func TestABudgetCountsWhatAProducerThatIsGoneMayHaveAppended(t *testing.T) {
	t.Parallel()
	b := openOn(t, redistest.Start(t, redistest.Options{}).URL()+"?stream=jobs")
	t.Cleanup(func() { _ = b.Close() })
	draw := func(stream string, need int64, lifetime time.Duration) backend.Room {
		_, room, err := b.Draw(t.Context(), backend.DrawRequest{
			RoomRequest: backend.RoomRequest{Limit: 100, Need: need, Want: need, Lifetime: lifetime}, Budget: "all", Stream: stream, Producer: "of " + stream,
		})
		if err = errors.Join(err, room.Err); err != nil {
			t.Fatal(err)
		}
		return room
	}
	if room := draw("dies", 60, -time.Millisecond); room.Given != 60 {
		t.Fatalf("%+v of an empty budget", room)
	}
	for try := range 3 {
		if room := draw("lives", 50, time.Minute); room.Given > 0 {
			t.Errorf("reading %d: %d given beside 60 of 100 that may be there", try, room.Given)
		}
	}
	if spent, err := b.Spent(t.Context(), "all", "dies"); spent != 60 || err != nil {
		t.Errorf("spent %d, %v", spent, err)
	}
}
