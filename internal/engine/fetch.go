package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
)

// cold is the error of a plan that needs records which only the disk has. A topic's lock is not
// held while they are read: whoever gets it lets go of the lock, has them fetched (again), and
// plans anew from what is there by then. What comes over from a fetch is what records are, which
// never changes, and nothing that was decided.
type cold struct {
	t      *entry
	seqs   []uint64        // what is needed
	enough func(item) bool // unless nil, what follows the first of them is needed, too, up to where it says so
	expiry bool            // the topic can go on without
	brief  bool            // whoever needs it has something better to do than to wait for long
}

func (c *cold) Error() string {
	return fmt.Sprintf("record %d of topic %q is not in memory", c.seqs[0], c.t.Name)
}

// and joins what two plans of one topic need; before may be nil.
func (c *cold) and(before *cold) *cold {
	if before == nil {
		return c
	}
	before.seqs = append(before.seqs, c.seqs...)
	return before
}

func (c *cold) eachSeq(fn func(uint64)) {
	if c == nil {
		return
	}
	for _, seq := range c.seqs {
		fn(seq)
	}
}

// errSlow is why a fetch was not waited for.
var errSlow = errors.New("the disk does not answer")

const (
	// fetchPatience is how long a topic waits for what a slow disk has of something that can
	// come later, and fetchSick where it is known to be that slow.
	fetchPatience = time.Second
	fetchSick     = fetchPatience / 20
	// fetchAhead and fetchAheadBytes are about how many records are fetched at least where more
	// of them may be needed next.
	fetchAhead      = 1024
	fetchAheadBytes = 256 << 10
	// maxFetched is about the most records of a topic of which one plan is told by the disk.
	maxFetched = 1 << 20
	// maxFetches is how often a plan is made again for what it lacks. Each fetch brings it further.
	maxFetches = 100
)

// fetches are what is being read for plans, and what was read for them.
type fetches struct {
	mu     sync.Mutex
	under  map[fetchKey]*fetch
	of     map[*entry]*fetched
	late   map[*entry]time.Time // topics that go on without their expiry; when it was tried last
	closed bool
}

// fetchKey says what is fetched: those who need the same wait for one fetch.
type fetchKey struct {
	t       *entry
	seq     uint64 // of the first record
	letters bool   // all of the records, for the dead letters
}

// fetch is a read under way.
type fetch struct {
	began time.Time
	done  chan struct{}
	err   error // once done is closed
}

// fetched is what a topic's plans are told of its records.
type fetched struct {
	items []item // ascending by number
	bad   []*damaged
	used  bool // since the last call of rest
}

func (s *fetches) init() {
	s.under, s.of, s.late = make(map[fetchKey]*fetch), make(map[*entry]*fetched), make(map[*entry]time.Time)
}

// begin has read run without any lock, unless what it reads is being read already. own says that
// it does.
func (e *Engine) begin(k fetchKey, read func() error) (f *fetch, own bool) {
	s := &e.fetches
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.under[k]; f != nil {
		return f, false
	}
	f = &fetch{began: time.Now(), done: make(chan struct{})}
	if s.closed {
		f.err = errShuttingDown()
		close(f.done)
		return f, true
	}
	s.under[k] = f
	e.loops.Add(1)
	go func() {
		defer e.loops.Done()
		f.err = read()
		s.end(k, f)
	}()
	return f, true
}

func (s *fetches) end(k fetchKey, f *fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, k)
	if f.err == nil {
		delete(s.late, k.t)
	}
	close(f.done)
}

// close lets nothing more begin.
func (s *fetches) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// wait returns once the fetch is over, or has taken longer than patience, if that is not 0.
func (f *fetch) wait(ctx context.Context, patience time.Duration) error {
	select {
	case <-f.done:
		return f.err
	default:
	}
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(time.Until(f.began.Add(patience)))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-f.done:
		return f.err
	case <-late:
		return errSlow
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch reads what a plan needs, and returns when the plan can be made again. No lock is held.
func (e *Engine) fetch(ctx context.Context, c *cold) error {
	f, _ := e.begin(fetchKey{t: c.t, seq: c.seqs[0]}, func() error { return e.readCold(c) })
	if !c.expiry && !c.brief {
		return f.wait(ctx, 0)
	}
	err := f.wait(ctx, e.fetches.patience())
	if c.expiry {
		e.fetches.postpone(c.t, f)
		return nil
	}
	if err == errSlow {
		return unreadable(c.t, c.seqs[0], err)
	}
	return err
}

// patience is how long to wait for what can come later.
func (s *fetches) patience() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.late) > 0 {
		return fetchSick
	}
	return fetchPatience
}

// postpone lets the topic go on without its expiry, unless the fetch has brought what that needs.
func (s *fetches) postpone(t *entry, f *fetch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-f.done:
		if f.err == nil {
			return
		}
	default:
	}
	s.late[t] = time.Now()
}

// postponed reports whether a topic goes on without its expiry. Now and then that is tried again
// behind its back.
func (e *Engine) postponed(c *cold) bool {
	s := &e.fetches
	s.mu.Lock()
	tried, late := s.late[c.t]
	again := late && time.Since(tried) >= expiryPeriod
	if again {
		s.late[c.t] = time.Now()
	}
	s.mu.Unlock()
	if again {
		e.begin(fetchKey{t: c.t, seq: c.seqs[0]}, func() error { return e.readCold(c) })
	}
	return late
}

// readCold reads what a plan needs. If some of it cannot be read, the plan gets as far as the
// rest goes.
func (e *Engine) readCold(c *cold) error {
	r := coldReading{e: e, cold: c}
	var err error
	for _, seq := range c.seqs {
		if err = r.from(seq); err != nil || r.bad != nil {
			break
		}
	}
	if len(r.items) > 0 || r.bad != nil {
		e.fetches.keep(&r)
		return nil
	}
	return err
}

// coldReading is a fetch for a plan in the making.
type coldReading struct {
	e *Engine
	*cold
	items   []item
	start   uint64 // the topic's, of late
	bad     *damaged
	bytes   int
	reached bool // it is enough
}

// from reads the record seq and, if the plan needs them, those behind it. It reads without the
// topic's lock, as a diff does.
func (r *coldReading) from(seq uint64) error {
	p := plans.Get().(*plan)
	defer plans.Put(p)
	var tries replans
	for pos := seq - 1; r.e.stop.Err() == nil; {
		r.t.mu.Lock()
		mixed := r.t.Index.InMemory()
		r.start = r.t.Start
		if r.enough == nil {
			p.piece(r.t, pos, seq, 1)
		} else {
			p.piece(r.t, pos, r.t.Head, fetchAhead)
		}
		r.t.mu.Unlock()
		if len(p.ranges) == 0 {
			return nil
		}
		more := true
		err := p.read(r.e, r.t, func(rec *api.Record) bool {
			pos = rec.Seq
			more = r.take(item{rec.Seq, rec.TS, uint32(rec.Size()), !mixed || !p.inMemory(rec.Seq)})
			return more
		})
		if errors.As(err, &r.bad) {
			return nil // the plan decides what is lost
		}
		if ok, err := tries.again(r.e, r.t, pos+1, err); !ok {
			return err
		}
		if !more {
			return nil
		}
	}
	return nil
}

// take notes what a plan has to know of a record and reports whether it needs another.
func (r *coldReading) take(it item) bool {
	r.items = append(r.items, it)
	r.bytes += int(it.size)
	if r.enough == nil {
		return false
	}
	r.reached = r.reached || r.enough(it)
	return len(r.items) < maxFetched && !(r.reached && (len(r.items) >= fetchAhead || r.bytes >= fetchAheadBytes))
}

// keep keeps what was read until plans have no use for it.
func (s *fetches) keep(r *coldReading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.of[r.t]
	if got == nil || len(got.items)+len(r.items) > 2*maxFetched {
		got = &fetched{}
		s.of[r.t] = got
	}
	got.used = true
	got.items = slices.DeleteFunc(got.items, func(it item) bool { return it.seq <= r.start })
	got.items = append(got.items, r.items...)
	slices.SortFunc(got.items, func(a, b item) int { return cmp.Compare(a.seq, b.seq) })
	got.items = slices.CompactFunc(got.items, func(a, b item) bool { return a.seq == b.seq })
	if r.bad != nil {
		got.bad = append(got.bad, r.bad)
	}
}

// find appends to dst what was fetched of a live record and of some that follow, if it was. Where
// it was damaged, that is the error. The topic's lock is held.
func (s *fetches) find(t *entry, seq uint64, dst []item) ([]item, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.of[t]
	if got == nil {
		return dst, nil
	}
	for _, d := range got.bad {
		if d.from <= seq && seq <= d.to && d.stillAt(t) {
			return dst, d
		}
	}
	i, ok := slices.BinarySearchFunc(got.items, seq, func(it item, seq uint64) int { return cmp.Compare(it.seq, seq) })
	if !ok {
		return dst, nil
	}
	got.used = true
	return append(dst, got.items[i:min(len(got.items), i+fetchAhead)]...), nil
}

// rest drops what no plan has used since its last call, and topics of which nothing expires any more.
func (s *fetches) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, got := range s.of {
		if !got.used {
			delete(s.of, t)
		}
		got.used = false
	}
	for t, tried := range s.late {
		if time.Since(tried) > 10*expiryPeriod {
			delete(s.late, t)
		}
	}
}

// inMemory reports whether a number lies in no file.
func (p *plan) inMemory(seq uint64) bool {
	return slices.ContainsFunc(p.places, func(pl place) bool {
		return !pl.sealed && pl.ref.Segment == topic.InMemory && pl.ref.First <= seq && seq <= pl.ref.Last()
	})
}
