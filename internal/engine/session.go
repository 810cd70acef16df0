package engine

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/watch"
)

// sessions are the watch sessions: what was subscribed to, and how far it was
// sent. They live in memory only.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*session
}

// session is one watch session. Its fields are guarded by sessions.mu.
type session struct {
	wid    string
	owner  any
	opt    api.WatchOptions
	topics []standing
	open   int       // streams on it
	idle   time.Time // since when open is 0
	newest *Stream   // whose position is the session's
}

// standing is a position in one life of a topic.
type standing struct {
	name string
	life uint64 // the topic's number
	pos  uint64
}

// OpenSession makes a watch session for owner, who alone may open its streams.
// An unknown topic is 404 unless req.Lenient; too many sessions are 429.
func (e *Engine) OpenSession(req *api.WatchRequest, owner any) (api.WatchResult, error) {
	if err := e.usable(); err != nil {
		return api.WatchResult{}, err
	}
	ss := &session{owner: owner, opt: req.WatchOptions, idle: time.Now()}
	var res api.WatchResult
	for _, w := range req.Topics {
		p, life, err := e.resolve(e.stop, w)
		if api.IsCode(err, api.CodeTopicNotFound) && req.Lenient {
			continue
		}
		if err != nil {
			return api.WatchResult{}, err
		}
		res.Topics = append(res.Topics, p)
		ss.topics = append(ss.topics, standing{name: p.Topic, life: life, pos: p.FromSeq})
	}
	var random [16]byte
	rand.Read(random[:])
	ss.wid = "wid_" + base64.RawURLEncoding.EncodeToString(random[:])
	res.WID = ss.wid
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	e.sessions.expireLocked()
	if limit := e.opt.Limits.MaxWatchSessions; limit > 0 && int64(len(e.sessions.byID)) >= limit {
		return api.WatchResult{}, api.OverLimit("max_watch_sessions", limit)
	}
	if e.sessions.byID == nil {
		e.sessions.byID = make(map[string]*session)
	}
	e.sessions.byID[ss.wid] = ss
	return res, nil
}

// resolve says where a watch of the topic begins. It counts as a read.
func (e *Engine) resolve(ctx context.Context, w api.WatchTopic) (api.WatchPosition, uint64, error) {
	if err := e.pull(ctx, w.Topic); err != nil {
		return api.WatchPosition{}, 0, err
	}
	t, err := e.lock(w.Topic)
	if err != nil {
		return api.WatchPosition{}, 0, err
	}
	defer t.mu.Unlock()
	t.lastRead.Store(e.clock())
	p := api.WatchPosition{Topic: t.Name, FromSeq: w.FromSeq, HeadSeq: t.Head, EarliestSeq: t.Earliest()}
	if w.Tail {
		p.FromSeq = t.Head
	}
	return p, t.ID, nil
}

// expireLocked forgets the sessions that had no stream for too long.
func (ss *sessions) expireLocked() {
	now := time.Now()
	maps.DeleteFunc(ss.byID, func(_ string, s *session) bool { return s.ended(now) })
}

// SessionOwner returns who made the session. The error is not_found for a
// session that does not exist.
func (e *Engine) SessionOwner(wid string) (owner any, err error) {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	s, err := e.sessions.findLocked(wid)
	if err != nil {
		return nil, err
	}
	return s.owner, nil
}

// findLocked returns a session, or the error for one that is not there or had
// no stream for too long.
func (ss *sessions) findLocked(wid string) (*session, error) {
	s := ss.byID[wid]
	if s == nil || s.ended(time.Now()) {
		return nil, api.Errorf(api.CodeNotFound, "there is no watch session %q; make a new one with POST /v0/watch", wid)
	}
	return s, nil
}

func (s *session) ended(now time.Time) bool {
	return s.open == 0 && now.Sub(s.idle) > api.SessionTTLMS*time.Millisecond
}

// WatchSessions is the number of sessions that exist.
func (e *Engine) WatchSessions() int {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	e.sessions.expireLocked()
	return len(e.sessions.byID)
}

// sseFrames and sseBytes bound what waits for the socket of an SSE stream
// (scheduler.md 7.1), wsFrames what waits for a WebSocket.
const (
	sseFrames = 1024
	sseBytes  = 4 << 20
	wsFrames  = 4
	wsBytes   = 4 << 20
)

// OpenStream opens a stream on a session. It begins at the session's
// positions; lastEventID may only move them back. The error is not_found for
// a session that does not exist. The stream has to be closed.
func (e *Engine) OpenStream(ctx context.Context, wid, lastEventID string) (*Stream, error) {
	if err := e.usable(); err != nil {
		return nil, err
	}
	back, _ := watch.ParseID(lastEventID)
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	ss, err := e.sessions.findLocked(wid)
	if err != nil {
		return nil, err
	}
	s := &Stream{e: e, session: ss, opt: &ss.opt, style: api.SSE, ready: make(chan struct{}, 1)}
	s.out = watch.NewOutbox[*sub](sseFrames, sseBytes)
	s.subs = make([]*sub, len(ss.topics))
	for i := range ss.topics {
		st := &ss.topics[i]
		if given, ok := back[st.name]; ok && given < st.pos {
			st.pos = given
		}
		w := &sub{s: s, name: st.name, life: st.life, pos: st.pos, sent: st.pos, at: i, first: true, owes: true, opt: s.opt}
		s.subs[i] = w
		s.pulls = append(s.pulls, w)
	}
	ss.open++
	ss.newest = s
	s.wake()
	return s, nil
}

// saw moves the session to what its newest stream has sent.
func (s *Stream) saw(moved []*sub) {
	if s.session == nil {
		return
	}
	all := &s.e.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.session.newest != s {
		return
	}
	for _, w := range moved {
		st := &s.session.topics[w.at]
		st.life, st.pos = w.life, w.sent
	}
}

// leaveSession gives the session back its idle time.
func (s *Stream) leaveSession() {
	if s.session == nil {
		return
	}
	all := &s.e.sessions
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.session.open--; s.session.open == 0 {
		s.session.idle = time.Now()
		s.session.newest = nil
	}
}
