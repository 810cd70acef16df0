package weir

import "context"

// Handler works on one delivery. A nil error acknowledges it, also when ctx has ended
// (but not after HandlerTimeout); any other gives it back to be tried again after a delay
// (see Poison and RetryIn). ctx ends when the handler has to stop; context.Cause tells why.
type Handler func(ctx context.Context, d *Delivery) error
