// Package push is the streams of a server: the sessions that they belong to,
// what each has been sent, and the visits that bring them what is committed.
// Which topic is visited when is not its business, nor how a topic is stored: it
// is given Env and, with each topic, a Source.
//
// Locks: topic → its watchers → stream; sessions → session.
package push

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Env is what the streams need of the engine.
type Env struct {
	// Find returns a topic with its lock held, up to date with its sources. It
	// counts as a read.
	Find func(ctx context.Context, name string) (*Topic, error)
	// Sync makes durable what has been published so far.
	Sync func() error
	// DrainTimeMS estimates for how long pushes are paced.
	DrainTimeMS func() int64
	// Guard is deferred by each method of Stream: it ends the process after a panic.
	Guard func()
	// Diary notes the sessions so that they outlive a restart; nil: nothing does.
	Diary Diary

	MaxTopics   int   // that one socket may watch
	MaxSessions int64 // 0 is no limit
	MaxHeld     int64 // bytes of all frames that wait for sockets; 0 is no limit
}

// A Diary notes what becomes of sessions. What it cannot note a restart will not
// know.
type Diary interface {
	// Began notes a session that has no stream yet, and waits until that is written.
	Began(s *Kept) error
	// Moved notes that a session has a stream, or none any more, and where it stands
	// in the topics that have moved since. It never waits: locks of sessions are held.
	Moved(wid string, streams bool, to []Place)
	// Ended notes that sessions end before their time. It never waits.
	Ended(wids []string)
}

// Kept is what is noted of a session.
type Kept struct {
	WID    string
	Owner  any
	Opt    *api.WatchOptions
	Places []Place // all topics of the session, ascending by name
	// Idle is for how long it has had no stream. Only for Revive.
	Idle time.Duration
}

// Place is how far a session has come in one topic.
type Place struct {
	At     int    // its index in the session; see op.WatchMove for one beyond
	Topic  string // only in Kept
	Life   uint64 // State.ID of the topic
	Seq    uint64
	Handed uint64 // most that a client can have got of this life. Only for Revive
	// Again says that a client may not have been told yet that this is its life, and may name From
	// to To of the one before. Only for Revive.
	Again    bool
	From, To uint64
}

// Room is the streams of one engine.
type Room struct {
	env Env

	mu       sync.Mutex // guards sessions, and open and idle of each
	sessions map[string]*session

	held held

	lagged, laggedTotal, dropped atomic.Int64
}

// Init makes the zero Room usable.
func (r *Room) Init(env Env) {
	r.env, r.sessions = env, make(map[string]*session)
	r.held.most = env.MaxHeld
}

// Counts are the numbers of a Room.
type Counts struct {
	Sessions            int
	Lagged, LaggedTotal int64 // streams behind their outbox: now, and ever
	DroppedSlow         int64 // streams closed because nothing could be written
}

// Counts returns the current numbers.
func (r *Room) Counts() Counts {
	return Counts{Sessions: r.countSessions(), Lagged: r.lagged.Load(), LaggedTotal: r.laggedTotal.Load(), DroppedSlow: r.dropped.Load()}
}

// DroppedSlow counts a stream that was closed because nothing could be written.
func (r *Room) DroppedSlow() { r.dropped.Add(1) }

// A Source is one life of a topic, as far as its streams look at it.
type Source interface {
	sync.Locker
	// State is what the topic shows. Its lock is held.
	State() State
	// Earliest is the first live number. Its lock is held.
	Earliest() uint64
	// Read reads one frame's worth behind the cursor. The topic's lock is held,
	// and released. ErrLater means that the stream has to wait for Topic.Again.
	Read(ctx context.Context, cursor uint64, r *Reading) error
}

// State is what a topic shows of itself.
type State struct {
	Name   string
	ID     uint64 // of this life
	Head   uint64
	Synced bool // whatever is visible is synced
	Gone   bool // it has left the registry
	Mirror bool // somebody may have been told of more, so a stream reads before it goes live
	More   bool // there is more than Head, which a mirror does not have yet
}

// Reading is one frame's worth of records on its way from a topic: how they are
// read, and what came of it.
type Reading struct {
	Opt   *api.WatchOptions
	Style api.FrameStyle
	Most  int64  // bytes of data and meta; at least one record goes
	UpTo  uint64 // no record behind it
	Visit bool   // for a visit, which must not wait: a relay fetches nothing
	// Backlog is set up to the head that the connection has found: a relay fetches all of that.
	Backlog bool
	// Since is when the stream subscribed to the topic: what a relay had read before does not do for it.
	Since time.Time

	Body []byte         // what is read is appended
	Tomb *api.Tombstone // of what the cursor had lost
	N    int            // records
	From uint64         // cursor in front of the records
	Next uint64         // cursor behind what was examined
	Head uint64
}

// ErrLater is the error of a Source that cannot be read now.
var ErrLater = errors.New("the topic cannot be read now")

// Topic is what push keeps of a topic: the subs of open streams. Source is set
// before Find first returns it.
type Topic struct {
	Source
	n     atomic.Int32
	turns atomic.Int32 // calls of Ended and Again
	mu    sync.Mutex
	subs  []*sub
}

// Watched reports whether any stream watches the topic. No lock is needed.
func (t *Topic) Watched() bool { return t.n.Load() > 0 }

// Ended lets the streams find that the topic has ended. Its lock is held.
func (t *Topic) Ended() {
	t.turns.Add(1)
	for _, w := range t.list(nil) {
		s := w.s
		s.mu.Lock()
		if w.live || w.waits {
			w.live, w.waits = false, false
			s.enqueue(w)
		}
		s.mu.Unlock()
		s.wake()
	}
}

// Again lets the streams that met ErrLater read again.
func (t *Topic) Again() {
	t.turns.Add(1)
	for _, w := range t.list(nil) {
		s := w.s
		s.mu.Lock()
		if w.waits {
			w.waits = false
			s.enqueue(w)
		}
		s.mu.Unlock()
		s.wake()
	}
}

// Advise tells the streams that pushes of the topic are paced.
func (t *Topic) Advise(now time.Time) {
	for _, w := range t.list(nil) {
		w.advise(now)
	}
}

// advise notes that the pushes of a topic are paced; the client is told at most
// once in 10 s.
func (w *sub) advise(now time.Time) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended || now.Sub(w.adviceAt) < adviceEvery {
		return
	}
	w.adviceAt = now
	s.advice = append(s.advice, w.name)
	s.wake()
}

const adviceEvery = 10 * time.Second

func (t *Topic) add(w *sub) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.slot = len(t.subs)
	t.subs = append(t.subs, w)
	t.n.Store(int32(len(t.subs)))
}

func (t *Topic) remove(w *sub) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.subs) - 1
	if w.slot > last || t.subs[w.slot] != w {
		return
	}
	t.subs[w.slot] = t.subs[last]
	t.subs[w.slot].slot = w.slot
	t.subs[last] = nil
	t.subs = t.subs[:last]
	t.n.Store(int32(last))
	if last == 0 {
		t.subs = nil
	}
}

// list appends the subs to dst.
func (t *Topic) list(dst []*sub) []*sub {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(dst, t.subs...)
}
