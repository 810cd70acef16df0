package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/redis"
	"github.com/weirmq/weir/tests/redistest"
)

// roomUser may do what a producer needs except to touch the key of the shared room.
const roomUser = "ACL SETUSER lean on >pw ~jobs ~{jobs}:lag:weir ~{jobs}:later +@all"

// asks takes room as a producer's guard does.
func asks(t *testing.T, b *redis.Backend, req backend.RoomRequest) backend.Room {
	t.Helper()
	if req.Lifetime == 0 {
		req.Lifetime = time.Minute
	}
	_, room, err := b.Share(t.Context(), req)
	if err != nil || room.Err != nil {
		t.Fatalf("%+v: %v, %v", req, err, room.Err)
	}
	return room
}

func wantRoom(t *testing.T, what string, got backend.Room, given, taken int64) {
	t.Helper()
	if got.Given != given || got.Taken != taken {
		t.Errorf("%s: given %d, %d taken by others; want %d and %d", what, got.Given, got.Taken, given, taken)
	}
}

func TestRoomIsGivenOutOnceWhoeverAsks(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		url := server.URL() + "?stream=jobs"
		a, b, c := openOn(t, url), openOn(t, url), openOn(t, url)
		all := backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Want: 1000}
		wantRoom(t, "the first leaves half", asks(t, a, all), 50, 0)
		wantRoom(t, "the second takes half of its part", asks(t, b, all), 25, 50)
		wantRoom(t, "a third", asks(t, c, all), 16, 75)
		fill(t, a, 50)
		wantRoom(t, "what was given counts though it may be stored already", asks(t, c, all), 0, 75)
		wantRoom(t, "who reads again gives up what is left", asks(t, a, all), 8, 25)
		kept := all
		kept.Kept = 8
		wantRoom(t, "what is kept counts for oneself", asks(t, a, kept), 8, 25)
		few := all
		few.Want, few.Need = 2, 2
		wantRoom(t, "no more than is wanted", asks(t, b, few), 2, 16)
		much := all
		much.Need = 35
		wantRoom(t, "less than is needed is of no use", asks(t, b, much), 0, 16)
		much.Need = 34
		wantRoom(t, "the last of it", asks(t, b, much), 34, 16)
		wantRoom(t, "nothing is left", asks(t, c, all), 0, 50)
	})
}

func TestRoomOfASilentProducerComesBack(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		url := server.URL() + "?stream=jobs"
		a, b := openOn(t, url), openOn(t, url)
		req := backend.RoomRequest{Limit: 100, Pause: -1, Need: 90, Want: 90, Lifetime: 200 * time.Millisecond}
		began := time.Now()
		wantRoom(t, "nearly all", asks(t, a, req), 90, 0)
		wait(t, "another gets it", func() bool { return asks(t, b, req).Given > 0 })
		if took := time.Since(began); took < req.Lifetime-time.Millisecond { // the server counts in them
			t.Errorf("given up after %s, want %s at least", took, req.Lifetime)
		}
		if ttl := server.Client().PTTL(t.Context(), "{jobs}:room:weir").Val(); ttl <= 0 {
			t.Errorf("the key never expires: %s", ttl)
		}
	})
}

func TestHardLimitOfTheBacklogIsSharedToo(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	url := server.URL() + "?stream=jobs"
	if err := server.Client().XGroupCreateMkStream(t.Context(), "jobs", "weir", "0").Err(); err != nil {
		t.Fatal(err)
	}
	a, b := openOn(t, url), openOn(t, url)
	req := backend.RoomRequest{Limit: 1000, Pause: 20, Need: 1, Want: 1000}
	wantRoom(t, "the first", asks(t, a, req), 10, 0)
	fill(t, a, 20)
	asks(t, a, backend.RoomRequest{Limit: 1000, Pause: 20})
	wantRoom(t, "not above the hard limit", asks(t, b, req), 1, 0)
	wantRoom(t, "and no more", asks(t, a, req), 0, 1)
}

func TestWhatIsNotDueIsNoBacklog(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	url := server.URL() + "?stream=jobs"
	if err := server.Client().XGroupCreateMkStream(t.Context(), "jobs", "weir", "0").Err(); err != nil {
		t.Fatal(err)
	}
	b := openOn(t, url)
	if _, err := b.Append(t.Context(), slices.Repeat([]backend.Message{{Delay: time.Hour}}, 30)); err != nil {
		t.Fatal(err)
	}
	wantRoom(t, "below the hard limit", asks(t, b, backend.RoomRequest{Limit: 1000, Pause: 20, Need: 1, Want: 5}), 5, 0)
	wantRoom(t, "below the depth's", asks(t, b, backend.RoomRequest{Limit: 32, Pause: 20, Need: 1, Want: 5}), 1, 0)
	wantRoom(t, "at it", asks(t, b, backend.RoomRequest{Limit: 30, Pause: 20, Need: 1, Want: 5}), 0, 0)
}

func TestUserWithoutTheRoomsKeyIsToldAndReadsOn(t *testing.T) {
	onEveryServer(t, func(t *testing.T, server *redistest.Server) {
		if server.Client().Do(t.Context(), "ACL", "WHOAMI").Err() != nil {
			t.Skip("has no users")
		}
		for _, user := range []string{roomUser, "ACL SETUSER lean ~{jobs}:room:weir -hset"} {
			var words []any
			for _, word := range strings.Fields(user) {
				words = append(words, word)
			}
			if err := server.Client().Do(t.Context(), words...).Err(); err != nil {
				t.Fatal(err)
			}
			b := openOn(t, strings.Replace(server.URL(), "redis://", "redis://lean:pw@", 1)+"?stream=jobs")
			before, err := b.Signal(t.Context(), 100)
			if err != nil {
				t.Fatal(err)
			}
			fill(t, b, 3)
			for range 2 {
				s, room, err := b.Share(t.Context(), backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Want: 1, Lifetime: time.Minute})
				if err != nil || s.XLen != before.XLen+3 {
					t.Errorf("%s: %+v, %v: want the reading all the same", user, s, err)
				}
				if room.Err == nil || !strings.Contains(room.Err.Error(), "{jobs}:room:weir") || !strings.Contains(room.Err.Error(), "ACL") {
					t.Errorf("%s: told %v, want the key and what is missing", user, room.Err)
				}
			}
		}
	})
}

func fill(t *testing.T, b *redis.Backend, n int) {
	t.Helper()
	if _, err := b.Append(t.Context(), make([]backend.Message, n)); err != nil {
		t.Fatal(err)
	}
}

// The server's clock was set back by an hour: what a producer that is gone was given before does not
// take up the room until it is as late again.
func TestAShareOfBeforeTheClockWasSetBackIsForgotten(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client()
		b := open(t, s.Addr(), "stream=jobs")
		publish(t, b, 1)
		ahead := c.Time(t.Context()).Val().Add(time.Hour).UnixMilli()
		c.HSet(t.Context(), "{jobs}:room:weir", "gone", fmt.Sprintf("90 %d", ahead), "total", "90", "sweep", fmt.Sprint(ahead))
		_, room, err := b.Share(t.Context(), backend.RoomRequest{Limit: 100, Pause: -1, Need: 20, Want: 20, Lifetime: time.Second})
		if err != nil || room.Err != nil || room.Given < 20 {
			t.Errorf("%+v, %v", room, err)
		}
	})
}

// What workers hold is in the stream.
func TestWhatIsPendingTakesRoom(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 6)
	claim(t, b, backend.ClaimRequest{Max: 4})
	req := backend.RoomRequest{Limit: 8, Pause: -1, Need: 1, Want: 1000}
	wantRoom(t, "beside six, two of them waiting", asks(t, b, req), 1, 0)
	req.Limit = 6
	wantRoom(t, "at the limit", asks(t, b, req), 0, 0)
}
