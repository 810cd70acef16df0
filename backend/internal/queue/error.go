package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// translate wraps an error of the service in the error of package backend that fits. It
// is the only place where codes are translated.
func translate(err error, write bool) error {
	var e *api.Error
	if !errors.As(err, &e) {
		if write || !errors.Is(err, backend.ErrOutcomeUnknown) {
			return err
		}
		return &unread{nameOfRead(err), err}
	}
	switch e.Code {
	case api.CodeTopicNotFound:
		return fmt.Errorf("%w: %w", backend.ErrStreamNotFound, plainly{err})
	case api.CodeNotAQueue:
		if write { // as of a message with a delay
			return fmt.Errorf("%w: %w", backend.ErrUnsupported, plainly{err})
		}
		return fmt.Errorf("%w: %w; open a topic of type queue, or follow this one with a reader", backend.ErrGroupNotFound, err)
	case api.CodeTopicFull, api.CodeThrottled, api.CodeDiskFull:
		full := &backend.FullError{Reason: backend.ReasonQueueFull, RetryAfter: e.RetryAfter, Err: err}
		if e.Sheds() {
			full.Reason = backend.ReasonLoadShedding
		}
		return full
	case api.CodeForbidden, api.CodeUnauthorized:
		return fmt.Errorf("%w: %w", backend.ErrForbidden, err)
	case api.CodeRecordTooLarge, api.CodePayloadTooLarge:
		return fmt.Errorf("%w: %w", backend.ErrTooLarge, err)
	case api.CodeNotReady, api.CodeShuttingDown:
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	case api.CodeInternal:
		if write {
			return fmt.Errorf("%w: %w", backend.ErrOutcomeUnknown, err)
		}
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return err
}

// plainly is an error without its code, and that of a topic that does not exist without how a
// caller of /v0 makes one.
type plainly struct{ error }

func (e plainly) Error() string {
	return strings.TrimSuffix(api.Sentence(e.error), api.TopicAdvice)
}

func (e plainly) Unwrap() error { return e.error }

// unread is a read that was not answered. It has changed nothing, so that its outcome is not
// unknown, as the client says; why it was not answered can be asked for.
type unread struct{ name, err error }

func (e *unread) Error() string { return fmt.Sprintf("%v: %v", e.name, e.err) }

func (e *unread) Unwrap() []error {
	if why := errors.Unwrap(e.err); why != nil {
		return []error{e.name, why}
	}
	return []error{e.name}
}

// nameOfRead returns the error of package backend, or the context's, for a read that
// was not answered.
func nameOfRead(err error) error {
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, ended) {
			return ended
		}
	}
	return backend.ErrUnavailable
}

// badLease is the error for a lease this package did not make.
func badLease(id string) error {
	return fmt.Errorf("%q is not the ID of a message of a weir queue; it is a number", id)
}
