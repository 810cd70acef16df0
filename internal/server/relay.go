package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
)

// relayed are the routes that a relay serves itself; the others it passes on.
var relayed = map[string]func(*request) error{
	"/v0/health": (*request).getRelayHealth, "/healthz": (*request).getRelayHealth,
	"/v0/ready": (*request).getRelayReady, "/readyz": (*request).getRelayReady,
	"/metrics":               (*request).getRelayScrape,
	"/v0/watch":              (*request).postRelayWatch,
	"/v0/watch/:wid":         (*request).getRelayWatch,
	"/v0/ws":                 (*request).getRelaySocket,
	"/v0/topics/:topic/work": (*request).passOnWork,

	"/v0/topics/:topic/diff":  (*request).passOnWaiting,
	"/v0/topics/:topic/claim": (*request).passOnWaiting,
	"/ui/live":                (*request).passOnWaiting,
	"/ui/redrive/:stream":     (*request).passOnWaiting,
}

// relayRoutes are the routes of a relay. Keys and bodies are the upstream's to check.
func relayRoutes() []route {
	all := slices.Clone(routes)
	for i := range all {
		r := &all[i]
		r.need, r.open, r.auth, r.body = 0, true, authItself, bodyIgnored
		if r.do = relayed[r.path]; r.do == nil {
			r.do = (*request).passOn
		}
	}
	return all
}

// passOn has the upstream answer the request.
func (q *request) passOn() error {
	if q.path.seg[0] == "admin" {
		q.patience = backupPatience
	}
	w := &passedOn{ResponseWriter: q.hurried()}
	if size := q.r.ContentLength; 0 < size && size <= drainBody {
		if err := q.reserve(int(size)); err != nil {
			return err
		}
		body := make([]byte, size) // not reused: the transport may read it for longer
		err := q.fill(body)
		if q.pacer != nil {
			q.pacer.stop()
		}
		if err != nil {
			return err
		}
		q.r.Body = io.NopCloser(bytes.NewReader(body))
	} else if size != 0 {
		w.body, w.open = q.r.Body, q.r.ProtoMajor == 1
		if q.r.Body = w; formOf(q.r.Header) != formLines {
			q.r.Body = http.MaxBytesReader(q.w, w, q.s.limits.MaxBodyBytes+bodySlack)
		}
	}
	rc := http.NewResponseController(q.w)
	if w.open {
		// The upstream may refuse a body before it is sent; HTTP/1.1 supports this.
		_ = rc.EnableFullDuplex()
	}
	q.mayWait()
	q.sent = true
	q.s.relay.ServeHTTP(w, q.r)
	q.status = w.status
	if w.unread() {
		_ = rc.SetReadDeadline(time.Now().Add(drainTime)) // as in leaveBody
	}
	return nil
}

// bodySlack is how much more than the largest body a relay passes on: the upstream refuses it.
const bodySlack = 1 << 20

// passedOn is the answer to a request that is passed on, and its body.
type passedOn struct {
	http.ResponseWriter
	status int
	body   io.ReadCloser // nil if it was read before
	open   bool          // what is left of it would be in front of the next request
	done   atomic.Bool   // nothing is
}

// Read reads the body.
func (w *passedOn) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if err == io.EOF {
		w.done.Store(true)
	}
	return n, err
}

// Close leaves the body to net/http.
func (w *passedOn) Close() error { return nil }

func (w *passedOn) unread() bool { return w.open && !w.done.Load() }

// WriteHeader sends the head. A connection on which some of the body is left is not used
// again.
func (w *passedOn) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status = status
		if w.unread() {
			w.Header()["Connection"] = headerClose
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *passedOn) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// passOnWork has the upstream answer with a stream of jobs, which counts as one of the
// relay's, too.
func (q *request) passOnWork() error {
	release := func() {}
	if q.r.Method == http.MethodGet {
		var err error
		if release, err = q.openStream(q.s.callers.key(relay.CallerOf(q.r, true))); err != nil {
			return err
		}
	}
	return q.passOnStream(release)
}

// passOnStream has the upstream answer with a stream, which ends with the relay.
func (q *request) passOnStream(release func()) error {
	q.mayWait()
	done := q.untilDrained()
	s, w, r := q.s, q.hurried(), q.r
	q.sent, q.bodyDone = true, true
	q.stream = func() {
		defer release()
		defer done()
		s.relay.ServeHTTP(w, r)
	}
	return nil
}

// passOnWaiting has the upstream answer a call that may wait there, or for as long as a page is
// open, but not longer than the relay serves.
func (q *request) passOnWaiting() error {
	defer q.untilDrained()()
	return q.passOn()
}

// untilDrained has the request's context end when the relay stops, until done is called.
func (q *request) untilDrained() (done func()) {
	ctx, cancel := context.WithCancelCause(q.r.Context())
	q.r = q.r.WithContext(ctx)
	drained := q.s.drained
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-drained:
			cancel(api.Errorf(api.CodeShuttingDown, "the relay is shutting down; try again on the next one"))
		case <-ctx.Done():
		}
	})
	return func() {
		cancel(nil)
		watcher.Wait()
	}
}

// mayProbe asks the upstream about the key of a probe, if probes need one.
func (q *request) mayProbe() error {
	if q.s.probeAuth {
		if err := q.s.relay.Known(q.r.Context(), relay.CallerOf(q.r, false)); err != nil {
			return err
		}
	}
	return q.checkQuery()
}

// getRelayHealth answers 200 for as long as the relay serves.
func (q *request) getRelayHealth() error {
	if err := q.mayProbe(); err != nil {
		return err
	}
	return q.getHealth()
}

// getRelayReady answers 200 while the relay has its upstream and that one is ready.
func (q *request) getRelayReady() error {
	if err := q.mayProbe(); err != nil {
		return err
	}
	if err := q.s.ready(q); err != nil {
		return err
	}
	topics, err := q.s.relay.Ready(q.r.Context())
	if err != nil {
		return err
	}
	q.out = append(q.out[:0], `{"status":"ready","wal_replay_complete":true,"topics":`...)
	q.out = strconv.AppendInt(q.out, topics, 10)
	q.out = append(q.appendUpstream(q.out), '}')
	return q.send(http.StatusOK)
}

// appendUpstream says that the server is a relay, and of which one.
func (q *request) appendUpstream(dst []byte) []byte {
	if q.s.relay == nil {
		return dst
	}
	dst = api.AppendString(append(dst, `,"relay":{"upstream":`...), q.s.relay.Upstream())
	dst = strconv.AppendBool(append(dst, `,"connected":`...), q.s.relay.Connected())
	return append(dst, '}')
}

// getRelayScrape answers with the relay's own numbers.
func (q *request) getRelayScrape() error {
	if err := q.s.relay.MayScrape(q.r.Context(), relay.CallerOf(q.r, false)); err != nil {
		return err
	}
	if err := q.checkQuery(); err != nil {
		return err
	}
	page := rendered(q.s.scrapes, q.r.Header["Accept"])
	q.out = append(q.out[:0], page.Bytes()...)
	q.w.Header()["Content-Type"] = page.head["Content-Type"]
	return q.sendAs(http.StatusOK)
}

// postRelayWatch has the upstream check a watch, and makes the session of it. What the
// upstream refuses, and sessions that only it can serve, are its answers.
func (q *request) postRelayWatch() error {
	limit := q.s.limits.MaxBodyBytes
	if q.r.ContentLength > limit {
		return errBodySize(limit)
	}
	if size := q.r.ContentLength; size < 0 || size > drainBody {
		// Nobody else's body takes what others need.
		if err := q.s.relay.Known(q.r.Context(), relay.CallerOf(q.r, false)); err != nil {
			return err
		}
	}
	err := q.readGrowing(false, int(limit)) // as it is: if it is packed, the upstream unpacks it
	if q.pacer.stop(); err != nil {
		return err
	}
	body := slices.Clone(q.body) // not reused: the transport may read it for longer
	query := q.r.URL.Query()
	query.Set("relay", "true")
	probe := &captured{header: make(http.Header)}
	q.forward(probe, query, body)
	if probe.status != http.StatusOK {
		q.copyAnswer(probe)
		return nil
	}
	res, err := relay.ResultOf(probe.body.Bytes())
	if err != nil {
		return err
	}
	req, err := q.decodeWatch(body)
	if err != nil {
		return err
	}
	if req.Strong || !q.s.relay.Seal(relay.CallerOf(q.r, false), &req.WatchOptions, res) {
		query.Del("relay")
		probe = &captured{header: make(http.Header)}
		q.forward(probe, query, body)
		q.copyAnswer(probe)
		return nil
	}
	if err := q.checkQuery(); err != nil {
		return err
	}
	q.out = api.AppendWatchResult(q.out[:0], res, q.millis())
	return q.send(http.StatusOK)
}

// decodeWatch reads a body that the upstream has found good.
func (q *request) decodeWatch(body []byte) (api.WatchRequest, error) {
	if codingOf(q.r) == "gzip" {
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return api.WatchRequest{}, err
		}
		if body, err = io.ReadAll(io.LimitReader(r, q.s.limits.MaxBodyBytes)); err != nil {
			return api.WatchRequest{}, err
		}
	}
	return api.DecodeWatch(body, &q.s.limits, q.s.minHeartbeatMS, &q.warnings)
}

// forward passes the request on with another query, and takes the answer, uncompressed.
func (q *request) forward(w http.ResponseWriter, query url.Values, body []byte) {
	r := q.r.Clone(q.r.Context())
	r.URL.RawQuery = query.Encode()
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Header.Del("Accept-Encoding")
	q.s.relay.ServeHTTP(w, r)
}

// captured is an answer of the upstream that is looked at first.
type captured struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (c *captured) Header() http.Header { return c.header }

func (c *captured) WriteHeader(status int) { c.status = status }

func (c *captured) Write(p []byte) (int, error) { return c.body.Write(p) }

// copyAnswer sends an answer of the upstream.
func (q *request) copyAnswer(c *captured) {
	h := q.w.Header()
	for name, values := range c.header {
		if name == "Vary" {
			values = append(slices.Clone(h[name]), values...)
		}
		h[name] = values
	}
	q.sent, q.status = true, c.status
	q.w.WriteHeader(c.status)
	q.hurry(c.body.Bytes())
	q.sendBody(c.body.Bytes())
}

// getRelayWatch opens a stream on a session of this relay or another one with its key; any
// other is the upstream's.
func (q *request) getRelayWatch() error {
	session, ok := q.s.relay.Session(q.path.seg[2])
	if !ok {
		return q.passOnStream(func() {})
	}
	if err := q.acceptsEvents(); err != nil {
		return err
	}
	if err := q.namesEvents(); err != nil {
		return err
	}
	if err := q.checkQuery(); err != nil {
		return err
	}
	caller := relay.CallerOf(q.r, true)
	if err := q.s.relay.Check(q.r.Context(), session, caller); err != nil {
		return err
	}
	key := q.s.callers.key(caller)
	return q.sendStream(key, func(refused func(error)) (watchSource, error) {
		return q.s.relay.OpenStream(q.r.Context(), session, caller, q.r.Header.Get("Last-Event-ID"), refused)
	})
}

// getRelaySocket turns the request into a WebSocket.
func (q *request) getRelaySocket() error {
	caller := relay.CallerOf(q.r, true)
	if err := q.s.relay.Known(q.r.Context(), caller); err != nil {
		return err
	}
	if err := q.checkQuery(); err != nil {
		return err
	}
	if err := q.upgrades(); err != nil {
		return err
	}
	strict, err := q.wantsStrict()
	if err != nil {
		return err
	}
	release, err := q.openStream(q.s.callers.key(caller))
	if err != nil {
		return err
	}
	conn, err := q.accept()
	if err != nil {
		release()
		return nil
	}
	out := q.s.relay.NewPublisher(caller, strict)
	k := q.newSocket(conn, strict)
	k.out, k.caller = out, caller
	k.src = q.s.relay.NewSocket(caller, k.end)
	q.stream = func() {
		defer release()
		defer out.Close()
		k.run()
	}
	return nil
}

// passOn has the upstream answer a publish.
func (k *socket) passOn(ctx context.Context, msg, requestID []byte) {
	answer, err := k.out.Publish(ctx, msg)
	if err != nil {
		k.refuse(requestID, err)
		return
	}
	k.answer(answer)
}
