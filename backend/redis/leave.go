package redis

import (
	"context"
	"sync"
	"time"
)

const (
	// forgetAfter is how long a consumer that holds nothing stays in the group
	// without being used. One that comes back is simply there again.
	forgetAfter = 7 * 24 * time.Hour
	// leaveFor bounds what Close waits for the server.
	leaveFor = 300 * time.Millisecond
	// maxNames bounds the consumers that Close removes.
	maxNames = 1000
)

// consumers are the names under which this process has claimed.
type consumers struct {
	mu struct {
		sync.Mutex
		last  string
		names map[string]struct{}
	}
}

func (c *consumers) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name == c.mu.last || len(c.mu.names) == maxNames {
		return
	}
	if c.mu.names == nil {
		c.mu.names = map[string]struct{}{}
	}
	c.mu.names[name], c.mu.last = struct{}{}, name
}

func (c *consumers) list() (names []any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.mu.names {
		names = append(names, name)
	}
	return names
}

// leave takes the consumers of this process that hold nothing out of the group:
// each process has other names, and the group would grow for ever. What fails is
// left to the next process that ends.
func (b *Backend) leave() {
	names := b.names.list()
	if len(names) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(b.closing, leaveFor)
	defer cancel()
	args := append([]any{b.keys.group, forgetAfter.Milliseconds()}, names...)
	_ = b.do(ctx, leaveScript.cmd(ctx, []string{b.keys.stream}, args...))
}
