package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

func TestAMisspeltGroupDoesNotHandleTheHistoryAgain(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	publish(t, open(t, s.Addr(), "stream=jobs&group=billing"), 3)
	claim := func(query string) (backend.Claimed, error) {
		b := open(t, s.Addr(), "stream=jobs&"+query)
		return b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute})
	}
	if got, err := claim("group=billing"); err != nil || len(got.Deliveries) != 3 {
		t.Fatalf("%d, %v: a new group begins at the first entry", len(got.Deliveries), err)
	}
	_, err := claim("group=biling&create=never")
	if !errors.Is(err, backend.ErrGroupNotFound) || backend.Retryable(err) || !strings.Contains(err.Error(), `"biling"`) {
		t.Errorf("create=never: %v", err)
	}
	if groups := s.Client().XInfoGroups(t.Context(), "jobs").Val(); len(groups) != 1 {
		t.Errorf("groups %+v", groups)
	}
	if got, err := claim("group=mail&start=$"); err != nil || len(got.Deliveries) != 0 {
		t.Errorf("start=$: %d, %v", len(got.Deliveries), err)
	}
	publish(t, open(t, s.Addr(), "stream=jobs"), 1)
	if got, err := claim("group=mail&start=$"); err != nil || len(got.Deliveries) != 1 {
		t.Errorf("start=$, and one published since: %d, %v", len(got.Deliveries), err)
	}
	pool, err := weir.NewPool(weir.New(open(t, s.Addr(), "stream=jobs&group=biling&create=never")), func(context.Context, *weir.Delivery) error { return nil }, weir.PoolConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := pool.Run(t.Context()); !errors.Is(err, weir.ErrGroupNotFound) {
		t.Errorf("a pool with create=never ended with %v", err)
	}
}

// What a group will not get that no worker has made yet takes no room from its producers. What
// it will get counts, for both limits.
func TestAGuardReadsAGroupThatIsNotThereAsTheSamplerDoes(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.Options{})
	publish(t, open(t, s.Addr(), "stream=jobs&group=billing"), 30)
	groups := 0
	for query, want := range map[string]int64{
		"stream=jobs":         30,
		"stream=jobs&start=$": 0,
		"stream=none":         0,
		"stream=none&start=$": 0,
	} {
		room := func(req backend.RoomRequest) int64 {
			groups++ // each has a room of its own
			b := open(t, s.Addr(), fmt.Sprintf("%s&group=mail%d", query, groups))
			stats, err := b.Stats(t.Context())
			if err != nil || stats.Lag == nil || *stats.Lag != want {
				t.Errorf("%s: the sampler reads %+v, %v", query, stats, err)
			}
			req.Lifetime = time.Minute
			signal, room, err := b.Share(t.Context(), req)
			if err != nil || signal.Lag == nil || *signal.Lag != want {
				t.Errorf("%s: a guard reads a lag of %s, %v; want %d", query, shown(signal.Lag), err, want)
			}
			return room.Given
		}
		free := 40 - want
		if n := room(backend.RoomRequest{Limit: 40, Pause: -1, Need: free}); n != free {
			t.Errorf("%s: room for %d, want %d", query, n, free)
		}
		if n := room(backend.RoomRequest{Limit: 40, Pause: -1, Need: free + 1}); n != 0 {
			t.Errorf("%s: room for %d above the limit", query, n)
		}
		if n := room(backend.RoomRequest{Limit: 1000, Pause: 29, Need: 1}); (n > 0) != (want < 30) {
			t.Errorf("%s: with a hard limit of 29 there is room for %d", query, n)
		}
	}
	p, err := weir.NewProducer(weir.New(open(t, s.Addr(), "stream=jobs&group=new&start=$")), weir.ProducerConfig{MaxDepth: 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Publish(t.Context(), weir.Message{}); err != nil {
		t.Errorf("a stream whose 30 messages are for others: %v", err)
	}
}
