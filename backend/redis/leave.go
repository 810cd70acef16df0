package redis

import (
	"context"
	"sync"
	"time"
)

const (
	// forgetAfter is how long a weir consumer that holds nothing stays in the group
	// without a sign of life: its process has crashed. One that comes back is simply
	// added again. Removing other programs' consumers is up to them.
	forgetAfter = 24 * time.Hour
	// forgetEvery is how often a process looks for them.
	forgetEvery = time.Hour
	// leaveFor bounds how long Close waits for the server.
	leaveFor = 300 * time.Millisecond
	// maxNames bounds the consumers that Close removes.
	maxNames = 1000
)

// consumers are the names this process has claimed under.
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

// leave removes this process's consumers that hold nothing from the group: each process
// uses new names, and the group would grow for ever. Whatever fails is left to the next
// process that ends.
func (b *Backend) leave(ctx context.Context) {
	names := b.names.list()
	if len(names) == 0 {
		return
	}
	_ = b.forgetSilent(ctx, names...)
}

// forgetSilent removes from the group the named consumers and the weir consumers that
// have long been silent, unless they hold something.
func (b *Backend) forgetSilent(ctx context.Context, names ...any) error {
	args := append([]any{b.keys.group, b.silence.Milliseconds()}, names...)
	cmd := leaveScript.cmd(ctx, []string{b.keys.stream, b.keys.workers}, args...)
	loadScript(cmd) // there may be no time to send it again
	return b.do(ctx, cmd)
}
