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
	// ErrOutcomeUnknown: the message may or may not have been stored. Publishing it
	// again with the same IdempotencyKey stores it at most once.
	ErrOutcomeUnknown = backend.ErrOutcomeUnknown
	// ErrUnavailable: nothing was done; the backend cannot be reached or is not ready.
	ErrUnavailable = backend.ErrUnavailable
	// ErrLeaseLost: the lease ran out and another worker has the message. It is the
	// cause of the handler's cancelled context.
	ErrLeaseLost = backend.ErrLeaseLost
	// ErrStreamNotFound: there is no such stream or topic.
	ErrStreamNotFound = backend.ErrStreamNotFound
	// ErrGroupNotFound: the stream has no such group.
	ErrGroupNotFound = backend.ErrGroupNotFound
	// ErrForbidden: the URL's user or key may not do this, or is not known. The error names
	// the missing permission.
	ErrForbidden = backend.ErrForbidden
	// ErrExpired: the message's Deadline passed before it was stored. It is not stored.
	ErrExpired = errors.New("the message's deadline has passed")
	// ErrTooLarge: the server will never accept a message of this size. It is not stored.
	ErrTooLarge = backend.ErrTooLarge
	// ErrUnsupported: the backend cannot do this.
	ErrUnsupported = backend.ErrUnsupported
	// ErrClosed: the stream or the producer was closed.
	ErrClosed = backend.ErrClosed
	// ErrHandlerTimeout is the cause when a handler's context is cancelled because it
	// ran longer than PoolConfig.HandlerTimeout.
	ErrHandlerTimeout = errors.New("handler timeout")
	// ErrStopped is the cause when a handler's context is cancelled because it outlasted
	// PoolConfig.DrainTimeout, or by Pool.Cancel.
	ErrStopped = errors.New("the pool was stopped")
)

// Reason says why a publish was refused.
type Reason string

// The reasons of a QueueFullError.
const (
	LoadShedding Reason = backend.ReasonLoadShedding // more than the workers can do in time, or too many requests at once or in the window
	BufferFull   Reason = backend.ReasonBufferFull   // the client's own buffer is full
	QueueFull    Reason = backend.ReasonQueueFull    // the queue stayed too deep for too long, or the server has no room
)

// QueueFullError is returned by every publish that is refused because of load. The
// message was not stored.
type QueueFullError struct {
	Queue      string // name of the stream
	Depth      int64  // backlog when it was refused; -1 if it was not known
	MaxDepth   int64  // ProducerConfig.MaxDepth
	Reason     Reason
	Limit      string        // the limit that was exceeded, and by what, for people
	RetryAfter time.Duration // when to try again; always positive
	Err        error         // the server's error; nil if the guard refused
}

func (e *QueueFullError) Error() string {
	limit := e.Limit
	if limit == "" {
		limit = "too much load"
	}
	text := fmt.Sprintf("publish to %q refused, %s: %s; try again in %s", e.Queue, e.Reason, limit, e.RetryAfter.Round(time.Millisecond))
	err := e.Err
	if full, ok := err.(*backend.FullError); ok && Reason(full.Reason) == e.Reason {
		err = full.Err // the reason has been said
	}
	if err != nil {
		text += ": " + err.Error()
	}
	return text
}

// Unwrap returns the server's error, if it was the server that refused.
func (e *QueueFullError) Unwrap() error { return e.Err }

// OtherReadersError says that a redrive was not started because its messages would
// reach others besides the group in which they failed. RedriveConfig.ToOthers sends them
// anyway.
type OtherReadersError struct {
	Stream string
	Group  string   // whose letters they are
	Others []string // who else would handle the messages: groups, some with a consumer that is not weir's
}

func (e *OtherReadersError) Error() string {
	return fmt.Sprintf("dead letters of group %q sent back to stream %q would also be handled by others, which weir cannot prevent: %s",
		e.Group, e.Stream, strings.Join(e.Others, ", "))
}

// BatchError is returned by PublishBatch if some messages may not be stored.
type BatchError struct {
	Errs []error // one per message, nil for those that are stored
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
	return fmt.Sprintf("%d of %d messages not confirmed as stored: %v", failed, len(e.Errs), first)
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

// Poison marks err as permanent: the message goes to the dead letters at once
// instead of being retried. Without an error it still does. What it returns is a *PoisonError.
func Poison(err error) error {
	return &PoisonError{err}
}

// PoisonError is what Poison returns; errors.As finds it in a handler's error, as a pool does.
type PoisonError struct {
	Err error // may be nil
}

func (e *PoisonError) Error() string {
	if e.Err == nil {
		return "poison"
	}
	return e.Err.Error()
}

// Unwrap returns the error that was marked, nil if there is none.
func (e *PoisonError) Unwrap() error { return e.Err }

// RetryIn wraps err so that the message is retried after d instead of the pool's own
// delay. Without an error it still is. On a weir queue, also in this process, a longer d
// than 24 h is 24 h. What it returns is a *RetryError.
func RetryIn(d time.Duration, err error) error {
	return &RetryError{d, err}
}

// RetryError is what RetryIn returns; errors.As finds it in a handler's error, as a pool does.
type RetryError struct {
	Delay time.Duration
	Err   error // may be nil
}

func (e *RetryError) Error() string {
	if e.Err == nil {
		return "try again"
	}
	return e.Err.Error()
}

// Unwrap returns the error that was wrapped, nil if there is none.
func (e *RetryError) Unwrap() error { return e.Err }
