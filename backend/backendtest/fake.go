package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

// FakeOptions configures a Fake. The zero value of a field is its default.
type FakeOptions struct {
	Kind   string // "fake"
	Stream string // "jobs"
	Group  string // "weir"

	Gathering backend.Gathering
}

// Fake is an in-memory backend that can be told to misbehave. It waits only on channels and
// timers, so it works under testing/synctest if created within the bubble. It is as lazy as a
// backend may be: a waiting claim wakes for a new message, not for an orphan or a message that
// was given back.
type Fake struct {
	*fakeStream
	info   backend.Info
	closed chan struct{}

	mu     sync.Mutex
	once   sync.Once
	faults map[Op][]*injected
	calls  map[Op]int
	active map[Op]int
}

var (
	_ backend.Backend     = (*Fake)(nil)
	_ backend.Signaler    = (*Fake)(nil)
	_ backend.Delayer     = (*Fake)(nil)
	_ backend.Gatherer    = (*Fake)(nil)
	_ backend.Reader      = (*Fake)(nil)
	_ backend.DeadLetters = (*Fake)(nil)
	_ backend.Trimmer     = (*Fake)(nil)
	_ backend.Pauser      = (*Fake)(nil)
)

// NewFake creates an empty stream and returns a handle on it.
func NewFake(o FakeOptions) *Fake {
	info := backend.Info{Kind: o.Kind, Stream: o.Stream, Group: o.Group, Durability: "ephemeral", Server: "fake"}
	for field, value := range map[*string]string{&info.Kind: "fake", &info.Stream: "jobs", &info.Group: "weir"} {
		if *field == "" {
			*field = value
		}
	}
	info.DeadLetter = info.Stream + ".dlq"
	return newHandle(info, &fakeStream{
		wake: make(chan struct{}), pending: map[string]*fakePending{}, keys: map[string]string{},
		workers: map[string]bool{}, letters: map[string][]backend.DeadLetter{}, gathering: o.Gathering,
	})
}

func newHandle(info backend.Info, s *fakeStream) *Fake {
	return &Fake{
		fakeStream: s, info: info, closed: make(chan struct{}),
		faults: map[Op][]*injected{}, calls: map[Op]int{}, active: map[Op]int{},
	}
}

// Again returns another handle on the same stream, as another process would have, with
// its own faults and its own Close.
func (f *Fake) Again() *Fake { return newHandle(f.info, f.fakeStream) }

// Info describes the fake.
func (f *Fake) Info() backend.Info { return f.info }

// Close ends the calls of this handle with ErrClosed.
func (f *Fake) Close() error {
	f.once.Do(func() { close(f.closed) })
	return nil
}

// fakeStream is one stream with its group and its dead letters.
type fakeStream struct {
	state sync.Mutex // never held while something waits

	wake      chan struct{} // closed and replaced when a message is appended
	entries   []*fakeEntry  // by number; trimmed ones are gone from the front
	later     []*fakeLater  // not due yet, in the order of their times
	laterID   int
	next      int // number of the next entry
	delivered int // number of the last entry that was handed out
	pending   map[string]*fakePending
	keys      map[string]string // idempotency key → ID
	workers   map[string]bool   // consumers that have claimed
	letters   map[string][]backend.DeadLetter
	letterID  int
	acked     []string

	signal     *int64 // what the workers published
	signalEnds time.Time
	gathering  backend.Gathering
	lagUnknown bool
	paused     bool
	pretended  *backend.Signal
}

// fakeEntry is a stored message.
type fakeEntry struct {
	number int
	id     string
	data   []byte
	header map[string]string
	at     time.Time
}

// fakeLater is a stored message that becomes an entry when it is due.
type fakeLater struct {
	due   time.Time
	entry *fakeEntry
}

// fakePending is a message that was handed out and is not finished.
type fakePending struct {
	entry    *fakeEntry
	consumer string
	attempt  int
	free     time.Time // when anyone may claim it
	err      string
}

// Gathering is what the options say.
func (f *Fake) Gathering() backend.Gathering { return f.gathering }

// Delays says that messages are kept back until they are due.
func (f *Fake) Delays() bool { return true }

// Append stores messages in order.
func (f *Fake) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	var results []backend.Appended
	err := f.call(ctx, OpAppend, func(in *injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		results = make([]backend.Appended, len(msgs))
		for i, m := range msgs {
			if in.Err != nil && i >= in.Stored {
				results[i].Err = in.Err
				continue
			}
			if results[i] = f.append(m); results[i].Err != nil {
				return results[i].Err
			}
		}
		return in.Err
	})
	if errors.Is(err, backend.ErrOutcomeUnknown) {
		results = nil
	}
	return results, err
}

func (s *fakeStream) append(m backend.Message) backend.Appended {
	delay, err := m.DueIn(time.Now())
	if err != nil {
		return backend.Appended{Err: fmt.Errorf("fake: %w", err)}
	}
	if id, known := s.keys[m.IdempotencyKey]; known && m.IdempotencyKey != "" {
		return backend.Appended{ID: id, Deduped: true}
	}
	header := maps.Clone(m.Headers)
	set := func(name, value string) {
		if header == nil {
			header = map[string]string{}
		}
		header[name] = value
	}
	if m.Priority != backend.Normal {
		set(backend.HeaderPriority, m.Priority.String())
	}
	if m.FairKey != "" {
		set(backend.HeaderFairKey, m.FairKey)
	}
	if !m.Deadline.IsZero() {
		set(backend.HeaderDeadline, backend.FormatDeadline(m.Deadline))
	}
	e := &fakeEntry{data: bytes.Clone(m.Data), header: header, at: time.Now()}
	id := ""
	if delay > 0 {
		id = s.keepBack(e, e.at.Add(delay))
	} else {
		id = s.enter(e)
	}
	if m.IdempotencyKey != "" {
		s.keys[m.IdempotencyKey] = id
	}
	return backend.Appended{ID: id}
}

// enter makes e the newest entry.
func (s *fakeStream) enter(e *fakeEntry) (id string) {
	s.next++
	e.number, e.id = s.next, strconv.Itoa(s.next)
	s.entries = append(s.entries, e)
	close(s.wake)
	s.wake = make(chan struct{})
	return e.id
}

// keepBack keeps e until it is due. Its name until then is not that of an entry.
func (s *fakeStream) keepBack(e *fakeEntry, due time.Time) (id string) {
	s.laterID++
	at, _ := slices.BinarySearchFunc(s.later, due, func(l *fakeLater, due time.Time) int {
		if l.due.After(due) {
			return 1
		}
		return -1
	})
	s.later = slices.Insert(s.later, at, &fakeLater{due, e})
	time.AfterFunc(time.Until(due), func() {
		s.state.Lock()
		defer s.state.Unlock()
		s.release(time.Now())
	})
	return fmt.Sprintf("later-%d", s.laterID)
}

// release makes entries of what is due. They are published then, as far as ages go.
func (s *fakeStream) release(now time.Time) {
	for len(s.later) > 0 && !s.later[0].due.After(now) {
		l := s.later[0]
		s.later = s.later[1:]
		l.entry.at = l.due
		s.enter(l.entry)
	}
}

// Claim hands out orphans first, then new messages.
func (f *Fake) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if req.Consumer == "" || req.Max < 1 || req.ReclaimAfter <= 0 {
		return backend.Claimed{}, fmt.Errorf("fake: claim needs Consumer, Max and ReclaimAfter, got %+v", req)
	}
	end := time.NewTimer(req.Block)
	defer end.Stop()
	var got backend.Claimed
	var wake <-chan struct{}
	// Only the first look is a call that a fault can hit; the others are the same call's wait.
	err := f.call(ctx, OpClaim, func(in *injected) error {
		for {
			got, wake = f.claim(req, in.Repeat)
			if len(got.Deliveries)+len(got.Dead)+len(got.Lost) > 0 || req.Block <= 0 {
				return nil
			}
			select {
			case <-wake:
			case <-end.C:
				return nil
			case <-req.Enough:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			case <-f.closed:
				return backend.ErrClosed
			}
		}
	})
	if err != nil {
		return backend.Claimed{}, err // what a lost answer held becomes an orphan
	}
	return got, nil
}

// claim takes what there is now; wake ends when there may be more.
func (f *Fake) claim(req backend.ClaimRequest, repeat bool) (got backend.Claimed, wake <-chan struct{}) {
	f.state.Lock()
	defer f.state.Unlock()
	now := time.Now()
	f.release(now)
	f.workers[req.Consumer] = true
	if f.paused {
		return got, f.wake
	}
	for _, p := range f.held() {
		if len(got.Deliveries) == req.Max {
			return got, f.wake
		}
		if !repeat && p.free.After(now) {
			continue
		}
		switch {
		case f.find(p.entry.id) == nil:
			got.Lost = append(got.Lost, p.entry.id)
			delete(f.pending, p.entry.id)
		case req.MaxDeliveries > 0 && p.attempt >= req.MaxDeliveries:
			cause := backend.Cause{Reason: backend.ReasonMaxDeliveries, Error: p.err}
			got.Dead = append(got.Dead, f.bury(p, f.target(req.DeadLetter), cause, now))
		default:
			got.Deliveries = append(got.Deliveries, p.hand(req, now))
			got.Reclaimed++
		}
	}
	for _, e := range f.entries {
		if len(got.Deliveries) == req.Max {
			break
		}
		if e.number > f.delivered {
			f.delivered = e.number
			p := &fakePending{entry: e}
			f.pending[e.id] = p
			got.Deliveries = append(got.Deliveries, p.hand(req, now))
		}
	}
	return got, f.wake
}

// Pause pauses the group or resumes it.
func (f *Fake) Pause(ctx context.Context, paused bool) error {
	return f.call(ctx, OpPause, func(*injected) error {
		f.state.Lock()
		defer f.state.Unlock()
		f.paused = paused
		close(f.wake)
		f.wake = make(chan struct{})
		return nil
	})
}

// held returns what is pending, oldest message first.
func (s *fakeStream) held() []*fakePending {
	return slices.SortedFunc(maps.Values(s.pending), func(a, b *fakePending) int { return a.entry.number - b.entry.number })
}

func (s *fakeStream) find(id string) *fakeEntry {
	for _, e := range s.entries {
		if e.id == id {
			return e
		}
	}
	return nil
}

// hand gives p to the claimer.
func (p *fakePending) hand(req backend.ClaimRequest, now time.Time) *backend.Delivery {
	p.consumer, p.free = req.Consumer, now.Add(req.ReclaimAfter)
	p.attempt++
	return &backend.Delivery{
		Lease: backend.Lease{ID: p.entry.id, Token: p.token(), Consumer: p.consumer, Attempt: p.attempt, Since: now},
		Data:  bytes.Clone(p.entry.data), Headers: maps.Clone(p.entry.header), Enqueued: p.entry.at,
		Deadline: backend.DeadlineOf(p.entry.header),
	}
}

// token is the fence: it changes with each delivery.
func (p *fakePending) token() string { return fmt.Sprintf("%s/%d", p.consumer, p.attempt) }

func (f *Fake) target(to string) string {
	if to == "" {
		return f.info.DeadLetter
	}
	return to
}
