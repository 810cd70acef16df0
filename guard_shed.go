package weir

import (
	"sync"
	"sync/atomic"
	"time"
)

// shedder is the first door of a publish: a gate that bounds how many are under
// way at once, and a window that bounds how many begin in a stretch of time. Who
// is refused is refused at once.
type shedder struct {
	inFlight atomic.Int64

	mu     sync.Mutex
	opened time.Time // when the window's first request came
	count  int       // requests in the window, those refused by it left out
}

// enter takes a place in the gate if fewer than limit are taken; 0 is no limit,
// and places are counted all the same, so that a limit set later holds at once.
func (s *shedder) enter(limit int) bool {
	for {
		n := s.inFlight.Load()
		if limit > 0 && n >= int64(limit) {
			return false
		}
		if s.inFlight.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave gives a place back.
func (s *shedder) leave() { s.inFlight.Add(-1) }

// request counts a request that came at now. If the window has had its most already, left
// is how long it still lasts, always more than 0.
func (s *shedder) request(now time.Time, window time.Duration, most int) (left time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := now.Sub(s.opened)
	if s.opened.IsZero() || since >= window {
		s.opened, s.count, since = now, 0, 0
	}
	if s.count >= most {
		// A publish that read the clock before the window's first one is in it too.
		return window - max(since, 0), false
	}
	s.count++
	return 0, true
}
