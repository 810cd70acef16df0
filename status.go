package weir

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"time"
)

// HTTPStatus is what an HTTP handler answers whose publish ended with err: the status,
// and the value of the header Retry-After if the client may repeat its request, otherwise
// empty. The delay is what the error asks for, a second if it does not say, and up to
// half more by chance, a second at least, so that not all clients come back at once.
//
//	nil                                              200
//	*QueueFullError with LoadShedding                429, Retry-After
//	any other *QueueFullError                        503, Retry-After
//	ErrOutcomeUnknown                                504, Retry-After: safe with an IdempotencyKey
//	ErrUnavailable, ErrClosed, the context's error   503, Retry-After
//	ErrTooLarge                                      413
//	ErrExpired                                       504
//	any other                                        500
func HTTPStatus(err error) (status int, retryAfter string) {
	var full *QueueFullError
	switch {
	case err == nil:
		return 200, ""
	case errors.Is(err, ErrOutcomeUnknown):
		return 504, scattered(time.Second)
	case errors.As(err, &full) && full.Reason == LoadShedding:
		return 429, scattered(full.RetryAfter)
	case errors.As(err, &full):
		return 503, scattered(full.RetryAfter)
	case errors.Is(err, ErrTooLarge):
		return 413, ""
	case errors.Is(err, ErrExpired):
		return 504, ""
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return 503, scattered(time.Second)
	}
	return 500, ""
}

// scattered returns d in whole seconds, rounded up, and up to half more, at least one second: most
// delays are shorter than that, and whole seconds are all that a header can say.
func scattered(d time.Duration) string {
	d = min(max(d, time.Second), math.MaxInt64/2) // half more of it is still a time
	whole := int64((d + time.Second - 1) / time.Second)
	return strconv.FormatInt(whole+rand.N(max(whole/2, 1)+1), 10)
}
