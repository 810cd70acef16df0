package weir

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/backend"
)

// The types that the library and its backends share.
type (
	// Message is what a Producer publishes: its Data, and, if wanted, Headers, a Priority,
	// a FairKey, a Deadline, a Delay or NotBefore, MaxDeliveries, a Timeout and an
	// IdempotencyKey.
	Message = backend.Message
	// Delivery is one handing of a message to a handler: its Data, Headers, ID and Attempt,
	// which is 1 at first, when it was Enqueued and its Deadline.
	Delivery = backend.Delivery
	// Priority is the tier of a message.
	Priority = backend.Priority
	// DeadLetter is a message that was moved aside: its Data and Headers, the Reason, the
	// last Error, the Attempts, and where it came from.
	DeadLetter = backend.DeadLetter
)

// The six tiers, the most important first; Normal is the zero value.
const (
	Critical   = backend.Critical
	High       = backend.High
	Normal     = backend.Normal
	Low        = backend.Low
	Bulk       = backend.Bulk
	Background = backend.Background
)

// Stream is a stream or queue on any backend, and one group on it, as open.URL and New
// return it. It is safe for concurrent use. End its Producers and Pools before you close it.
type Stream struct {
	backend backend.Backend
	info    backend.Info
	signals *signals  // the last reading, shared by all producers of this stream
	window  *window   // the requests of all its producers
	leave   []func()  // what it shares with other streams
	stages  *stageLog // log lines that they write at most once a second
	pools   struct {
		sync.Mutex
		closed bool
		run    map[*Pool]struct{}
	}
	budgets struct {
		sync.Mutex
		closed bool
		of     map[string]*signals // readings of producers with a budget, by its name
	}
}

// New returns the stream of b. Closing the stream closes b. It panics if b is nil.
func New(b backend.Backend) *Stream {
	if b == nil {
		panic("weir: New: the backend is nil")
	}
	info := b.Info()
	s := &Stream{
		backend: b, info: info,
		signals: &signals{backend: b, sent: new(atomic.Int64)}, stages: &stageLog{stream: info.Stream},
	}
	p, ok := b.(backend.Locator)
	if !ok {
		s.window, s.signals.control = newWindow(), newController()
		return s
	}
	var leaveWindow, leaveControl func()
	s.window, leaveWindow = windows.join(p.Place())
	s.signals.control, leaveControl = controllers.join(p.Place() + " " + info.Group)
	s.leave = []func(){leaveWindow, leaveControl}
	return s
}

// Info describes the stream and its backend. It contains no secrets.
func (s *Stream) Info() backend.Info { return s.info }

// Backend returns the backend, for what only that kind of backend can do.
func (s *Stream) Backend() backend.Backend { return s.backend }

// Pause stops all pools of the stream's group, in every process, from taking messages:
// to repair what the handlers depend on, say. Handlers that run finish, what they hold is
// extended and acknowledged as ever, and publishing goes on; messages whose worker has
// died wait, too. At the return no pool on the embedded engine or a weir server is given
// anything any more; on Redis it takes the others up to a second.
//
// It lasts until Resume, whoever restarts in the meantime. The wait of messages grows, and
// Pressure and producers' limits on the backlog see that; but a pause is not taken for
// workers that are too slow: neither GuardAdaptive nor a queue with a wait_slo_ms refuses
// anything because of it. Paused of a Pressure tells.
//
// A stream that does not exist yet can be paused, too. The error is ErrUnsupported on
// Kafka, whose groups cannot be paused. On a weir server the key needs the scope admin.
func (s *Stream) Pause(ctx context.Context) error { return s.setPaused(ctx, "pause", true) }

// Resume ends a Pause. It is no error if there is none.
func (s *Stream) Resume(ctx context.Context) error { return s.setPaused(ctx, "resume", false) }

func (s *Stream) setPaused(ctx context.Context, what string, paused bool) error {
	b, ok := s.backend.(backend.Pauser)
	if !ok {
		return fmt.Errorf("weir: %s of a %s stream: %w", what, s.info.Kind, ErrUnsupported)
	}
	return b.Pause(ctx, paused)
}

// join ends p when the stream is closed, now if it is already, until the pool leaves.
func (s *Stream) join(p *Pool) (leave func()) {
	s.pools.Lock()
	defer s.pools.Unlock()
	if s.pools.closed {
		p.fail(fmt.Errorf("stream %q: %w", s.info.Stream, ErrClosed))
		return func() {}
	}
	if s.pools.run == nil {
		s.pools.run = map[*Pool]struct{}{}
	}
	s.pools.run[p] = struct{}{}
	return func() {
		s.pools.Lock()
		defer s.pools.Unlock()
		delete(s.pools.run, p)
	}
}

// endPools lets no pool begin a handler any more, whose message nobody could acknowledge.
func (s *Stream) endPools() {
	s.pools.Lock()
	defer s.pools.Unlock()
	s.pools.closed = true
	for p := range s.pools.run {
		p.fail(fmt.Errorf("stream %q: %w", s.info.Stream, ErrClosed))
	}
}

// Close closes the backend. Its pools begin no handler any more, and what they still run
// cannot be acknowledged. It does not wait for Producers and Pools. What is called
// afterwards ends with ErrClosed; Close may be called more than once.
func (s *Stream) Close() error {
	s.endPools()
	s.budgets.Lock()
	defer s.budgets.Unlock()
	s.budgets.closed = true
	for _, leave := range s.leave {
		leave()
	}
	return s.backend.Close()
}
