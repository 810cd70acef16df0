// Package shard makes one stream of several, its shards: publishing spreads over them, a
// claim takes from all, a reading is their sum. Guards, pools and everything else built
// on the seam see one backend.
//
// The shards may be of any kind, all of the same. How many there are is recorded with
// the first one; it can grow while producers and pools run, who follow within a second.
// It never shrinks.
//
// IDs are those of the shards with the shard's number in front: "2:1700000000000-0".
package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/backend"
)

// Most is the highest number of shards.
const Most = 64

const (
	// pollEvery is how often the recorded number of shards and those that do not answer
	// are looked at.
	pollEvery = 500 * time.Millisecond
	// ripens is how long producers leave a shard alone that was added while they run, so
	// that every pool claims from it by then.
	ripens = time.Second
	// callTimeout bounds what the backend asks on its own.
	callTimeout = 5 * time.Second
)

// Options are the parameters of Open. All are required.
type Options struct {
	Name   string // of the stream as a whole
	Shards int    // how many there are to be at least; the first append or claim records it
	// Open opens a shard, of which there are numbers from 0.
	Open func(ctx context.Context, number int) (backend.Backend, error)
}

// Stream is a backend of several. It implements Signaler, Tallier, DeadLetters, Locator,
// Doctor and DeadLetterNames, whatever the shards do: those without findings or rules for names
// have none.
type Stream struct {
	opt      Options
	info     backend.Info
	producer string              // names this handle where room is shared
	keeper   backend.ShardKeeper // the first shard; nil: the number stays as it is

	parts    atomic.Pointer[[]*part] // only grows
	first    atomic.Int64            // how many shards keys are spread over
	recorded atomic.Bool             // there are as many as Options asks for
	start    atomic.Uint64           // where the next claim begins

	grow   sync.Mutex    // held while shards are opened
	mu     sync.Mutex    // guards change
	change chan struct{} // closed and replaced when there are more shards

	life   context.Context // ends with Close
	end    context.CancelFunc
	loops  sync.WaitGroup
	closed atomic.Bool
}

var (
	_ backend.Backend         = (*Stream)(nil)
	_ backend.Delayer         = (*Stream)(nil)
	_ backend.Signaler        = (*Stream)(nil)
	_ backend.DeadLetters     = (*Stream)(nil)
	_ backend.Tallier         = (*Stream)(nil)
	_ backend.Locator         = (*Stream)(nil)
	_ backend.Doctor          = (*Stream)(nil)
	_ backend.DeadLetterNames = (*Stream)(nil)
	_ backend.Pauser          = (*Stream)(nil)
)

// part is one shard.
type part struct {
	backend.Backend
	number   int
	prefix   string       // of its IDs here
	ripe     atomic.Int64 // from when on producers use it, ns since began
	waiting  atomic.Int64 // messages nobody has claimed: by the last reading, and appended since
	down     atomic.Pointer[outage]
	lacks    atomic.Pointer[outage] // what went wrong with the last claim that it answered
	doubtful doubtful
}

// outage is why a shard does not answer.
type outage struct{ err error }

// Open opens the shards of a stream: as many as are recorded, or as Options asks for if
// that is more. Shards that are not recorded yet are by the first Append or Claim.
func Open(ctx context.Context, opt Options) (backend.Backend, error) {
	if opt.Shards < 1 || opt.Shards > Most {
		return nil, &backend.URLError{Err: fmt.Errorf("shards=%d is not 1 to %d", opt.Shards, Most)}
	}
	s := &Stream{opt: opt, producer: rand.Text(), change: make(chan struct{})}
	s.life, s.end = context.WithCancel(context.Background())
	s.parts.Store(&[]*part{})
	if err := s.openTo(ctx, 1, time.Unix(0, 0)); err != nil {
		return nil, err
	}
	zero := s.all()[0]
	s.keeper, _ = zero.Backend.(backend.ShardKeeper)
	s.info = zero.Info()
	s.info.Stream = opt.Name
	s.info.DeadLetter = strings.Replace(s.info.DeadLetter, opt.Name+".0", opt.Name, 1)
	now, err := s.look(ctx)
	if err == nil {
		err = s.openTo(ctx, max(now, opt.Shards), time.Unix(0, 0))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.loops.Go(s.follow)
	if _, ok := zero.Backend.(server); ok {
		return &onServer{s}, nil
	}
	return s, nil
}

// look reads how many shards are recorded, 0 if that is not known.
func (s *Stream) look(ctx context.Context) (now int, err error) {
	if s.keeper == nil {
		s.first.Store(int64(s.opt.Shards))
		s.recorded.Store(true)
		return s.opt.Shards, nil
	}
	found, err := s.keeper.Shards(ctx, 0)
	switch {
	case backend.Retryable(err) && ctx.Err() == nil:
		return 0, nil // the first append or claim reports it
	case err != nil:
		return 0, err
	}
	if found.Now >= s.opt.Shards {
		s.first.Store(int64(found.First))
		s.recorded.Store(true)
	}
	return found.Now, nil
}

// ensure records how many shards there are to be, before the first append or claim.
func (s *Stream) ensure(ctx context.Context) error {
	if s.recorded.Load() {
		return nil
	}
	before, err := s.keeper.Shards(ctx, 0)
	if err != nil {
		return fmt.Errorf("shards of %q: %w", s.opt.Name, err)
	}
	grows := before.Now > 0 && before.Now < s.opt.Shards
	if grows {
		if err := s.pauseLike(ctx, before.Now); err != nil {
			return err
		}
	}
	found, err := s.keeper.Shards(ctx, s.opt.Shards)
	if err != nil {
		return fmt.Errorf("shards of %q: %w", s.opt.Name, err)
	}
	if err := s.openTo(ctx, found.Now, time.Now().Add(ripens)); err != nil {
		return err
	}
	if grows { // a pause that began or ended meanwhile may not know of them
		if err := s.pauseLike(ctx, before.Now); err != nil {
			return err
		}
	}
	if before.Now > 0 { // others use the stream, and have to see first that it has grown
		for _, p := range s.all()[min(before.Now, found.Now):] {
			p.ripe.Store(int64(time.Since(began) + ripens))
		}
	}
	s.first.Store(int64(found.First))
	s.recorded.Store(true)
	return nil
}

// began is when the process began: what counts from it is not moved by a step of the clock.
var began = time.Now()

// openTo opens shards until there are n. Producers use them from ripe on.
func (s *Stream) openTo(ctx context.Context, n int, ripe time.Time) error {
	s.grow.Lock()
	defer s.grow.Unlock()
	have := s.all()
	if n <= len(have) {
		return nil
	}
	if s.closed.Load() {
		return backend.ErrClosed
	}
	more, errs := fan(make([]struct{}, n-len(have)), func(i int, _ struct{}) (*part, error) {
		number := len(have) + i
		b, err := s.opt.Open(ctx, number)
		return &part{Backend: b, number: number, prefix: strconv.Itoa(number) + ":"}, err
	})
	if err := errors.Join(errs...); err != nil {
		for i, p := range more {
			if errs[i] == nil {
				err = errors.Join(err, p.Close())
			}
		}
		return err
	}
	for _, p := range more {
		p.ripe.Store(int64(ripe.Sub(began)))
		p.waiting.Store(leastWaiting(have))
	}
	all := append(have[:len(have):len(have)], more...)
	s.parts.Store(&all)
	s.mu.Lock()
	close(s.change)
	s.change = make(chan struct{})
	s.mu.Unlock()
	return nil
}

// all are the shards there are now.
func (s *Stream) all() []*part { return *s.parts.Load() }

// changed is closed when there are more shards than now.
func (s *Stream) changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change
}

// follow opens shards that others have added, and looks after those that are down.
func (s *Stream) follow() {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.life.Done():
			return
		}
		ctx, cancel := context.WithTimeout(s.life, callTimeout)
		s.poll(ctx)
		cancel()
	}
}

func (s *Stream) poll(ctx context.Context) {
	all := s.all()
	fan(all, func(_ int, p *part) (struct{}, error) {
		if p.down.Load() != nil {
			if _, err := p.Stats(ctx); !backend.Retryable(err) {
				p.down.Store(nil)
			}
		}
		return struct{}{}, nil
	})
	if s.keeper == nil || all[0].down.Load() != nil {
		return
	}
	least := 0
	if s.recorded.Load() {
		least = len(all) // the server may have lost what it knew
	}
	if found, err := s.keeper.Shards(ctx, least); err == nil && found.Now > 0 {
		if s.openTo(ctx, found.Now, time.Now().Add(ripens)) != nil {
			return // tried again the next time
		}
		if s.recorded.Load() { // there is none of these that is not open
			s.first.Store(int64(found.First))
		}
	}
}

// failed notes that a call to a shard went wrong, which began then. A shard that is not there
// is left alone until it answers again. A caller who is gone says nothing about it, and one
// whose time was over only if that was long.
func (p *part) failed(ctx context.Context, began time.Time, err error) {
	gone := ctx.Err() != nil && !(errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(began) >= overdue)
	if !gone && (errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)) {
		p.down.CompareAndSwap(nil, &outage{err})
	}
}

// named is an error of a shard with the name of its stream; nil stays nil.
func (p *part) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", p.Info().Stream, err)
}

// up returns the shards that answer; all of them if none does.
func up(all []*part) []*part {
	var answering []*part
	for _, p := range all {
		if p.down.Load() == nil {
			answering = append(answering, p)
		}
	}
	if len(answering) == 0 {
		return all
	}
	return answering
}

// Info describes the stream as a whole.
func (s *Stream) Info() backend.Info { return s.info }

// Place names the place of the first shard, and that it is one of several.
func (s *Stream) Place() string {
	if b, ok := s.all()[0].Backend.(backend.Locator); ok {
		return "shards of " + b.Place()
	}
	return fmt.Sprintf("shards %p", s)
}

// Close closes all shards.
func (s *Stream) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.end()
	s.loops.Wait()
	s.grow.Lock()
	defer s.grow.Unlock()
	_, errs := fan(s.all(), func(_ int, p *part) (struct{}, error) { return struct{}{}, p.Close() })
	return errors.Join(errs...)
}

// split returns the shard of an ID and what the ID is there; nil if it is not one of
// this stream's.
func (s *Stream) split(id string) (p *part, own string) {
	number, own, found := strings.Cut(id, ":")
	n, err := strconv.Atoi(number)
	if all := s.all(); found && err == nil && n >= 0 && n < len(all) {
		return all[n], own
	}
	return nil, ""
}

// fan calls do for all items at the same time.
func fan[T, R any](items []T, do func(int, T) (R, error)) ([]R, []error) {
	results, errs := make([]R, len(items)), make([]error, len(items))
	if len(items) == 1 {
		results[0], errs[0] = do(0, items[0])
		return results, errs
	}
	var all sync.WaitGroup
	for i, item := range items {
		all.Go(func() { results[i], errs[i] = do(i, item) })
	}
	all.Wait()
	return results, errs
}

// firstOf is the first error there is.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
