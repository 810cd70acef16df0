package backend

import (
	"math"
	"strconv"
	"time"
)

// Headers that weir writes itself. All other headers of a message are its producer's.
const (
	HeaderPrefix   = "weir-"
	HeaderPriority = "weir-priority" // a tier's name; absent: normal
	HeaderFairKey  = "weir-fair-key"
	HeaderDeadline = "weir-deadline"       // Message.Deadline, in Unix ms; absent: none
	HeaderLimit    = "weir-max-deliveries" // Message.MaxDeliveries; absent: none
	HeaderTimeout  = "weir-timeout"        // Message.Timeout in ms; absent: none
	HeaderTag      = "weir-tag"            // the record's tag on a weir server
	HeaderTrace    = "traceparent"         // W3C trace context
	HeaderState    = "tracestate"          // what vendors add to it

	// HeaderJSON says that Data is the JSON value to store, even if it is a string. It is
	// for backends whose records are JSON; they do not store the header.
	HeaderJSON = "weir-json"

	// FieldEnqueued is when the message was published, in Unix milliseconds.
	FieldEnqueued = "enqueue_ts"
)

// Headers of a dead letter, in addition to the message's own.
const (
	HeaderDeadStream   = "weir-dead-stream"
	HeaderDeadGroup    = "weir-dead-group"
	HeaderDeadID       = "weir-dead-id"
	HeaderDeadAttempts = "weir-dead-attempts"
	HeaderDeadReason   = "weir-dead-reason"
	HeaderDeadError    = "weir-dead-error"
	HeaderDeadConsumer = "weir-dead-consumer"
	HeaderDeadAt       = "weir-dead-at"  // Unix ms
	HeaderRedrives     = "weir-redrives" // stays on the message that is sent back
	// HeaderRedriveGroup is the group to which a message was sent back; handlers do not see it.
	HeaderRedriveGroup = "weir-redrive-group"
)

// lastDeadline is the latest that HeaderDeadline can tell, in the year 292,278,994.
var lastDeadline = time.UnixMilli(math.MaxInt64)

// FormatDeadline returns a deadline as the value of HeaderDeadline. A later one than that
// can tell becomes the latest: its milliseconds would be negative, or long ago.
func FormatDeadline(t time.Time) string {
	if t.After(lastDeadline) {
		t = lastDeadline
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// DeadlineOf returns the deadline in a message's headers, zero if there is none. What is
// not a number was not written by weir and is ignored.
func DeadlineOf(headers map[string]string) time.Time {
	text, ok := headers[HeaderDeadline]
	if !ok {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
