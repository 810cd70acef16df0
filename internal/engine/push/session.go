package push

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// session is one watch session: what was subscribed to, and how far it was sent.
type session struct {
	wid   string
	owner any
	opt   api.WatchOptions
	roams bool // its streams may also be elsewhere; see Resume
	kept  bool // the diary has it; set before anybody else knows the wid

	// Guarded by Room.mu.
	open int       // streams on it
	idle time.Time // since when open is 0

	mu     sync.Mutex // guards what follows; one per session, since every frame takes it
	topics []progress
	newest *Stream // whose position is the session's
}

// progress is how far a session has come in one topic. A client that does not
// say what it has continues after what was written. One that does may name a
// frame whose write has not returned here yet: it is believed up to what any of
// the session's streams was handed.
type progress struct {
	name            string
	handed, written position
	noted           position // what the diary has
	least, most     uint64   // least that its client may still give of this life, and most that it gave
	former          former
}

// position is a place in one life of a topic.
type position struct {
	life uint64 // the topic's number
	seq  uint64
}

// before reports whether p lies in front of q; a later life lies behind.
func (p position) before(q position) bool {
	return p.life < q.life || p.life == q.life && p.seq < q.seq
}

// former is what a client may still name of lives before the one that it was told of last. An
// id does not say of which life a number is, and what was written to a connection may be lost
// with it. The zero former is nothing.
type former struct {
	from, to uint64    // both included
	told     time.Time // when
}

// toldFor is how long after it was told a client is taken to know, if its connection lasts.
const toldFor = api.SessionTTLMS * time.Millisecond

func (f *former) any() bool { return !f.told.IsZero() }

// over forgets what was told long enough ago, and reports whether it was.
func (f *former) over() bool {
	if !f.any() || time.Since(f.told) <= toldFor {
		return false
	}
	*f = former{}
	return true
}

// start is where a stream begins; ok says that its client gave a position.
func (st *progress) start(given uint64, ok bool) position {
	at := st.written
	if !ok {
		return at
	}
	st.least, st.most = min(given, at.seq), given // frames of other topics have the latter until one of this
	most := st.handed
	if most.life != at.life {
		// The number may belong to either life. Announcing the new one
		// twice is better than never.
		most = at
	} else if f := &st.former; f.any() {
		if f.from <= given && given <= f.to || given > most.seq {
			*f = former{given, given, time.Now()} // the only one that is left
			return position{seq: given}
		}
		*f = former{}
	}
	at.seq = min(most.seq, given)
	return at
}

// hand notes that a client is about to get what ends at a position.
func (st *progress) hand(at position) {
	if !st.handed.before(at) {
		return
	}
	if was := st.handed; was.life != at.life {
		f := former{st.least, max(was.seq, st.most), time.Now()}
		if old := st.former; old.any() {
			f.from, f.to = min(f.from, old.from), max(f.to, old.to)
		}
		st.former, st.least, st.most = f, 0, 0
	}
	st.handed = at
}

// OpenSession makes a watch session for owner, who alone may open its streams.
// An unknown topic is 404 unless req.Lenient; too many sessions are 429.
func (r *Room) OpenSession(ctx context.Context, req *api.WatchRequest, owner any) (api.WatchResult, error) {
	res, err := r.Positions(ctx, req)
	if err != nil {
		return api.WatchResult{}, err
	}
	ss := &session{owner: owner, opt: req.WatchOptions, idle: time.Now()}
	for i := range res.Topics {
		p := &res.Topics[i]
		at := position{p.Life, p.FromSeq}
		ss.topics = append(ss.topics, progress{name: p.Topic, handed: at, written: at, noted: at, least: at.seq, most: at.seq})
		p.Life = 0
	}
	var random [16]byte
	rand.Read(random[:])
	ss.wid = "wid_" + base64.RawURLEncoding.EncodeToString(random[:])
	res.WID = ss.wid
	if err := r.enter(ss); err != nil {
		return api.WatchResult{}, err
	}
	// Only now: what the diary has and the room does not may be forgotten.
	r.note(ss)
	return res, nil
}

// enter takes a new session in.
func (r *Room) enter(ss *session) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	if limit := r.env.MaxSessions; limit > 0 && int64(len(r.sessions)) >= limit {
		return api.OverLimit("max_watch_sessions", limit)
	}
	r.sessions[ss.wid] = ss
	return nil
}

// Positions says where the topics of a watch begin, with the life of each. It counts as a
// read of them.
func (r *Room) Positions(ctx context.Context, req *api.WatchRequest) (api.WatchResult, error) {
	var res api.WatchResult
	for _, w := range req.Topics {
		p, err := r.resolve(ctx, w)
		if api.IsCode(err, api.CodeTopicNotFound) && req.Lenient {
			continue
		}
		if err != nil {
			return api.WatchResult{}, err
		}
		res.Topics = append(res.Topics, p)
	}
	return res, nil
}

func (r *Room) resolve(ctx context.Context, w api.WatchTopic) (api.WatchPosition, error) {
	t, err := r.env.Find(ctx, w.Topic)
	if err != nil {
		return api.WatchPosition{}, err
	}
	defer t.Unlock()
	is := t.State()
	p := api.WatchPosition{Topic: is.Name, FromSeq: w.FromSeq, HeadSeq: is.Head, EarliestSeq: t.Earliest(), Life: is.ID}
	if w.Tail {
		p.FromSeq = is.Head
	}
	return p, nil
}

// Resume makes a session that began elsewhere, unless it is here already: a relay reads it
// out of its wid. What its client says it has is believed, since another relay may have
// sent it.
func (r *Room) Resume(wid string, owner any, opt *api.WatchOptions, topics []api.WatchPosition) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[wid]; s != nil && !s.ended(time.Now()) {
		return nil
	}
	ss := &session{wid: wid, owner: owner, opt: *opt, idle: time.Now(), roams: true}
	for _, p := range topics {
		ss.topics = append(ss.topics, progress{name: p.Topic, handed: position{p.Life, api.NoSeq}, written: position{p.Life, p.FromSeq}})
	}
	r.expireLocked()
	if limit := r.env.MaxSessions; limit > 0 && int64(len(r.sessions)) >= limit && !r.forgetOneLocked() {
		return api.OverLimit("max_watch_sessions", limit)
	}
	r.sessions[wid] = ss
	return nil
}

// forgetOneLocked drops the session that has been without a stream for longest: its wid
// brings it back.
func (r *Room) forgetOneLocked() bool {
	var oldest *session
	for _, s := range r.sessions {
		if s.roams && s.open == 0 && (oldest == nil || s.idle.Before(oldest.idle)) {
			oldest = s
		}
	}
	if oldest == nil {
		return false
	}
	delete(r.sessions, oldest.wid)
	return true
}

// expireLocked forgets the sessions that had no stream for too long.
func (r *Room) expireLocked() {
	now := time.Now()
	maps.DeleteFunc(r.sessions, func(_ string, s *session) bool { return s.ended(now) })
}

// SessionOwner returns who made the session. The error is not_found for a
// session that does not exist.
func (r *Room) SessionOwner(wid string) (owner any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.findLocked(wid)
	if err != nil {
		return nil, err
	}
	return s.owner, nil
}

// findLocked returns a session, or the error for one that is not there or had
// no stream for too long.
func (r *Room) findLocked(wid string) (*session, error) {
	s := r.sessions[wid]
	if s == nil || s.ended(time.Now()) {
		return nil, api.Errorf(api.CodeNotFound, "there is no watch session %q; make a new one with POST /v0/watch", wid)
	}
	return s, nil
}

func (ss *session) ended(now time.Time) bool {
	return ss.open == 0 && now.Sub(ss.idle) > api.SessionTTLMS*time.Millisecond
}

// countSessions is the number of sessions that exist.
func (r *Room) countSessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked()
	return len(r.sessions)
}

// sseFrames and sseBytes bound what waits for the socket of an SSE stream
// (scheduler 7.1), wsFrames what waits for a WebSocket.
const (
	sseFrames = 1024
	sseBytes  = 4 << 20
	wsFrames  = 4
	wsBytes   = 4 << 20
)

// OpenStream opens a stream on a session. It begins behind what was written to
// the session's newest stream, or where lastEventID says, but never beyond what
// the session was handed. The error is not_found for a session that does not
// exist. The stream has to be closed.
func (r *Room) OpenStream(wid, lastEventID string) (*Stream, error) {
	back, _ := ParseID(lastEventID)
	r.mu.Lock()
	defer r.mu.Unlock()
	ss, err := r.findLocked(wid)
	if err != nil {
		return nil, err
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s, now := r.newStream(&ss.opt, api.SSE, newOutbox(&r.held, sseFrames, sseBytes)), time.Now()
	s.session = ss
	s.subs = make([]*sub, len(ss.topics))
	var rewound []Place
	for i := range ss.topics {
		st := &ss.topics[i]
		given, ok := back[st.name]
		unsure := st.former.any()
		at := st.start(given, ok)
		if unsure && !st.former.any() {
			rewound = append(rewound, ss.knows(i))
		}
		if st.written = at; at.before(st.noted) {
			// Else a restart could go on behind what is sent again now.
			st.noted = at
			rewound = append(rewound, Place{At: i, Life: at.life, Seq: at.seq})
			if st.former.any() {
				rewound = append(rewound, ss.mayName(i))
			}
		}
		w := &sub{s: s, name: st.name, life: at.life, pos: at.seq, sent: at.seq, at: i, first: true, since: now, owes: true, opt: s.opt}
		s.subs[i] = w
		s.pulls = append(s.pulls, w)
	}
	if ss.open++; ss.kept && (ss.open == 1 || len(rewound) > 0) {
		r.env.Diary.Moved(wid, true, rewound)
	}
	ss.newest = s
	s.wake()
	return s, nil
}

// leaveSession gives the session back its idle time.
func (s *Stream) leaveSession() {
	if s.session == nil {
		return
	}
	r, ss := s.room, s.session
	r.mu.Lock()
	defer r.mu.Unlock()
	if ss.open--; ss.open == 0 {
		ss.idle = time.Now()
		ss.mu.Lock()
		defer ss.mu.Unlock()
		ss.newest = nil
		if ss.kept {
			r.env.Diary.Moved(ss.wid, false, ss.moved())
		}
	}
}
