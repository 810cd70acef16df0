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
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/dash"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/internal/webhook"
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
	deliveriesAtStop = 9 * time.Second // of webhooks; then there is time to give them back
	slowestAnswer    = 16 << 10        // bytes per second that a reader has to take
	slowAnswer       = 64 << 10        // a smaller answer is never slow
	answerPiece      = 1 << 20         // each piece of a larger answer has a deadline
	smallAnswer      = 2 << 10         // what net/http sends when the handler has returned
)

// Options is what a server needs besides its Config.
type Options struct {
	Version string
	Logger  *slog.Logger // default: discards
	Board   *board.Board // what the dashboard shows; default: the engine's topics
	Relay   *relay.Relay // if it is not nil, the server has no engine and stands in front of another one
	// Metrics also gets the metrics of the page /metrics; nil: nobody else does.
	Metrics prometheus.Registerer
	// Around, if it is not nil, is called for each request in front of the server. route
	// returns the path of the table that a request's is one of, or nothing.
	Around func(next http.Handler, route func(*http.Request) string) http.Handler
	// CertificateEnds returns when the certificate that clients are shown ends; nil: there
	// is none.
	CertificateEnds func() time.Time
	// Settings are those that differ from their defaults, and LastLog the end of the
	// log, for a bundle; neither may hold a secret.
	Settings []string
	LastLog  func() []byte
}

// Server serves /v0, or the dashboard of a Board alone. It may serve before it has an engine: the port is then open, and
// whatever needs an engine is answered 503 not_ready.
type Server struct {
	limits         api.Limits
	keys           *Keys
	tokens         tokens
	probeAuth      bool
	minHeartbeatMS int64
	dataDir        string
	version        string
	log            *slog.Logger
	settings       []string
	lastLog        func() []byte
	hosts          *hosts
	origins        *origins // nil: no page of another origin
	table          table
	metrics        *metrics
	scrapes        http.Handler
	process        []prometheus.Collector // of the page /metrics, besides the engine's numbers
	calls          *calls
	http           *http.Server
	dash           *dash.Dash
	board          *board.Board // nil: the server has an engine
	relay          *relay.Relay // nil: it has one
	callers        callers      // of a relay
	unwatched      bool         // the dashboard reads nothing
	certEnds       func() time.Time
	started        time.Time

	engine    atomic.Pointer[engine.Engine]
	progress  atomic.Uint64 // math.Float64bits of the recovered share
	standby   atomic.Bool
	draining  atomic.Bool
	drained   chan struct{} // closed by the first Drain
	drain     sync.Once
	running   atomic.Int64 // requests being answered, except streams
	late      atomic.Int64 // requests that began after the first Drain
	streams   streams
	lease     *lease // nil: it is not needed
	sessions  sessions
	throttles throttles
	hooks     *webhook.Set
	refused   atomic.Int64  // logins
	backedUp  atomic.Int64  // when the last backup was sent, Unix ms; 0: none
	inflight  gauge         // bytes of bodies
	answers   gauge         // bytes of answers, likewise
	large     chan struct{} // occupied while the engine has a large write
	letters   chan struct{} // has one for each request that reads dead letters
	requests  sync.Pool

	logins, faults, httpErrors lines // see newLines
}

// New returns a server, which serves once Serve is called.
func New(c Config, opt Options) *Server {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.LastLog == nil {
		opt.LastLog = func() []byte { return nil }
	}
	served := routesOf(opt.Board, opt.Relay)
	s := &Server{
		limits:         c.Limits,
		keys:           c.Keys,
		tokens:         tokens{file: filepath.Join(c.DataDir, tokensFile)},
		probeAuth:      c.ProbeAuth,
		minHeartbeatMS: cmp.Or(c.MinHeartbeatMS, api.MinHeartbeatMS),
		dataDir:        c.DataDir,
		version:        opt.Version,
		log:            opt.Logger,
		settings:       opt.Settings,
		lastLog:        opt.LastLog,
		certEnds:       opt.CertificateEnds,
		table:          newTable(served),
		board:          opt.Board,
		relay:          opt.Relay,
		started:        time.Now(),
		large:          make(chan struct{}, 1),
		letters:        make(chan struct{}, letterReaders),
		drained:        make(chan struct{}),
	}
	isKeyed := keyed(c.Keys, opt.Relay)
	s.origins = newOrigins(c.CORSOrigins, isKeyed)
	s.hosts = newHosts(c.AllowedHosts, s.origins, anyHost(isKeyed, opt.Relay))
	s.throttles = newThrottles()
	s.newLines()
	s.metrics = newMetrics(s)
	s.calls = newCalls(served)
	s.process = append(newProcessCollectors(), s.calls.requests, s.calls.seconds)
	if s.relay != nil {
		s.process = append(s.process, s.relay)
	}
	s.scrapes = newScrape(s, nil).handler(s.process...)
	if opt.Metrics != nil {
		opt.Metrics.MustRegister(append(s.process, newScrape(s, nil))...)
	}
	s.unwatched = c.unwatched || s.relay != nil
	read := s.readDash
	if s.board != nil {
		read = s.board.Read
	}
	s.dash = dash.New(read, lagLimits(c.LagWarn, c.LagPause))
	s.requests.New = func() any { return &request{s: s, room: s.share()} }
	s.http = &http.Server{
		Handler:     s,
		ConnContext: withConn,
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
	if opt.Around != nil {
		s.http.Handler = opt.Around(s, s.route)
	}
	hooks := webhook.Options{File: filepath.Join(c.DataDir, webhook.FileName), Off: !c.Webhooks.On, Reach: c.Webhooks.Reach,
		MaxNodeBytes: c.Limits.MaxNodeBytes, Logger: s.log}
	if r := &c.Replica; r.Failover || r.Standby {
		l := newLease(s, r.FailoverAfter*2/3, s.http.Handler)
		s.lease, s.http.Handler, hooks.Leads = l, l, l.holds
	}
	s.hooks = webhook.New(hooks)
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// SetLagLimits replaces those of Config.
func (s *Server) SetLagLimits(warn, pause int64) { s.dash.Configure(lagLimits(warn, pause)) }

func lagLimits(warn, pause int64) dash.Config {
	return dash.Config{LagWarn: cmp.Or(warn, 50), LagPause: cmp.Or(pause, 200)}
}

// route returns the path of the table that the one of a request is.
func (s *Server) route(r *http.Request) string {
	var p path
	p.split(r.URL)
	if rt := s.table.find(&p).route(r.Method); rt != nil {
		return rt.path
	}
	return ""
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
	s.keepSessions(e)
	s.tokens.clean(s.log)
	s.hooks.Start(e) // before a request can change them
	s.engine.Store(e)
}

// SetProgress sets how much of the recovery is done, 0 to 1.
func (s *Server) SetProgress(share float64) { s.progress.Store(math.Float64bits(share)) }

// SetStandby says whether the server waits for another one to fail.
func (s *Server) SetStandby(on bool) { s.standby.Store(on) }

// Standby reports what SetStandby has said.
func (s *Server) Standby() bool { return s.standby.Load() }

// Recovered returns how much of the recovery is done, 0 to 1.
func (s *Server) Recovered() float64 { return math.Float64frombits(s.progress.Load()) }

// Serve answers connections of l until Stop; it closes l.
func (s *Server) Serve(l net.Listener) error {
	ctx, end := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	if !s.unwatched {
		reading.Go(func() { s.dash.Run(ctx) })
	}
	if s.relay != nil {
		reading.Go(func() { s.relay.Run(ctx) })
	}
	if s.keys.mayChange() {
		reading.Go(func() { s.keys.run(ctx, s.log) })
	}
	defer reading.Wait()
	defer end()
	if err := s.http.Serve(oneWriteListener{l}); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving %s: %w", l.Addr(), err)
	}
	return nil
}

// Drain refuses new requests with 503 shutting_down, answers waiting long polls at once
// and ends every stream with the shutdown error. Running requests continue.
func (s *Server) Drain() {
	s.draining.Store(true)
	s.drain.Do(func() { close(s.drained) })
	s.hooks.Drain() // before the engine, whose claims do not wait from then on
	if e := s.engine.Load(); e != nil {
		e.Drain()
	}
}

// Stop drains, refuses what still comes for a moment, stops accepting, gives running requests, streams and deliveries of webhooks
// 10 s, and closes the rest. The engine may be closed afterwards.
func (s *Server) Stop() {
	s.Drain()
	var hooks sync.WaitGroup
	hooks.Go(func() { s.hooks.Stop(deliveriesAtStop) })
	defer hooks.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), runningAtStop)
	defer cancel()
	s.refuseLate(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- s.http.Shutdown(ctx) }()
	// Shutdown waits seconds for a connection that has not sent a request yet; once
	// nothing has run for a while, there is no one left to wait for.
	check := time.NewTicker(quietAtStop / 5)
	defer check.Stop()
	for quiet := 0; quiet < 5; quiet++ {
		select {
		case err := <-stopped:
			if err != nil || !s.streams.busy() {
				s.closeLeft(err)
				return
			}
			stopped = nil // Shutdown does not wait for WebSockets and event streams over HTTP/1
		case <-ctx.Done():
			s.closeLeft(ctx.Err())
			return
		case <-check.C:
			if s.running.Load() > 0 || s.streams.busy() {
				quiet = -1
			} else if stopped == nil {
				quiet = 5
			}
		}
	}
	cancel()
	if stopped != nil {
		<-stopped
	}
	s.closeLeft(nil)
}

// refuseLate refuses what comes on connections that clients are using, until nothing has come for a
// moment. Shutdown closes those that have no request at the moment, and what is on its way then has no
// answer: whoever sent it would not know that it was not done.
func (s *Server) refuseLate(ctx context.Context) {
	const looks = 10
	look := time.NewTicker(quietAtStop / looks)
	defer look.Stop()
	for range looks {
		was := s.late.Load()
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if s.late.Load() == was {
			return
		}
	}
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
	s.streams.cut()
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
	q.w, q.r, q.start, q.status = w, r, time.Now(), http.StatusOK
	s.running.Add(1)
	if s.draining.Load() {
		s.late.Add(1)
		w.Header()["Connection"] = headerClose
	}
	s.origins.mark(w.Header(), r)
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
		if v := recover(); v == http.ErrAbortHandler {
			panicked = true // a stream that is passed on has broken
		} else if v != nil {
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
	if s.relay != nil {
		r, err := s.relay.CheckRound(q.r)
		if err != nil {
			return err
		}
		q.r = r
	}
	if s.origins.preflight(q.r) {
		q.allowPage()
		return nil
	}
	q.path.split(q.r.URL)
	spot := s.table.find(&q.path)
	rt := spot.route(q.r.Method)
	q.route = rt
	if err := s.admit(q, spot, rt); err != nil {
		return err
	}
	if rt == nil && s.relay != nil {
		return q.passOn()
	}
	if rt == nil {
		return errRoute(q, spot)
	}
	if !rt.early {
		if err := s.ready(q); err != nil {
			return err
		}
	}
	if rt.forms {
		q.form = formOf(q.r.Header)
	}
	if rt.body != bodyIgnored && q.form != formLines {
		err := q.readBody(rt.body)
		if q.pacer != nil {
			q.pacer.stop()
		}
		if err == nil && !q.key.stands() {
			err = errKey() // it has ended while the body came
		}
		if err != nil {
			return err
		}
	}
	if s.relay == nil {
		if err := q.checkQuery(); err != nil {
			return err
		}
	}
	err := rt.do(q)
	if err != nil && !q.key.stands() {
		return errKey()
	}
	return err
}

// admit checks the key, its requests in flight, its scopes and its prefixes.
func (s *Server) admit(q *request, spot *spot, rt *route) error {
	if s.keys == nil || s.isOpen(q, spot, rt) || rt != nil && rt.auth == authItself {
		return nil
	}
	key, err := q.keyOf(rt != nil && rt.auth == authToken)
	if err != nil {
		return err
	}
	if !key.counted().inflight.take(1, s.limits.MaxInflightPerKey) {
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

// isOpen reports whether the request is answered without a key: the probes, and the pages
// of the dashboard, which a browser loads before anyone has signed in.
func (s *Server) isOpen(q *request, spot *spot, rt *route) bool {
	if q.path.isPage() {
		return rt != nil && rt.open
	}
	return spot != nil && spot.open && !s.probeAuth
}

func (s *Server) ready(q *request) error {
	if s.draining.Load() {
		return api.Errorf(api.CodeShuttingDown, "the server is shutting down; try again on the next one")
	}
	if q.eng = s.engine.Load(); q.eng == nil && s.standby.Load() {
		return api.Errorf(api.CodeNotReady, "this server is a standby; another one leads").With("role", "standby")
	}
	if q.eng == nil && s.board == nil && s.relay == nil {
		return api.Errorf(api.CodeNotReady, "recovery is still running; try again soon").With("replay_progress", s.Recovered())
	}
	return nil
}
