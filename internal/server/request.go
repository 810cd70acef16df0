package server

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// keptAnswer is the largest answer buffer a request keeps for the next one.
const keptAnswer = 512 << 10

// Header values shared by all answers and never modified.
var (
	headerJSON   = []string{"application/json"}
	headerText   = []string{"text/plain; version=0.0.4"}
	headerTar    = []string{"application/x-tar"}
	headerPacked = []string{"application/gzip"}
	headerClose  = []string{"close"}
	headerGzip   = []string{"gzip"}
	headerVary   = []string{"Accept-Encoding"}
	headerBearer = []string{"Bearer"}
)

// request is a request on its way through the server. It is reused afterwards.
type request struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	start time.Time
	path  path
	route *route         // nil: unknown path or method
	key   *apiKey        // nil: auth is off, or the path is open
	eng   *engine.Engine // set for every route that is not early

	signedIn context.Context // of the session that key is of, if it is of one
	patience time.Duration   // for how long the client may take nothing; 0: streamPatience
	prefixed bool            // the client wants the names of events prefixed
	own      *ownConn        // of an event stream over HTTP/1

	form     form
	body     []byte // the whole body; lies in small or block
	bodyDone bool   // none of the body is left on the connection
	block    *block
	pacer    *pacer
	reserved int64 // bytes taken under max_inflight_bytes

	warnings api.Warnings

	out    []byte // the answer
	room   share  // of it, under max_inflight_bytes
	times  api.Times
	packed []byte // the same, compressed
	sent   bool   // the answer's head has been sent
	status int    // the answer's
	stream func() // runs after the request has ended; must not use anything of it

	write  api.WriteRequest // reused, for its records
	writes api.WritesRequest
	settle api.SettleRequest
	small  [smallBody]byte
}

// topic returns the name in the path.
func (q *request) topic() string { return q.path.seg[2] }

// millis is the time spent on the request so far, for performance.
func (q *request) millis() float64 { return float64(time.Since(q.start)) / float64(time.Millisecond) }

// end gives back what the request took. A panic in the server's own code becomes a 500 with its
// stack in the log (one inside the engine ends the process); such a request is not reused,
// since others may still hold parts of it.
func (q *request) end() {
	v := recover()
	defer q.s.running.Add(-1)
	if q.stream == nil && !isPlain(q.r) {
		q.hurry(nil) // what net/http still has of the answer
	}
	if q.key != nil {
		q.key.counted().inflight.give(1)
	}
	q.s.inflight.give(q.reserved)
	q.room.holds(0)
	if v == nil {
		q.s.calls.count(q)
		q.recycle()
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	q.s.log.Error("a request panicked", "request_id", q.requestID(), "method", q.r.Method, "panic", v, "stack", string(debug.Stack()))
	if q.sent {
		panic(http.ErrAbortHandler)
	}
	q.refuse(api.Errorf(api.CodeInternal, "the server made a mistake; its log has the details"))
	q.s.calls.count(q)
}

func (q *request) recycle() {
	s := q.s
	if q.block != nil {
		q.block.free()
		q.block = nil
	}
	q.w, q.r, q.route, q.key, q.signedIn, q.eng, q.pacer, q.stream, q.own = nil, nil, nil, nil, nil, nil, nil, nil, nil
	q.form, q.body, q.bodyDone, q.reserved, q.sent, q.prefixed, q.patience = formJSON, nil, false, 0, false, false, 0
	clear(q.warnings)
	q.warnings = q.warnings[:0]
	if cap(q.out) > keptAnswer {
		q.out = nil
	}
	if cap(q.packed) > keptAnswer {
		q.packed = nil
	}
	s.requests.Put(q)
}

// send sends q.out as JSON, compressed if that is requested and worthwhile.
func (q *request) send(status int) error {
	q.w.Header()["Content-Type"] = headerJSON
	q.out = q.warnings.Append(q.out)
	q.warnings = q.warnings[:0]
	return q.sendAs(status)
}

// sendAs sends q.out with the content type already set; it has no place for warnings.
func (q *request) sendAs(status int) error {
	q.warnInHead()
	h, b := q.w.Header(), q.out
	if q.s.draining.Load() {
		h["Connection"] = headerClose
	}
	if q.room.n > 0 {
		q.room.holds(len(b))
	}
	if len(b) >= gzipFrom {
		q.s.origins.vary(h)
		if wantsGzip(q.r.Header.Get("Accept-Encoding")) {
			q.packed = appendGzip(q.packed[:0], b)
			b = q.packed
			h["Content-Encoding"] = headerGzip
		}
		// net/http determines the length of smaller ones by itself.
		h["Content-Length"] = []string{strconv.Itoa(len(b))}
	}
	if len(b) >= slowAnswer || len(b) > smallAnswer && !isPlain(q.r) {
		q.hurry(b)
	}
	q.sent, q.status = true, status
	if status != http.StatusOK {
		q.w.WriteHeader(status)
	}
	inOneWrite(q.r, len(b))
	q.sendBody(b)
	return nil
}

// isPlain reports whether a request came over HTTP/1 without TLS: its oneWriteConn sees to it that the
// client takes the answer.
func isPlain(r *http.Request) bool { return r.TLS == nil && r.ProtoMajor == 1 }

// sendBody sends a body whose first piece has its time. A client that is gone needs no answer.
func (q *request) sendBody(b []byte) {
	for len(b) > answerPiece {
		if _, err := q.w.Write(b[:answerPiece]); err != nil {
			return
		}
		b = b[answerPiece:]
		q.hurry(b)
	}
	_, _ = q.w.Write(b)
}

// hurry gives the client a time for the next piece of an answer, of which there is rest.
func (q *request) hurry(rest []byte) {
	patience := cmp.Or(q.patience, streamPatience) + time.Duration(min(len(rest), answerPiece)/slowestAnswer)*time.Second
	// Every connection that net/http serves supports deadlines.
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(patience))
}

// hurried is an answer that comes in pieces, for each of which the client has a time.
type hurried struct {
	http.ResponseWriter
	rc       *http.ResponseController
	patience time.Duration
}

func (q *request) hurried() hurried {
	return hurried{q.w, http.NewResponseController(q.w), cmp.Or(q.patience, streamPatience)}
}

func (w hurried) Write(p []byte) (int, error) {
	// As in hurry.
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.patience))
	return w.ResponseWriter.Write(p)
}

// FlushError sends what was written. The next piece may be long in coming.
func (w hurried) FlushError() error {
	err := w.rc.Flush()
	_ = w.rc.SetWriteDeadline(time.Time{})
	return err
}

// Unwrap is for http.ResponseController.
func (w hurried) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// mayWait removes the read timeout of a request that may take longer.
func (q *request) mayWait() {
	// As in hurry.
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Time{})
}

// mayTakeLong removes the read timeout, and makes the request's context end with its key until
// release is called.
func (q *request) mayTakeLong() (release func()) {
	q.mayWait()
	return q.whileStands(q.key)
}

// query returns the parameters of the request, nil if it has none.
func (q *request) query() (url.Values, error) {
	if q.r.URL.RawQuery == "" {
		return nil, nil
	}
	v, err := url.ParseQuery(q.r.URL.RawQuery)
	if err != nil {
		return nil, &api.Error{Code: api.CodeInvalidRequest, Message: "the query of the URL is not form-encoded; check its escapes", Err: err}
	}
	return v, nil
}

// queryBool reads the parameter name; if absent or empty it is def.
func (q *request) queryBool(name string, def bool) (bool, error) {
	v, err := q.query()
	if err != nil {
		return false, err
	}
	switch s := v.Get(name); s {
	case "":
		return def, nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	default:
		return false, api.Errorf(api.CodeInvalidRequest, "query parameter %s is %q; use true, 1, false or 0", name, s)
	}
}
