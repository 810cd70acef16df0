package shard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// vault is a shard on a server that keeps budgets.
type vault struct {
	gauge
	spent, draw error
	asked       *backend.DrawRequest
}

func (v vault) Spent(context.Context, string, string) (int64, error) { return 7, v.spent }

func (v vault) Draw(_ context.Context, req backend.DrawRequest) (backend.Signal, backend.Room, error) {
	*v.asked = req
	return backend.Signal{}, backend.Room{Given: 5}, v.draw
}

func (v vault) TallyBudget(context.Context, string, []uint32) ([]uint32, error) { return nil, nil }

func (v vault) Share(context.Context, backend.RoomRequest) (backend.Signal, backend.Room, error) {
	panic("room is shared over all shards")
}

func (v vault) Window(context.Context, int64, int64, time.Duration) (int64, time.Duration, error) {
	return 0, 0, nil
}

func (v vault) Others(context.Context, string, string) ([]string, error) { return nil, nil }

// The room below the limits of a sharded stream is that of a budget. What cannot be shared is said, beside the load, so that
// the process keeps the limits on its own.
func TestTheRoomOfShardsIsSharedAsABudget(t *testing.T) {
	number := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name        string
		spent, draw error
		pause       int64
		lag         *int64
		limit       int64 // 0: no room was asked for
	}{
		{name: "no hard limit", pause: -1, lag: number(10), limit: 1000},
		{name: "a hard limit, and what is not due", pause: 100, lag: number(10), limit: 100 + 3 + 2*4},
		{name: "a hard limit above the depth's", pause: 5000, lag: number(10), limit: 1000},
		{name: "a backlog that is not known", pause: 100, limit: 1000},
		{name: "the budget cannot be read", spent: backend.ErrUnavailable, pause: -1, lag: number(10)},
		{name: "the budget cannot be drawn on", draw: backend.ErrUnavailable, pause: -1, lag: number(10), limit: 1000},
	} {
		var asked backend.DrawRequest
		b := over(t, 2, func(_ int, f *backendtest.Fake) backend.Backend {
			g := gauge{Fake: f, signal: backend.Signal{XLen: 10, Lag: c.lag, Behind: 10, Delayed: 4}}
			return vault{g, c.spent, c.draw, &asked}
		})
		sig, room, err := b.(backend.Sharer).Share(t.Context(), backend.RoomRequest{Limit: 1000, Pause: c.pause, Need: 3, Want: 20, Lifetime: time.Second})
		failed := errors.Join(c.spent, c.draw)
		if err != nil || sig.XLen != 20 || (room.Err == nil) != (failed == nil) || !errors.Is(failed, room.Err) && room.Err != nil {
			t.Errorf("%s: %+v, %+v, %v", c.name, sig, room, err)
		}
		if asked.Limit != c.limit || c.limit > 0 && (asked.Need != 3 || asked.Want != 20 || asked.Spent != 7 || asked.Producer == "") {
			t.Errorf("%s: asked %+v", c.name, asked)
		}
		if failed == nil && room.Given != 5 {
			t.Errorf("%s: %+v", c.name, room)
		}
	}
}
