package server

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// lease lets requests through while the copy has confirmed lately that this
// server leads. Another one may lead otherwise, so nothing is answered then, and
// what is being answered ends.
type lease struct {
	s    *Server
	most time.Duration
	next http.Handler

	mu    sync.Mutex
	held  context.Context // ends when the lease does
	lapse context.CancelFunc
}

var errNoLease = errors.New("this server cannot prove to its copy that it leads")

// leaseCheck is how often a server with requests looks whether it still leads.
const leaseCheck = 100 * time.Millisecond

func newLease(s *Server, most time.Duration, next http.Handler) *lease {
	return &lease{s: s, most: most, next: next}
}

func (l *lease) holds() bool {
	e := l.s.engine.Load()
	return e == nil || e.Unproved() < l.most
}

func (l *lease) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.s.origins.mark(w.Header(), r)
	if ofProcess(r.URL.Path) || l.s.origins.preflight(r) {
		l.next.ServeHTTP(w, r)
		return
	}
	if !l.holds() {
		answerWithoutLease(w, api.Errorf(api.CodeNotReady, "%v: another one may lead; try the others, and this one again soon", errNoLease).With("role", "unproved"))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(l.current(), cancel)()
	l.next.ServeHTTP(&leased{ResponseWriter: w, lease: l}, r.WithContext(ctx))
}

// ofProcess reports whether a path answers for this process, whoever leads.
func ofProcess(path string) bool {
	switch path {
	case "/v0/health", "/healthz", "/v0/metrics", "/metrics":
		return true
	}
	return false
}

// current returns the context that ends with the lease.
func (l *lease) current() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil || l.held.Err() != nil {
		l.held, l.lapse = context.WithCancel(context.Background())
		go l.watch(l.lapse)
	}
	return l.held
}

// watch ends what is being answered when the lease ends, and with the server.
func (l *lease) watch(lapse context.CancelFunc) {
	tick := time.NewTicker(leaseCheck)
	defer tick.Stop()
	for l.holds() {
		select {
		case <-tick.C:
		case <-l.s.drained:
			return
		}
	}
	lapse()
}

func answerWithoutLease(w http.ResponseWriter, e *api.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(e.Code.Status())
	_, _ = w.Write(api.AppendError(nil, e))
}

// leased is an answer that is sent only while the lease is held.
type leased struct {
	http.ResponseWriter
	lease   *lease
	begun   bool
	refused bool
}

func (w *leased) WriteHeader(status int) {
	if w.begun {
		return
	}
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	if w.begun = true; !w.lease.holds() {
		w.refused = true
		w.lease.s.origins.keep(w.Header())
		answerWithoutLease(w.ResponseWriter, api.Errorf(api.CodeInternal, "%v, since it began to answer this: whether the call took effect is unknown", errNoLease))
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *leased) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.refused || !w.lease.holds() {
		return 0, errNoLease
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *leased) Unwrap() http.ResponseWriter { return w.ResponseWriter }
