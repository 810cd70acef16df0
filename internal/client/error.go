package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// A call fails with *api.Error for an error answer of the contract, *StatusError for
// any other answer, *Unreachable if there was no answer, or the context's error.
// *StatusError and *Unreachable match the errors of package backend that say whether
// the call may have taken effect.

// unreadable is an answer of success that is not the contract's.
type unreadable struct {
	server string
	err    error
}

func (e *unreadable) Error() string {
	return fmt.Sprintf("the answer of %s is not what /v0 says: %v", e.server, e.err)
}

func (e *unreadable) Unwrap() error { return e.err }

// unsure adds to an unreadable answer that what was asked for may have been done.
func unsure(err error) error {
	if _, ok := errors.AsType[*unreadable](err); ok {
		return fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, err)
	}
	return err
}

// aboutTopic is in the answer to every call about a topic.
type aboutTopic struct {
	Topic string `json:"topic"`
}

func (a *aboutTopic) foreign() bool { return a.Topic == "" }

// errForeign means that something else has answered in the server's place.
var errForeign = errors.New("it names no topic")

// errNothingStored means that an answer to a write does not say what was stored.
var errNothingStored = errors.New("it names no record")

// Unreachable means that there was no answer: the request may or may not have taken
// effect.
type Unreachable struct {
	Err    error
	unsent bool // there was no connection to send it on
}

func (e *Unreachable) Error() string { return "no answer from the server: " + e.Err.Error() }

// Unwrap returns the connection's error.
func (e *Unreachable) Unwrap() error { return e.Err }

// Is reports whether target is the matching error of package backend. Without a
// connection nothing was sent.
func (e *Unreachable) Is(target error) bool {
	if e.unsent {
		return target == backend.ErrUnavailable
	}
	return target == backend.ErrOutcomeUnknown
}

// StatusError is an answer that is not an error of the contract, for example from a
// proxy.
type StatusError struct {
	Status     int // HTTP status
	Message    string
	RetryAfter time.Duration // how long the answer asks to wait; 0 if it does not say
	passedOn   bool          // what gave it may have passed the request on
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Status, e.Message) }

// Is reports whether target is the matching error of package backend.
func (e *StatusError) Is(target error) bool {
	switch {
	case e.passedOn:
		return target == backend.ErrOutcomeUnknown
	case e.Status == http.StatusServiceUnavailable, e.Status == http.StatusTooManyRequests:
		return target == backend.ErrUnavailable
	case e.Status == http.StatusRequestEntityTooLarge:
		return target == backend.ErrTooLarge
	case e.Status >= http.StatusInternalServerError:
		return target == backend.ErrOutcomeUnknown
	}
	return false
}

// IsStatus reports whether err is an answer with the HTTP status.
func IsStatus(err error, status int) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Code.Status() == status
	}
	e, ok := errors.AsType[*StatusError](err)
	return ok && e.Status == status
}

// Retryable reports whether the same request may succeed later.
func Retryable(err error) bool {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.Retryable()
	}
	return errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown)
}

// RetryAfter is how long the server asked to wait before the next try, 0 if
// it did not say.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e.RetryAfter
	}
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.RetryAfter
	}
	return 0
}

// readError makes an error of an answer that is not 2xx.
func readError(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	var body struct {
		Error wireError `json:"error"`
	}
	err := json.Unmarshal(text, &body)
	e := body.Error.noun(headerWait(resp.Header))
	to, _ := resp.Location()
	switch {
	case to != nil && resp.StatusCode/100 == 3 && (to.Scheme != resp.Request.URL.Scheme || to.Host != resp.Request.URL.Host):
		return &StatusError{Status: resp.StatusCode, Message: printable("the server sends requests on to " + to.Scheme + "://" + to.Host + ": use that address")}
	case (err != nil || e.Code == "") && resp.StatusCode == http.StatusBadRequest && resp.TLS == nil && strings.Contains(string(text), "HTTPS"): // as net/http and nginx say it
		return &StatusError{Status: resp.StatusCode, Message: "the server speaks TLS; use https://"}
	case (err != nil || e.Code == "") && resp.StatusCode == http.StatusRequestEntityTooLarge:
		return &StatusError{Status: resp.StatusCode, Message: "something in front of the server, such as a proxy, takes no body of this size; raise its limit (nginx: client_max_body_size)"}
	case err != nil || e.Code == "":
		message := "the answer carries no error of /v0; is this a weir server?"
		if resp.StatusCode >= http.StatusBadGateway {
			message = "something in front of the server, such as a proxy, has no answer from it"
		}
		return &StatusError{
			Status: resp.StatusCode, Message: message, RetryAfter: e.RetryAfter,
			passedOn: resp.StatusCode == http.StatusServiceUnavailable && passedOn(text),
		}
	case e.Code.Status() != resp.StatusCode: // a code of a later protocol
		return &StatusError{Status: resp.StatusCode, Message: e.Error(), RetryAfter: e.RetryAfter}
	}
	return e
}

// passedOn reports whether the text of a 503 without an error of /v0 may be that of a proxy for a connection
// that it lost, so that the request may have been carried out: of Varnish, which never says more, or of
// Envoy, as in Istio, unless it says that it had none. Other proxies answer 502 for that, and 503 only for
// what they have not passed on.
func passedOn(text []byte) bool {
	if bytes.Contains(text, []byte("Varnish cache server")) {
		return true
	}
	_, reason, is := bytes.Cut(text, []byte("disconnect/reset before headers"))
	return is && !bytes.Contains(reason, []byte("connection failure")) && !bytes.Contains(reason, []byte("reset reason: overflow"))
}

// printable drops control characters: the text ends up on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}

// maxRetryAfter bounds what a server can make a client wait at once.
const maxRetryAfter = time.Minute

// retryAfter prefers the milliseconds of the detail to what the header says.
func retryAfter(header time.Duration, detail any) time.Duration {
	if ms, ok := detail.(float64); ok && ms > 0 {
		return time.Duration(math.Min(ms, float64(maxRetryAfter/time.Millisecond))) * time.Millisecond
	}
	return header
}

// headerWait is what the header Retry-After asks for: whole seconds or, as some proxies
// write it, a date. That counts from the date of the answer: the clocks may differ.
func headerWait(h http.Header) time.Duration {
	field := h.Get("Retry-After")
	if s, err := strconv.ParseUint(field, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(s, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	until, err := http.ParseTime(field)
	if err != nil {
		return 0
	}
	from, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		from = time.Now()
	}
	return min(max(until.Sub(from), 0), maxRetryAfter)
}
