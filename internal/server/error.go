package server

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// drainBody is the largest unread body that is read off the connection when its request
// is refused, so that the connection can be reused; drainTime is how long that may
// take.
const (
	drainBody = 64 << 10
	drainTime = time.Second
)

// answerTo turns any error into one of the contract, and counts a 429. ctx is the
// client's.
func (s *Server) answerTo(ctx context.Context, err error) *api.Error {
	e, ok := errors.AsType[*api.Error](err)
	switch {
	case ok:
		s.throttles.count(e)
	case ctx.Err() != nil:
		e = &api.Error{Code: api.CodeInternal, Message: "the client left before the answer; whether the call took effect is unknown", Err: err}
	default:
		e = &api.Error{Code: api.CodeInternal, Message: "the server could not do this; its log has the details", Err: err}
	}
	return e
}

// statusLeft is counted for a client that left before its answer, which is neither the
// server's fault nor an answer. nginx has it under the same number.
const statusLeft = 499

// left reports whether err is that the client is gone.
func (q *request) left(err error) bool {
	gone := q.r.Context().Err()
	return gone != nil && errors.Is(err, gone)
}

// refuse answers with an error. It is the only place where codes become status, headers
// and body.
func (q *request) refuse(err error) {
	left := q.left(err)
	if left {
		q.s.log.Debug("a client left before its answer", "request_id", q.requestID(), "method", q.r.Method, "path", q.r.URL.Path)
		defer func() { q.status = statusLeft }()
	}
	e := q.s.answerTo(q.r.Context(), err)
	status := e.Code.Status()
	if status == http.StatusServiceUnavailable && q.comesBack() {
		_ = q.sendEvents(streamRetry) // never fails
		return
	}
	h := q.w.Header()
	switch status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		h["Retry-After"] = []string{strconv.Itoa(max(1, int(math.Ceil(e.RetryAfter.Seconds()))))}
	case http.StatusUnauthorized:
		h["Www-Authenticate"] = headerBearer
		q.s.refused.Add(1)
		q.s.logins.add("from", remoteHost(q.r), "path", q.r.URL.Path, "why", e.Message)
	}
	if status >= http.StatusInternalServerError && !left {
		q.logFailure(status, e)
	}
	q.leaveBody()
	q.warnInHead()
	q.warnings = q.warnings[:0]
	q.out = api.AppendError(q.out[:0], e)
	// For a buffered answer, send has nothing to report.
	_ = q.send(status)
}

// leaveBody decides what happens to a body that was not read to its end. net/http reads
// the rest off the connection and would wait for it, so that gets a short deadline.
// Only for a small body is the connection worth keeping; with any other the answer goes
// out first.
func (q *request) leaveBody() {
	r := q.r
	if q.bodyDone || r.ContentLength == 0 || r.ProtoMajor != 1 {
		return
	}
	// Every connection that net/http serves supports deadlines.
	_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(drainTime))
	if r.ContentLength < 0 || r.ContentLength > drainBody || q.pacer != nil {
		q.w.Header()["Connection"] = headerClose
	}
}

// logFailure logs a 5xx under the id that its answer carries. A 503 or 507 is not a
// fault and can come in masses, so these are logged at level debug.
func (q *request) logFailure(status int, e *api.Error) {
	id := q.requestID()
	if status != http.StatusInternalServerError {
		q.s.log.Debug("a request was refused", "request_id", id, "status", status, "method", q.r.Method, "path", q.r.URL.Path, "error", e.Message)
		return
	}
	q.s.faults.add("request_id", id, "method", q.r.Method, "path", q.r.URL.Path, "error", e.Message, "cause", e.Err)
}

// requestID returns the id of the request: the client's, if it sent a usable one,
// otherwise one made by the server. It is sent with the answer.
func (q *request) requestID() string {
	h := q.w.Header()
	if h["X-Request-Id"] == nil {
		h["X-Request-Id"] = []string{rand.Text()}
	}
	return h["X-Request-Id"][0]
}

// maxRequestID is the longest client id that is returned and logged.
const maxRequestID = 128

func isRequestID(id string) bool {
	if id == "" || len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return false
		}
	}
	return true
}

func remoteHost(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}
