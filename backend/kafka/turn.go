package kafka

import (
	"context"
	"fmt"
	"time"
)

// turn is a lock for who asks the brokers: to wait for it ends with the context.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kafka: %w", ctx.Err())
	}
}

func (t turn) give() { <-t }

// pause waits, and reports whether neither ctx nor the handle has ended meanwhile.
func (b *Backend) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
	case <-b.closing.Done():
	}
	return false
}
