package client

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Error is an error answer of the server.
type Error struct {
	Status     int      // HTTP status
	Code       api.Code // empty if the body was not an error of the contract
	Message    string
	Detail     map[string]any
	RetryAfter time.Duration // what the server asks to wait; 0 if it did not say
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("status %d: %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message)
}

// Unreachable means that no answer came: the request may or may not have
// taken effect.
type Unreachable struct{ Err error }

func (e *Unreachable) Error() string { return "no answer from the server: " + e.Err.Error() }

// Unwrap returns what the connection said.
func (e *Unreachable) Unwrap() error { return e.Err }

// IsCode reports whether err is an answer with the code.
func IsCode(err error, code api.Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}

// IsStatus reports whether err is an answer with the HTTP status.
func IsStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// Retryable is the one place that decides whether the same request may be of
// use later.
func Retryable(err error) bool {
	var u *Unreachable
	if errors.As(err, &u) {
		return true // down or restarting
	}
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Status {
	case http.StatusTooManyRequests: // overload or a resource cap
		return true
	case http.StatusServiceUnavailable: // recovering or draining
		return true
	case http.StatusUnprocessableEntity: // the topic is full until work is done
		return e.Code == api.CodeTopicFull
	case http.StatusInsufficientStorage: // the disk is full until something is deleted
		return e.Code == api.CodeDiskFull
	case http.StatusInternalServerError: // a failed disk may come back
		return true
	case http.StatusBadGateway, http.StatusGatewayTimeout: // a proxy whose server is away
		return true
	}
	return false
}

// Ambiguous reports whether the request behind err may have taken effect.
func Ambiguous(err error) bool {
	var u *Unreachable
	if errors.As(err, &u) {
		var op *net.OpError
		return !errors.As(u.Err, &op) || op.Op != "dial" // not connected, not sent
	}
	var e *Error
	return errors.As(err, &e) && e.Status >= 500 && e.Status != http.StatusServiceUnavailable && e.Code != api.CodeDiskFull
}

// RetryAfter is how long the server asked to wait before the next try, 0 if
// it did not say.
func RetryAfter(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter
	}
	return 0
}

// maxRetryAfter bounds what a server can make a client wait at once.
const maxRetryAfter = time.Minute

// retryAfter prefers the milliseconds of the detail to the whole seconds of
// the header.
func retryAfter(header string, detail map[string]any) time.Duration {
	if ms, ok := detail["retry_after_ms"].(float64); ok && ms > 0 {
		return time.Duration(math.Min(ms, float64(maxRetryAfter/time.Millisecond))) * time.Millisecond
	}
	if s, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(s)*time.Second, maxRetryAfter)
	}
	return 0
}
