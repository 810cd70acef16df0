package backend

// Headers that weir writes itself. All other headers of a message are its producer's.
const (
	HeaderPrefix   = "weir-"
	HeaderPriority = "weir-priority" // a tier's name; absent: normal
	HeaderFairKey  = "weir-fair-key"
	HeaderTag      = "weir-tag"    // the record's tag on a weir server
	HeaderTrace    = "traceparent" // W3C trace context

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
