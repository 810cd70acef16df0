package redis

import (
	"sync"

	"github.com/redis/go-redis/v9"
)

// readers are the blocking reads that have begun.
type readers struct {
	mu    sync.Mutex
	over  bool
	begun sync.WaitGroup
}

// begin runs a read in a goroutine of its own, unless the backend is closed.
func (r *readers) begin(read func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return &notSent{redis.ErrClosed}
	}
	r.begun.Go(read)
	return nil
}

// end waits for the reads that have begun. No other begins after it.
func (r *readers) end() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.begun.Wait()
}
