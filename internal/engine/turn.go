package engine

import "context"

// turn is a lock that is held for long and while time passes: a channel, so that
// waiting for it lets the clock of a simulation go on.
type turn chan struct{}

func (t turn) Lock() { t <- struct{}{} }

func (t turn) Unlock() { <-t }

// lock is Lock for a caller that may give up, or is told to.
func (t turn) lock(ctx, stop context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-stop.Done():
		return errShuttingDown()
	}
}

// try is Lock if that needs no waiting, and reports whether it did.
func (t turn) try() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// take waits for a turn, or for the end of ctx.
func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signal leaves word in c, which holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
