package redis

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errEnded is of what Close lets begin no more.
var errEnded = &notSent{redis.ErrClosed}

// readers are claims, or reads, that have begun.
type readers struct {
	mu    sync.Mutex
	over  bool
	begun sync.WaitGroup
}

// enter counts what its caller does until it calls begun.Done.
func (r *readers) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errEnded
	}
	r.begun.Add(1)
	return nil
}

// begin runs a read in a goroutine of its own.
func (r *readers) begin(read func()) error {
	if err := r.enter(); err != nil {
		return err
	}
	go func() {
		defer r.begun.Done()
		read()
	}()
	return nil
}

// end waits for what has begun, at most until ctx ends. Nothing else begins after it.
func (r *readers) end(ctx context.Context) {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	over := make(chan struct{})
	go func() {
		r.begun.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}
