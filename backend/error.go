package backend

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Errors that callers test for with errors.Is.
var (
	// ErrOutcomeUnknown: the server may or may not have done what was asked. An append
	// with an idempotency key can be repeated safely.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnavailable: the server did nothing, and may work later (it is unreachable,
	// loading, a read-only replica, failing over).
	ErrUnavailable = errors.New("backend not available")
	// ErrLeaseLost: another worker holds the message, or it is done.
	ErrLeaseLost = errors.New("lease lost")
	// ErrStreamNotFound: there is no such stream or topic.
	ErrStreamNotFound = errors.New("stream not found")
	// ErrGroupNotFound: the stream has no such group.
	ErrGroupNotFound = errors.New("group not found")
	// ErrNotFound: there is no such dead letter.
	ErrNotFound = errors.New("not found")
	// ErrForbidden: the user or key may not do this, or is not known. The error names the
	// missing permission.
	ErrForbidden = errors.New("not permitted")
	// ErrTooLarge: the server will never accept a message of this size. Nothing was stored.
	ErrTooLarge = errors.New("message too large")
	// ErrUnsupported: the backend cannot do this.
	ErrUnsupported = errors.New("not supported by this backend")
	// ErrClosed: the backend was closed.
	ErrClosed = errors.New("closed")
)

// FullError is a refusal by the server itself, because it has no room or is overloaded.
// Nothing was stored.
type FullError struct {
	// Reason is ReasonQueueFull or ReasonBufferFull if there may soon be room, and
	// ReasonLoadShedding if the server refuses what its workers cannot do in time.
	Reason     string
	RetryAfter time.Duration // what the server asks for; 0 if it does not say
	Err        error         // the server's error
}

// URLError is an error in a URL itself, as opposed to one in reaching what it names. It
// contains no secret of the URL.
type URLError struct{ Err error }

func (e *URLError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *URLError) Unwrap() error { return e.Err }

// OpenError says that the stream of a URL could not be reached.
type OpenError struct {
	Info Info // Kind, Stream and Group: what the URL names
	Err  error
}

func (e *OpenError) Error() string { return e.Err.Error() }

// Unwrap returns what went wrong.
func (e *OpenError) Unwrap() error { return e.Err }

// Reasons of a refusal, here and in the library's QueueFullError.
const (
	ReasonLoadShedding = "load_shedding"
	ReasonBufferFull   = "buffer_full"
	ReasonQueueFull    = "queue_full"
)

func (e *FullError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// Unwrap returns the server's error.
func (e *FullError) Unwrap() error { return e.Err }

// Retryable reports whether the same call may succeed later. Repeating an append may
// store messages twice if err is ErrOutcomeUnknown and they have no idempotency key.
func Retryable(err error) bool {
	var full *FullError
	switch {
	case err == nil, errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
		return false
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrOutcomeUnknown), errors.As(err, &full):
		return true
	}
	return errors.Is(err, context.DeadlineExceeded)
}
