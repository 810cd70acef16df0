package weir

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

// Errors that callers test for with errors.Is.
var (
	// ErrOutcomeUnknown: the message may or may not be stored. Publishing it again
	// with the same IdempotencyKey stores it at most once.
	ErrOutcomeUnknown = backend.ErrOutcomeUnknown
	// ErrUnavailable: nothing was done; the backend cannot be reached or is not ready.
	ErrUnavailable = backend.ErrUnavailable
	// ErrLeaseLost: the delivery ran out and the message is somebody else's. It is
	// the cause of the context that a handler then finds cancelled.
	ErrLeaseLost = backend.ErrLeaseLost
	// ErrStreamNotFound: there is no such stream or topic.
	ErrStreamNotFound = backend.ErrStreamNotFound
	// ErrGroupNotFound: the stream has no such group.
	ErrGroupNotFound = backend.ErrGroupNotFound
	// ErrForbidden: the user of the URL, or its key, may not do this. The error names what
	// is missing.
	ErrForbidden = backend.ErrForbidden
	// ErrTooLarge: the server never takes a message of this size. It is not stored.
	ErrTooLarge = backend.ErrTooLarge
	// ErrUnsupported: the backend cannot do this.
	ErrUnsupported = errors.New("not supported by this backend")
	// ErrClosed: the stream was closed.
	ErrClosed = backend.ErrClosed
	// ErrHandlerTimeout is the cause of the context of a handler that ran past
	// PoolConfig.HandlerTimeout.
	ErrHandlerTimeout = errors.New("handler timeout")
	// ErrStopped is the cause of the context of a handler that outlasts
	// PoolConfig.DrainTimeout or is ended by Pool.Cancel.
	ErrStopped = errors.New("the pool was stopped")
)

// Reason says why a publish was refused.
type Reason string

// The reasons of a QueueFullError.
const (
	LoadShedding Reason = backend.ReasonLoadShedding // too many requests at once or in the window
	BufferFull   Reason = backend.ReasonBufferFull   // the client's own buffer is full
	QueueFull    Reason = backend.ReasonQueueFull    // the queue stayed too deep for too long, or the server has no room
)

// QueueFullError is the one way in which a publish is refused for load. The
// message was not stored.
type QueueFullError struct {
	Queue      string // name of the stream
	Depth      int64  // backlog when it was refused; -1 if it was not known
	MaxDepth   int64  // QUEUE_MAX_DEPTH
	Reason     Reason
	Limit      string        // which limit was passed and by what, for people
	RetryAfter time.Duration // when a try may be of use, more than 0
	Err        error         // what the server said; nil if the refusal is the guard's own
}

func (e *QueueFullError) Error() string {
	limit := e.Limit
	if limit == "" {
		limit = "too much load"
	}
	text := fmt.Sprintf("publish to %q refused, %s: %s; try again in %s", e.Queue, e.Reason, limit, e.RetryAfter)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns what the server said, if it was the server that refused.
func (e *QueueFullError) Unwrap() error { return e.Err }

// OtherReadersError says that a redrive would not reach the group alone that its letters failed
// in, so that it was not begun. RedriveConfig.ToOthers sends them all the same.
type OtherReadersError struct {
	Stream string
	Group  string   // whose letters they are
	Others []string // who would handle the messages too: groups, some with a consumer that is not weir's
}

func (e *OtherReadersError) Error() string {
	return fmt.Sprintf("dead letters of group %q sent back to stream %q would be handled by others too, which weir cannot keep from it: %s",
		e.Group, e.Stream, strings.Join(e.Others, ", "))
}

// BatchError is returned by PublishBatch if not every message was stored.
type BatchError struct {
	Errs []error // one for each message, nil for those that are stored
}

func (e *BatchError) Error() string {
	var first error
	failed := 0
	for _, err := range e.Errs {
		if err != nil {
			failed++
			if first == nil {
				first = err
			}
		}
	}
	return fmt.Sprintf("%d of %d messages not stored for certain: %v", failed, len(e.Errs), first)
}

// Unwrap returns the errors of the messages that failed.
func (e *BatchError) Unwrap() []error {
	var errs []error
	for _, err := range e.Errs {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Poison marks err as one that no further try can help: the message goes to the
// dead letters at once.
func Poison(err error) error { return &poisonError{err} }

type poisonError struct{ err error }

func (e *poisonError) Error() string { return e.err.Error() }
func (e *poisonError) Unwrap() error { return e.err }

// RetryIn marks err as one after which the message is tried again in d instead
// of after the pool's own delay.
func RetryIn(d time.Duration, err error) error { return &retryError{d, err} }

type retryError struct {
	delay time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }
