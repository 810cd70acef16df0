package weir

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/admission"
)

// shedder is the first check of a publish: a gate that bounds how many of a producer's
// are in progress at once, and a window that bounds how many of a stream's begin in a
// given time. Refusals are immediate.
type shedder struct {
	inFlight atomic.Int64
	*window
}

// enter takes a place in the gate if fewer than limit are taken; 0 is no limit. Places
// are counted either way, so that a limit set later applies at once.
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

// window counts the requests of all producers of a stream in this process.
type window struct {
	mu     sync.Mutex
	opened time.Time // when the window's first request came
	count  int       // requests in the window, without those it refused

	// What follows is for a window that all processes share.
	asking chan struct{} // holds one place: the request that asks the backend
	lease  int64         // requests that this process may still let pass
	used   int64         // that it has let pass
	ends   time.Time     // when the lease and the window are over
	spent  bool          // the window is used up
	alone  bool          // it has been logged that the processes cannot share a window
}

func newWindow() *window { return &window{asking: make(chan struct{}, 1)} }

// request counts a request that came at now. If the window is used up, left is how long
// it still lasts, always more than 0.
func (w *window) request(now time.Time, length time.Duration, most int) (left time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := now.Sub(w.opened)
	if w.opened.IsZero() || since >= length {
		w.opened, w.count, since = now, 0, 0
	}
	if w.count >= most {
		// A publish that read the clock before the window's first one is in it too.
		return length - max(since, 0), false
	}
	w.count++
	return 0, true
}

// leased counts a request in the window of all processes; known is false if the
// backend has to be asked.
func (w *window) leased(now time.Time) (left time.Duration, ok, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left = w.ends.Sub(now)
	switch {
	case left <= 0:
		return 0, false, false
	case w.lease > 0:
		w.lease--
		w.used++
		return 0, true, true
	}
	return left, false, w.spent
}

// wanted is how many requests to ask for at now: few compared with what was used,
// because what is not used is lost to the others.
func (w *window) wanted() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(1, w.used/4)
}

// took takes over what the backend gave at now.
func (w *window) took(now time.Time, given int64, left time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.After(w.ends) {
		w.used /= 4
	}
	w.alone = false
	w.lease, w.ends, w.spent = given, now.Add(max(left, time.Millisecond)), given == 0
}

// request counts a visit in the window that its settings name.
func (g *guard) request(set *settings, v *visit) (left time.Duration, ok bool, err error) {
	w := g.shed.window
	counter, can := g.signals.backend.(backend.Windower)
	v.ofAll = set.ShedScope == ShedStream && can
	if !v.ofAll {
		left, ok = w.request(v.now, set.ShedWindow, set.windowFor(v.tier))
		return left, ok, nil
	}
	for now := v.now; ; now = time.Now() {
		left, ok, known := w.leased(now)
		if known {
			return left, ok, nil
		}
		select {
		case w.asking <- struct{}{}:
		case <-v.ctx.Done():
			return 0, false, g.stopped(v, v.ctx.Err())
		case <-g.owner.life.Done():
			return 0, false, g.stopped(v, ErrClosed)
		}
		err := g.lend(set, v, w, counter)
		<-w.asking
		if err != nil {
			if v.ctx.Err() != nil {
				return 0, false, g.stopped(v, v.ctx.Err())
			}
			g.uncounted(set, w, err)
			v.ofAll = false
			left, ok = w.request(v.now, set.ShedWindow, set.windowFor(v.tier))
			return left, ok, nil
		}
	}
}

// windowFor is how many requests of a tier's pass in a window: the last fifth is for
// those above the lowest one, each the more of it the more important it is.
func (s *settings) windowFor(tier int) int {
	return s.LoadSheddingMaxRequests - s.LoadSheddingMaxRequests*tier/(5*(admission.Tiers-1))
}

// lend asks the backend for requests unless somebody else has done so meanwhile.
func (g *guard) lend(set *settings, v *visit, w *window, counter backend.Windower) error {
	now := time.Now()
	w.mu.Lock()
	done := now.Before(w.ends) && (w.lease > 0 || w.spent)
	w.mu.Unlock()
	if done {
		return nil
	}
	ctx, cancel := context.WithTimeout(v.ctx, readTimeout)
	defer cancel()
	given, left, err := counter.Window(ctx, int64(set.LoadSheddingMaxRequests), w.wanted(), set.ShedWindow)
	if err == nil {
		w.took(now, given, left)
	}
	return err
}

// uncounted logs once that this process counts on its own.
func (g *guard) uncounted(set *settings, w *window, err error) {
	w.mu.Lock()
	told := w.alone
	w.alone = true
	w.mu.Unlock()
	if !told {
		set.Logger.Warn("weir: the window only counts the requests of this process: the backend cannot count those of all",
			"stream", g.name.Stream, "error", err)
	}
}
