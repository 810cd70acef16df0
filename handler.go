package weir

import "context"

// Handler processes one delivery. A nil error acknowledges it, even if ctx has ended
// (but not after HandlerTimeout); any other error gives it back to be retried after a
// delay (see Poison and RetryIn). ctx ends when the handler has to stop; context.Cause
// tells why. It does not end with the message's Deadline, before which the handler began.
type Handler func(ctx context.Context, d *Delivery) error
