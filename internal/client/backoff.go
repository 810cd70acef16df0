package client

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the wait before try number n (1 is the first retry): base doubled
// n−1 times, at most limit, of which a random half is taken off so that many
// clients do not come back together.
func Backoff(n int, base, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < n && d < limit; i++ {
		d *= 2
	}
	d = min(d, limit)
	if d <= 1 {
		return d
	}
	return d/2 + rand.N(d/2+1)
}

// Sleep waits for d or the end of ctx and returns the error of ctx in that case.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
