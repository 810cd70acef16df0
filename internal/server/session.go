package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

const (
	sessionCookie = "weir_session"
	// sessionLasts is how long a browser stays signed in.
	sessionLasts = 12 * time.Hour
	// maxSessions bounds the browsers that are signed in: one more signs out the oldest.
	maxSessions = 1000
)

// sessions are the browsers that have exchanged a key for a cookie.
type sessions struct {
	mu  sync.Mutex
	all map[string]session // by the cookie's value
}

type session struct {
	key   *apiKey
	begun time.Time
	life  context.Context // it ends with the session
	end   context.CancelFunc
}

// open begins a session.
func (t *sessions) open(k *apiKey) (id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= maxSessions {
		t.endOldest(k)
	}
	if t.all == nil {
		t.all = make(map[string]session)
	}
	id = rand.Text()
	life, end := context.WithTimeout(k.standing(), sessionLasts)
	t.all[id] = session{k, time.Now(), life, end}
	context.AfterFunc(life, func() { t.close(id) })
	return id
}

// endOldest ends the oldest session, of this key if it has any: a program that signs in again and again
// signs out nobody else. The lock is held.
func (t *sessions) endOldest(k *apiKey) {
	var oldest string
	for id, s := range t.all {
		if last := t.all[oldest]; oldest == "" || s.key == k && last.key != k || (s.key == k) == (last.key == k) && s.begun.Before(last.begun) {
			oldest = id
		}
	}
	t.all[oldest].end()
	delete(t.all, oldest)
}

// find returns the session of a request; ok is false if it has none.
func (t *sessions) find(r *http.Request) (s session, ok bool) {
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return session{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok = t.all[c.Value]
	return s, ok
}

// close ends a session, and what its pages have opened with it.
func (t *sessions) close(id string) {
	t.mu.Lock()
	s, ok := t.all[id]
	delete(t.all, id)
	t.mu.Unlock()
	if ok {
		s.end()
	}
}

// keyOf finds the key of a request: its own, or that of its session.
func (q *request) keyOf(token bool) (*apiKey, error) {
	key, err := q.authenticate(token)
	if err == nil || q.r.Header.Get("Authorization") != "" {
		return key, err
	}
	if s, ok := q.s.sessions.find(q.r); ok && (api.OwnPage(q.r) || isSafe(q.r.Method) && !api.ForeignPage(q.r)) {
		q.signedIn = s.life
		return s.key, nil
	}
	return nil, err
}

func isSafe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

// postSession exchanges a key for a cookie.
func (q *request) postSession() error {
	var in struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(q.body, &in); err != nil {
		return &api.Error{Code: api.CodeInvalidRequest, Message: `the body has to be {"key":"…"}`, Err: err}
	}
	if q.s.keys == nil {
		q.noContent()
		return nil
	}
	k := q.s.keys.find(in.Key)
	if k == nil {
		return errKey()
	}
	http.SetCookie(q.w, q.cookie(q.s.sessions.open(k), int(sessionLasts/time.Second)))
	q.noContent()
	return nil
}

// deleteSession ends the session.
func (q *request) deleteSession() error {
	if c, err := q.r.Cookie(sessionCookie); err == nil {
		q.s.sessions.close(c.Value)
	}
	http.SetCookie(q.w, q.cookie("", -1))
	q.noContent()
	return nil
}

func (q *request) cookie(value string, seconds int) *http.Cookie {
	return &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: q.r.TLS != nil,
	}
}

func (q *request) noContent() {
	q.w.Header()["Cache-Control"] = headerNoStore
	q.sent, q.status = true, http.StatusNoContent
	q.w.WriteHeader(http.StatusNoContent)
}
