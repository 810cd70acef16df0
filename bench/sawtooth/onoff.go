package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// onOff is a guard as guards begin: while more than onOffLimit messages are
// unread the producer stops, and below that it goes on at full speed.
type onOff struct {
	mu   sync.Mutex
	open chan struct{} // closed while publishing is allowed
}

const (
	onOffLimit = 200
	onOffPoll  = 100 * time.Millisecond
)

// run looks at the stream until ctx ends.
func (g *onOff) run(ctx context.Context, client *redis.Client, key string) {
	for on := false; ; {
		groups, err := client.XInfoGroups(ctx, key).Result()
		if now := err == nil && len(groups) == 1 && groups[0].Lag <= onOffLimit; now != on {
			on = now
			g.turn(on)
		}
		if !sleep(ctx, onOffPoll) {
			return
		}
	}
}

func (g *onOff) turn(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		close(g.open)
		return
	}
	g.open = make(chan struct{})
}

// await returns once publishing is allowed, and how long that took.
func (g *onOff) await(ctx context.Context) time.Duration {
	began := time.Now()
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
	case <-ctx.Done():
	}
	return time.Since(began)
}
