package weir

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/admission"
)

const (
	// readTimeout is how long a backend may take to answer a guard before its
	// signal is unknown.
	readTimeout = time.Second
	// slowReading is how long a reading may take before publishes that have failed give way to it.
	slowReading = 10 * time.Millisecond
	// refreshAhead is the fraction of LagCache, at its end, in which a publish starts the
	// next reading without waiting for it.
	refreshAhead = 8
	// failedFor is how old a reading may be that was not answered: publishes that come
	// one after the other do not wait for each try, and one that comes later does not go
	// by what has been.
	failedFor = 3 * readTimeout
	// A reading that was not permitted is tried again after forbiddenFirst, and after twice as long each
	// time, up to forbiddenMost: a right may be taken away for a moment.
	forbiddenFirst = time.Second
	forbiddenMost  = time.Minute
)

// signals holds the last reading of a stream for all its producers. At most one reading
// is in progress. A publish uses one that was started at most LagCache ago, or waits for
// the next; if reading takes longer than LagCache itself, it uses the first that
// arrives. After a wait, a publish uses a reading newer than the one that made it wait.
type signals struct {
	backend  backend.Backend
	last     atomic.Pointer[reading]
	flight   atomic.Pointer[flight]
	appended atomic.Int64  // messages that producers of this process were allowed to append
	sent     *atomic.Int64 // messages whose append has begun, without those that the backend refused; of all streams of a budget
	deepest  atomic.Int64  // the highest depth limit of a producer that has asked
	control  *admission.Controller
	purse    *purse      // the budget; nil: none
	alone    atomic.Bool // it has been logged that the processes cannot count together
	shares
}

// flight is a reading in progress; done is closed when it is over.
type flight struct {
	began time.Time
	done  chan struct{}
}

// reading is what the backend answered. It does not change.
type reading struct {
	number    int64         // of this reading, from 1
	at        time.Time     // when it was begun
	appended  int64         // signals.appended at that time
	sent      int64         // signals.sent at that time
	admitted  uint64        // signals.control.Admitted at that time
	offered   []uint32      // to all processes, as signals.control counts; nil: not known
	err       error         // the backend did not answer; sig is zero
	rest      time.Duration // for how long it is not asked again, because it was forbidden
	uncounted error         // why offered is not known, if it should be
	sig       backend.Signal
	origin    int             // whose count sig.Finished is
	alone     *backend.Signal // of the stream, where sig is of all streams of its budget
	aside     bool            // nobody works on the stream: the cut of its budget is not for it

	shared   bool                // the backend shares the room out among all processes
	promised int64               // what producers might append beside the load that was read, without what it gave
	denied   backend.RoomRequest // for which there was not enough; its Need is 0 if there was

	pending, backlog past // what was last known, including this reading
	finished         past // the count of what is finished, since it last changed
}

// Who counts what is finished, if anybody does.
const (
	ofStream = 1 + iota
	ofBudget
	ofLedger // of this process, where the budget cannot be shared
)

// past is a number that was known once; at is zero if it never was.
type past struct {
	value int64
	at    time.Time
}

// depth is what waits, is being worked on or will be due later. Where the backend does not know how
// much waits it has counted that, as far as the limits go.
func (r *reading) depth() (depth int64, known bool) {
	if r == nil || r.err != nil {
		return -1, false
	}
	return depthOf(&r.sig), true
}

func depthOf(s *backend.Signal) int64 { return s.Pending + waiting(s) + s.Delayed }

// waiting is what nobody has taken yet, as far as it is known.
func waiting(s *backend.Signal) int64 {
	if s.Lag == nil {
		return s.Behind
	}
	return *s.Lag
}

// measurement is what was read of the stream itself.
func (r *reading) measurement() Measurement {
	s := &r.sig
	if r.alone != nil {
		s = r.alone
	}
	m := Measurement{Depth: depthOf(s), Pending: &s.Pending, Lag: s.Lag}
	if !s.Counted {
		m.Attended = new(s.Workers != nil)
	}
	return m
}

// signal returns the number that the lag limits look at, now.
func (r *reading) signal(kind SignalKind) (value int64, known bool) {
	switch {
	case r == nil || r.err != nil:
		return -1, false
	case kind == SignalPending && r.sig.Workers != nil:
		return *r.sig.Workers, true
	case kind == SignalBacklog && r.sig.Lag != nil:
		return r.sig.Pending + *r.sig.Lag, true
	}
	return -1, false
}

// decayed is the last known signal, halved for every ttl that has gone by since;
// what was never known is 0.
func (r *reading) decayed(kind SignalKind, now time.Time, ttl time.Duration) int64 {
	last := r.pending
	if kind == SignalBacklog {
		last = r.backlog
	}
	if last.at.IsZero() {
		return 0
	}
	halvings := float64(max(now.Sub(last.at), 0)) / float64(ttl)
	return int64(float64(last.value) * math.Exp2(-halvings))
}

// follow makes next the reading behind r.
func (r *reading) follow(next *reading) {
	next.number = 1
	if r != nil {
		next.number, next.pending, next.backlog, next.finished = r.number+1, r.pending, r.backlog, r.finished
	}
	if errors.Is(next.err, ErrForbidden) {
		next.rest = forbiddenFirst
		if r != nil {
			next.rest = min(max(2*r.rest, forbiddenFirst), forbiddenMost)
		}
	}
	if value, known := next.signal(SignalPending); known {
		next.pending = past{value, next.at}
	}
	if value, known := next.signal(SignalBacklog); known {
		next.backlog = past{value, next.at}
	}
	if n := next.done(); next.err == nil && (n != next.finished.value || next.finished.at.IsZero()) {
		next.finished = past{n, next.at}
	}
}

// done counts the finished messages, from some moment on: where the backend does not, it
// follows from what this process had sent and what is left.
func (r *reading) done() int64 {
	if r.sig.Finished != nil {
		return *r.sig.Finished
	}
	depth, _ := r.depth()
	return r.sent - depth
}

// orphaned reports whether what is pending is with nobody: the workers no longer say how
// loaded they are, and have finished nothing for as long as that counts.
func (r *reading) orphaned(ttl time.Duration) bool {
	return r.err == nil && r.sig.Workers == nil && !r.pending.at.IsZero() && r.at.Sub(r.finished.at) >= ttl
}

// ask reads the signal that workers publish, or else the stream's own numbers,
// where workers are off if the backend knows that there are none. Where the backend
// shares room out, it asks for some with which need messages can be appended.
func (s *signals) ask(ctx context.Context, set *settings, need int64) *reading {
	r := &reading{at: time.Now(), origin: ofStream, appended: s.appended.Load(), sent: s.sent.Load(), admitted: s.control.Admitted()}
	r.promised = s.flying.Load() // last: who publishes takes room in the other order
	limit := s.deepen(set.limit)
	if set.rules == GuardAdaptive && s.tally(ctx, r) {
		return r
	}
	if s.purse != nil {
		s.draw(ctx, set, need, r)
		return r
	}
	if b, ok := s.backend.(backend.Sharer); ok && set.rules != GuardOff && !set.shadow {
		s.share(ctx, b, set, need, r)
		return r
	}
	r.sig, r.err = s.own(ctx, limit)
	return r
}

// own reads the stream alone.
func (s *signals) own(ctx context.Context, limit int64) (backend.Signal, error) {
	if b, ok := s.backend.(backend.Signaler); ok {
		return b.Signal(ctx, limit)
	}
	return s.stats(ctx)
}

func (s *signals) stats(ctx context.Context) (backend.Signal, error) {
	stats, err := s.backend.Stats(ctx)
	if err != nil {
		return backend.Signal{}, err
	}
	sig := backend.Signal{Pending: stats.Pending, Lag: stats.Lag, Behind: stats.Behind, Delayed: stats.Delayed, XLen: stats.XLen, Counted: stats.Workers == nil}
	if stats.Workers == nil || *stats.Workers > 0 {
		sig.Workers = &sig.Pending
	}
	return sig, nil
}

// deepen returns the highest limit of all that have asked: they share the readings.
func (s *signals) deepen(limit int64) int64 {
	for {
		deepest := s.deepest.Load()
		if limit <= deepest || s.deepest.CompareAndSwap(deepest, limit) {
			return max(limit, deepest)
		}
	}
}

// current returns the last reading if it may still be used at now, else nil. A
// failed one may be used for longer, while there is no other: waiting for a backend that
// does not answer helps nobody. soon says that the next one should be begun.
func (s *signals) current(now time.Time, cache time.Duration) (r *reading, soon bool) {
	r = s.last.Load()
	if r == nil {
		return nil, true
	}
	age := now.Sub(r.at)
	switch {
	case cache > 0 && age < cache:
		return r, age >= cache-cache/refreshAhead
	case r.rest > 0 && age < r.rest:
		return r, false
	case r.err != nil && age < failedFor:
		return r, true
	}
	return nil, true
}

// refresh begins a reading unless one is under way, and returns that; it asks for
// room for need messages. The reading belongs to the guard that began it; nil if
// that is closed.
func (g *guard) refresh(need int64) *flight {
	s := g.signals
	for {
		if f := s.flight.Load(); f != nil {
			return f
		}
		f := &flight{began: time.Now(), done: make(chan struct{})}
		if !s.flight.CompareAndSwap(nil, f) {
			continue
		}
		if g.owner.start(func(ctx context.Context) { g.read(ctx, f, need) }) {
			return f
		}
		s.flight.Store(nil)
		close(f.done)
		return nil
	}
}

// giveWay lets other goroutines run if a reading takes long: callers who come again at once when
// they are refused may be what keeps it from a processor.
func (s *signals) giveWay() {
	if f := s.flight.Load(); f != nil && time.Since(f.began) > slowReading {
		runtime.Gosched()
	}
}

// read takes one reading. One that its owner's end cut short says nothing.
func (g *guard) read(life context.Context, f *flight, need int64) {
	s := g.signals
	defer func() {
		s.flight.Store(nil)
		close(f.done)
	}()
	ctx, cancel := context.WithTimeout(life, readTimeout)
	defer cancel()
	r := s.ask(ctx, g.settings.Load(), need)
	if r.err != nil && life.Err() != nil {
		return
	}
	s.last.Load().follow(r)
	if set := g.settings.Load(); set.rules == GuardAdaptive {
		s.tellCounted(set, r)
		s.control.Update(r.forControl(set), time.Now())
	}
	s.last.Store(r)
	if r.err == nil && g.hooks.Measured != nil {
		g.hooks.Measured(g.name, r.measurement())
	}
}

// await returns the first reading with more than the number, begun at since or
// later. It ends with the context's error or, if the producer is closed, ErrClosed.
func (g *guard) await(v *visit, number int64, since time.Time) (*reading, error) {
	for {
		if r := g.signals.last.Load(); r != nil && r.number > number && !r.at.Before(since) {
			return r, nil
		}
		f := g.refresh(v.n)
		if f == nil {
			return nil, ErrClosed
		}
		select {
		case <-f.done:
		case <-v.ctx.Done():
			return nil, v.ctx.Err()
		case <-g.owner.life.Done():
			return nil, ErrClosed
		}
	}
}

// look returns the reading that a publish which came at now is judged by.
func (g *guard) look(v *visit, now time.Time, cache time.Duration) (*reading, error) {
	r, soon := g.signals.current(now, cache)
	if r != nil {
		if soon {
			g.refresh(v.n)
		}
		return r, nil
	}
	if cache < 0 {
		return g.await(v, 0, now)
	}
	var number int64
	if r = g.signals.last.Load(); r != nil {
		if now.Sub(r.at) < cache {
			return r, nil // it has just come
		}
		number = r.number
	}
	return g.await(v, number, time.Time{})
}
