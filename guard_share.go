package weir

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
)

const (
	// shareLasts is how long, beyond LagCache, a share of the room is left as it is by a
	// reading, and shareMargin how much longer the backend keeps it, for appends that are
	// on their way. What takes its room late has less: with GuardAdaptive a reading and its
	// share are used for up to 2 s, which leaves 0.1 s with a LagCache of 100ms. By then the
	// reading that such a publish begins has told the backend of it.
	shareLasts  = time.Second
	shareMargin = time.Second
	// smallShare is used up before the next one is asked for.
	smallShare = 32
)

// shares is this process's share of the room below the limits, on a backend that shares
// it among processes. What is left and what is being appended never exceed what the
// backend has recorded, even if room is taken during a reading: the reading first gives
// up what it does not claim to keep.
type shares struct {
	left   atomic.Int64 // not taken yet
	flying atomic.Int64 // messages that have taken room and whose append is not over, with a share or without
	low    atomic.Int64 // below it the next reading is started, even if some is left
	alone  atomic.Bool  // it has been logged that the room cannot be shared

	// Only the reading in progress uses these.
	size  int64     // of the share when it was given
	until time.Time // when it is over
}

// take takes room for n messages and returns what is left.
func (s *shares) take(n int64) (left int64, ok bool) {
	s.flying.Add(n) // first: a reading must not miss it
	for left = s.left.Load(); left >= n; left = s.left.Load() {
		if s.left.CompareAndSwap(left, left-n) {
			return left - n, true
		}
	}
	s.flying.Add(-n)
	return left, false
}

// keep gives up the part of the share that is not kept during a reading; used is how
// much of it had been taken.
func (s *shares) keep(now time.Time) (kept, used int64) {
	for {
		left := s.left.Load()
		kept = min(left, s.size/4)
		if now.After(s.until) {
			kept = 0
		}
		if s.left.CompareAndSwap(left, kept) {
			return kept, s.size - left
		}
	}
}

// share reads the signal into r and asks for room for at least need messages, and for
// twice what was used since the previous reading.
func (s *shares) share(ctx context.Context, b backend.Sharer, set *settings, need int64, r *reading) {
	kept, used := s.keep(r.at)
	lasts := max(set.LagCache, 0) + shareLasts
	req := backend.RoomRequest{
		Limit: set.limit, Pause: set.sharedPause(), Need: min(need, set.limit), Want: 2 * used,
		Kept: kept + s.flying.Load(), Lifetime: lasts + shareMargin,
	}
	var room backend.Room
	if r.sig, room, r.err = b.Share(ctx, req); r.err != nil {
		s.size = kept
		return
	}
	s.shared(ctx, set, room, req, kept, lasts, r)
}

// sharedPause is the backlog above which no room is given; -1: any.
func (s *settings) sharedPause() int64 {
	if s.LagSignal != SignalBacklog || s.Budget != "" {
		return -1
	}
	return s.LagPause
}

// denies reports whether the reading asked for as much room as need under the same limits,
// and there was none: to read again at once would not help.
func (r *reading) denies(set *settings, need int64) bool {
	d := &r.denied
	return d.Need > 0 && need >= d.Need && d.Limit == set.limit && d.Pause == set.sharedPause()
}

// shared takes over the room that a reading was given; kept is what it had left alone. A reading that its owner's end
// has cut short says nothing.
func (s *shares) shared(ctx context.Context, set *settings, room backend.Room, req backend.RoomRequest, kept int64, lasts time.Duration, r *reading) {
	s.size = kept
	if room.Err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) && !s.alone.Swap(true) {
			set.Logger.Warn("weir: each process keeps the limits on its own: the room cannot be shared", "error", room.Err)
		}
	} else {
		s.alone.Store(false)
		r.shared, r.promised = true, room.Taken+req.Kept
		s.size, s.until = kept+room.Given, r.at.Add(lasts)
		s.left.Add(room.Given)
		if room.Given < req.Need {
			r.denied = req
		}
	}
	low := s.size / 4
	if s.size < smallShare {
		low = 0
	}
	s.low.Store(low)
}
