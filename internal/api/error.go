package api

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"
)

// Code is the machine-readable code of an error answer.
type Code string

// The codes of the contract. One code has exactly one HTTP status.
const (
	CodeInvalidRequest          Code = "invalid_request"
	CodeBatchTooLarge           Code = "batch_too_large"
	CodeRecordTooLarge          Code = "record_too_large"
	CodeUnauthorized            Code = "unauthorized"
	CodeForbidden               Code = "forbidden"
	CodeTopicNotFound           Code = "topic_not_found"
	CodeRouterNotFound          Code = "router_not_found"
	CodeNotFound                Code = "not_found"
	CodeMethodNotAllowed        Code = "method_not_allowed"
	CodeNotAcceptable           Code = "not_acceptable"
	CodeTopicExistsIncompatible Code = "topic_exists_incompatible"
	CodeTopicNotEmpty           Code = "topic_not_empty"
	CodeRouterCycle             Code = "router_cycle"
	CodeNotAQueue               Code = "not_a_queue"
	CodeIdempotencyKeyReused    Code = "idempotency_key_reused"
	CodePayloadTooLarge         Code = "payload_too_large"
	CodeUnsupportedMediaType    Code = "unsupported_media_type"
	CodeTopicFull               Code = "topic_full"
	CodeThrottled               Code = "throttled"
	CodeInternal                Code = "internal"
	CodeDiskFull                Code = "disk_full"
	CodeNotReady                Code = "not_ready"
	CodeShuttingDown            Code = "shutting_down"
)

var statusOf = map[Code]int{
	CodeInvalidRequest:          http.StatusBadRequest,
	CodeBatchTooLarge:           http.StatusBadRequest,
	CodeRecordTooLarge:          http.StatusBadRequest,
	CodeUnauthorized:            http.StatusUnauthorized,
	CodeForbidden:               http.StatusForbidden,
	CodeTopicNotFound:           http.StatusNotFound,
	CodeRouterNotFound:          http.StatusNotFound,
	CodeNotFound:                http.StatusNotFound,
	CodeMethodNotAllowed:        http.StatusMethodNotAllowed,
	CodeNotAcceptable:           http.StatusNotAcceptable,
	CodeTopicExistsIncompatible: http.StatusConflict,
	CodeTopicNotEmpty:           http.StatusConflict,
	CodeRouterCycle:             http.StatusConflict,
	CodeNotAQueue:               http.StatusConflict,
	CodeIdempotencyKeyReused:    http.StatusConflict,
	CodePayloadTooLarge:         http.StatusRequestEntityTooLarge,
	CodeUnsupportedMediaType:    http.StatusUnsupportedMediaType,
	CodeTopicFull:               http.StatusUnprocessableEntity,
	CodeThrottled:               http.StatusTooManyRequests,
	CodeInternal:                http.StatusInternalServerError,
	CodeDiskFull:                http.StatusInsufficientStorage,
	CodeNotReady:                http.StatusServiceUnavailable,
	CodeShuttingDown:            http.StatusServiceUnavailable,
}

// Status returns the HTTP status that goes with the code; an unknown code is 500.
func (c Code) Status() int {
	if s, ok := statusOf[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Error is an error answer of the contract: a code, a sentence for people that
// names the field and the fix, and the detail members of the code.
type Error struct {
	Code    Code
	Message string
	Detail  map[string]any // nil if there is nothing to add
	Err     error          // the cause, for logs; never sent

	// RetryAfter is how long to wait before trying again; 0 if unknown. It is sent as
	// one more member of the detail, in milliseconds.
	RetryAfter time.Duration
}

// DetailRetryAfter is the detail member of Error.RetryAfter.
const DetailRetryAfter = "retry_after_ms"

// DetailReason is the detail member that tells one 429 from the others:
// ReasonLoadShedding says that a queue refuses what its workers cannot do in time, so
// that trying again at once is no use.
const (
	DetailReason       = "reason"
	ReasonLoadShedding = "load_shedding"
)

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error without detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With adds a detail member and returns the same Error.
func (e *Error) With(key string, value any) *Error {
	if e.Detail == nil {
		e.Detail = make(map[string]any, 2)
	}
	e.Detail[key] = value
	return e
}

// DiskRetryAfter is when to try again what a full disk could not take.
const DiskRetryAfter = 5 * time.Second

// NotStored is the answer when a file outside the log could not be written: CodeDiskFull
// if its file system has no room, else CodeInternal. It wraps err, which is for the log.
func NotStored(err error, message string) *Error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return (&Error{Code: CodeDiskFull, Message: message + "; the disk is full: make room on it, then try again", Err: err}).After(DiskRetryAfter)
	}
	return &Error{Code: CodeInternal, Message: message + "; the server's log has the details", Err: err}
}

// TopicAdvice ends the message for an absent topic: it tells callers of /v0 how to make one.
const TopicAdvice = `; create it with PUT or a write: a log, unless its config has "type":"queue"`

// TopicNotFound is the answer for an absent topic; its advice depends on whether a
// topic can have that name.
func TopicNotFound(topic string) *Error {
	if !ValidTopicName(topic) {
		return Errorf(CodeTopicNotFound, "no topic can be named %.300q; a topic name has %s", topic, topicNameRule).With("topic", beginning(topic, MaxNameBytes))
	}
	return Errorf(CodeTopicNotFound, "topic %q does not exist"+TopicAdvice, topic).With("topic", topic)
}

// OverLimit is the answer when a resource cap of contract 15 is reached: 429 with limit
// and max.
func OverLimit(limit string, max int64) *Error {
	return Errorf(CodeThrottled, "the server's cap %s = %d is reached; free some or raise the cap", limit, max).
		With("limit", limit).With("max", max)
}

// OverFixed is OverLimit for a cap that is no setting.
func OverFixed(limit string, max int64) *Error {
	return Errorf(CodeThrottled, "the server's cap %s = %d is reached; free some", limit, max).
		With("limit", limit).With("max", max)
}

// After sets RetryAfter and returns the same Error.
func (e *Error) After(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

// Sheds reports whether a queue refused what its workers cannot do in time.
func (e *Error) Sheds() bool {
	return e.Code == CodeThrottled && e.Detail[DetailReason] == ReasonLoadShedding
}

// Retryable reports whether the same request may succeed later: after an overload,
// below a cap again, once work is done or room is made, or when the server is ready or
// its disk is back.
func (e *Error) Retryable() bool {
	switch e.Code {
	case CodeTopicFull, CodeDiskFull:
		return true
	}
	switch e.Code.Status() {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInternalServerError:
		return true
	}
	return false
}

// Sentence returns the message of err for humans, without its code.
func Sentence(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// IsCode reports whether err is an Error with the code.
func IsCode(err error, code Code) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == code
}
