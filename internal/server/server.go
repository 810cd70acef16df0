// Package server speaks the HTTP of /v0: it finds the route, checks the key and its
// rights, reads the body, passes api nouns to the engine and encodes its answers. It
// keeps no state of its own beyond counters of what is in flight.
//
// A request goes through the checks of contract 18 in order; see Server.answer. All
// routes are in one table, routes.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// Limits of a connection. A request whose body is still arriving at its readTimeout
// continues under a pacer's deadline.
const (
	readTimeout      = 10 * time.Second
	idleTimeout      = 120 * time.Second
	maxHeaderBytes   = 32 << 10
	maxStreams       = 250
	pingAfter        = 20 * time.Second
	runningAtStop    = 10 * time.Second
	quietAtStop      = 250 * time.Millisecond
	slowestAnswer    = 16 << 10 // bytes per second that a reader has to take
	answerDeadlineAt = 64 << 10 // answers below this fit in socket buffers
)

// Options is what a server needs besides its Config.
type Options struct {
	Version string
	Logger  *slog.Logger // default: discards
}

// Server serves /v0. It may serve before it has an engine: the port is then open, and
// whatever needs an engine is answered 503 not_ready.
type Server struct {
	limits         api.Limits
	keys           *Keys
	probeAuth      bool
	minHeartbeatMS int64
	dataDir        string
	version        string
	log            *slog.Logger
	hosts          *hosts
	table          table
	metrics        *metrics
	http           *http.Server
	started        time.Time

	engine    atomic.Pointer[engine.Engine]
	progress  atomic.Uint64 // math.Float64bits of the recovered share
	draining  atomic.Bool
	drained   chan struct{} // closed by the first Drain
	drain     sync.Once
	running   atomic.Int64 // requests being answered, except streams
	streams   streams
	throttles throttles
	inflight  gauge         // bytes of bodies
	large     chan struct{} // occupied while the engine has a large write
	requests  sync.Pool

	logins, faults, httpErrors lines // see newLines
}

// New returns a server, which serves once Serve is called.
func New(c Config, opt Options) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		limits:         c.Limits,
		keys:           c.Keys,
		probeAuth:      c.ProbeAuth,
		minHeartbeatMS: cmp.Or(c.MinHeartbeatMS, api.MinHeartbeatMS),
		dataDir:        c.DataDir,
		version:        opt.Version,
		log:            opt.Logger,
		hosts:          newHosts(c.AllowedHosts, c.Keys != nil),
		table:          newTable(routes),
		started:        time.Now(),
		large:          make(chan struct{}, 1),
		drained:        make(chan struct{}),
	}
	s.throttles = newThrottles()
	s.newLines()
	s.metrics = newMetrics(s)
	s.requests.New = func() any { return &request{s: s} }
	s.http = &http.Server{
		Handler: s,
		// The read timeout covers header and body together; equal to the header's it
		// costs nothing. A pacer extends it for slow bodies.
		ReadHeaderTimeout:            readTimeout,
		ReadTimeout:                  readTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeaderBytes,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     log.New(&s.httpErrors, "", 0),
		Protocols:                    new(http.Protocols),
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams, SendPingTimeout: pingAfter},
	}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// newLines makes the kinds of log lines that clients can cause.
func (s *Server) newLines() {
	s.logins = lines{log: s.log, level: slog.LevelWarn, text: "a login was refused", burst: 1}
	s.faults = lines{log: s.log, level: slog.LevelError, text: "a request failed", burst: 10}
	s.httpErrors = lines{log: s.log, level: slog.LevelWarn, text: "the HTTP server reports", burst: 10}
}

// SetEngine makes the server ready. The caller remains responsible for closing the
// engine.
func (s *Server) SetEngine(e *engine.Engine) {
	s.SetProgress(1)
	s.engine.Store(e)
}

// SetProgress sets how much of the recovery is done, 0 to 1.
func (s *Server) SetProgress(share float64) { s.progress.Store(math.Float64bits(share)) }

// Recovered returns how much of the recovery is done, 0 to 1.
func (s *Server) Recovered() float64 { return math.Float64frombits(s.progress.Load()) }

// Serve answers connections of l until Stop; it closes l.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// Drain refuses new requests with 503 shutting_down, answers waiting long polls at once
// and ends every stream with the shutdown error. Running requests continue.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.drain.Do(func() { close(s.drained) })
	if e := s.engine.Load(); e != nil {
		e.Drain()
	}
}

// Stop drains, stops accepting, gives running requests and streams 10 s, and closes the
// rest. The engine may be closed afterwards.
func (s *Server) Stop() {
	s.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), runningAtStop)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.http.Shutdown(ctx) }()
	// Shutdown waits seconds for a connection that has not sent a request yet; once
	// nothing has run for a while, there is no one left to wait for.
	check := time.NewTicker(quietAtStop / 5)
	defer check.Stop()
	for quiet := 0; quiet < 5; quiet++ {
		select {
		case err := <-stopped:
			if err != nil || s.streams.count() == 0 {
				s.closeLeft(err)
				return
			}
			stopped = nil // Shutdown does not wait for WebSockets
		case <-ctx.Done():
			s.closeLeft(ctx.Err())
			return
		case <-check.C:
			if s.running.Load() > 0 || s.streams.count() > 0 {
				quiet = -1
			}
		}
	}
	cancel()
	if stopped != nil {
		<-stopped
	}
	s.closeLeft(nil)
}

func (s *Server) closeLeft(err error) {
	defer func() {
		for _, l := range []*lines{&s.logins, &s.faults, &s.httpErrors} {
			l.close()
		}
	}()
	if err != nil {
		s.log.Warn("requests are cut off", "running", s.running.Load(), "streams", s.streams.count(), "after", runningAtStop)
	}
	if err := s.http.Close(); err != nil {
		s.log.Warn("closing connections", "error", err)
	}
}

// ServeHTTP answers one request. A request's resources are given back before its
// stream, if any, runs.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if stream := s.call(w, r); stream != nil {
		s.runStream(stream)
	}
}

// call answers one request, or returns what continues as a stream.
func (s *Server) call(w http.ResponseWriter, r *http.Request) (stream func()) {
	q := s.requests.Get().(*request)
	q.w, q.r, q.start = w, r, time.Now()
	s.running.Add(1)
	if id := r.Header["X-Request-Id"]; id != nil && isRequestID(id[0]) {
		w.Header()["X-Request-Id"] = id[:1]
	}
	defer q.end()
	if err := s.answer(q); err != nil {
		q.refuse(err)
	}
	return q.stream
}

// runStream runs a stream and cuts it off if it panics.
func (s *Server) runStream(stream func()) {
	if s.guard(stream) {
		panic(http.ErrAbortHandler)
	}
}

// guard runs a part of a stream and logs its panic, if any.
func (s *Server) guard(part func()) (panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("a stream panicked", "panic", v, "stack", string(debug.Stack()))
			panicked = true
		}
	}()
	part()
	return false
}

// answer makes the checks common to all calls, in the order of contract 18, and then
// runs the verb. An error means that nothing has been sent.
func (s *Server) answer(q *request) error {
	if len(q.r.TransferEncoding) > 0 {
		// Nothing after a body framed like this is read: a second length may be meant
		// to smuggle a request.
		q.w.Header()["Connection"] = headerClose
	}
	if err := s.hosts.check(q.r); err != nil {
		return err
	}
	q.path.split(q.r.URL)
	spot := s.table.find(&q.path)
	rt := spot.route(q.r.Method)
	if err := s.admit(q, spot, rt); err != nil {
		return err
	}
	if rt == nil {
		return errRoute(q, spot)
	}
	if !rt.early {
		if err := s.ready(q); err != nil {
			return err
		}
	}
	if rt.body != bodyIgnored {
		err := q.readBody(rt.body)
		if q.pacer != nil {
			q.pacer.stop()
		}
		if err != nil {
			return err
		}
	}
	return rt.do(q)
}

// admit checks the key, its requests in flight, its scopes and its prefixes.
func (s *Server) admit(q *request, spot *spot, rt *route) error {
	if s.keys == nil || s.isOpen(q, spot) || rt != nil && rt.auth == authItself {
		return nil
	}
	key, err := s.keys.authenticate(q.r, rt != nil && rt.auth == authToken)
	if err != nil {
		return err
	}
	if !key.inflight.take(1, s.limits.MaxInflightPerKey) {
		return api.OverLimit("max_inflight_per_key", s.limits.MaxInflightPerKey)
	}
	q.key = key
	need := q.path.strictScope()
	if rt != nil {
		need = rt.need
	}
	if !key.has(need) {
		return errScope(need)
	}
	if name, ok := q.path.name(); ok && !key.allows(name) {
		return errPrefix()
	}
	return nil
}

// isOpen reports whether the path answers without a key: the probes, and the pages
// that a dashboard loads before anyone has logged in.
func (s *Server) isOpen(q *request, spot *spot) bool {
	if spot != nil && spot.open {
		return !s.probeAuth
	}
	return q.path.isPage() && (q.r.Method == http.MethodGet || q.r.Method == http.MethodHead)
}

func (s *Server) ready(q *request) error {
	if s.draining.Load() {
		return api.Errorf(api.CodeShuttingDown, "the server is shutting down; try again on the next one")
	}
	if q.eng = s.engine.Load(); q.eng == nil {
		return api.Errorf(api.CodeNotReady, "recovery is still running; try again soon").With("replay_progress", s.Recovered())
	}
	return nil
}
