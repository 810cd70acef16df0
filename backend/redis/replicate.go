package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

const (
	// replicaWait is how long an append waits for a replica if the URL asks for
	// fsync and there are replicas. Without one in time its outcome is unknown.
	replicaWait = 2 * time.Second
	// countEvery is how old the number of replicas, and what is known of the server's
	// durability, may be where the URL asks for one.
	countEvery = time.Second
)

// replicas is how many the server has, as it said last.
type replicas struct {
	number   atomic.Int64
	at       atomic.Int64  // Unix ns; 0: to be asked again
	counting chan struct{} // holds a token while somebody asks
}

func (r *replicas) set(replication string) {
	n, _ := strconv.ParseInt(infoField(replication, "connected_slaves"), 10, 64)
	r.number.Store(n)
	r.at.Store(time.Now().UnixNano())
}

func (r *replicas) fresh() bool {
	return time.Now().UnixNano()-r.at.Load() < int64(countEvery)
}

// guarantee makes sure that the server keeps what the URL asks for, and returns
// the command that waits for a replica, nil if nobody asked for it or there is none.
func (b *Backend) guarantee(ctx context.Context) (wait *redis.IntCmd, err error) {
	if b.set.durability == "" {
		return nil, nil
	}
	b.lookAgain(ctx)
	if err := b.features.Load().check(b.set); err != nil {
		return nil, fmt.Errorf("redis: %w: the server has changed: %w", backend.ErrUnavailable, err)
	}
	if b.set.durability != classes[0] || b.replicas.number.Load() == 0 {
		return nil, nil
	}
	return redis.NewIntCmd(ctx, "WAIT", 1, replicaWait.Milliseconds()), nil
}

// lookAgain detects the server's settings and replicas anew if they are not fresh:
// both change without a connection of this process ending. What cannot be asked stays.
func (b *Backend) lookAgain(ctx context.Context) {
	if b.replicas.fresh() {
		return
	}
	select {
	case b.replicas.counting <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-b.replicas.counting }()
	if b.replicas.fresh() {
		return
	}
	_, _ = b.detect(ctx)
	b.replicas.at.Store(time.Now().UnixNano())
}

// replicated returns why a stored message may be lost all the same.
func (b *Backend) replicated(wait *redis.IntCmd) error {
	switch {
	case wait.Err() != nil:
		return fmt.Errorf("redis: stored, not known to be on a replica: %w: %w", backend.ErrOutcomeUnknown, wait.Err())
	case wait.Val() < 1:
		b.replicas.at.Store(0) // there may be none any more
		return fmt.Errorf("redis: stored, no replica has it after %s: %w", replicaWait, backend.ErrOutcomeUnknown)
	}
	return nil
}

// confirmation is what the WAIT behind some appends has said. It speaks for the
// appends of its own round trip alone: those that are sent again need it again.
type confirmation struct {
	wait  *redis.IntCmd // nil: there is none
	heard bool
	err   error
	least int64
}

// waitOf returns the WAIT at the end of commands.
func waitOf(cmds []redis.Cmder) *redis.IntCmd {
	if len(cmds) > 1 && isWait(cmds[len(cmds)-1]) {
		return cmds[len(cmds)-1].(*redis.IntCmd)
	}
	return nil
}

func isWait(cmd redis.Cmder) bool { return cmd.Args()[0] == "WAIT" }

// hear takes the answer if something of the round trip has been stored.
func (c *confirmation) hear(sent []redis.Cmder) {
	if c.wait == nil {
		return
	}
	for _, cmd := range sent {
		if cmd.Err() != nil || isWait(cmd) {
			continue
		}
		if err := c.wait.Err(); err != nil {
			c.err = err
		}
		if n := c.wait.Val(); !c.heard || n < c.least {
			c.least = n
		}
		c.heard = true
		return
	}
}

// with adds the WAIT to what is sent again.
func (c *confirmation) with(refused []redis.Cmder) []redis.Cmder {
	if c.wait == nil {
		return refused
	}
	return append(refused, c.wait)
}

// settle leaves the worst answer in the command.
func (c *confirmation) settle() {
	if c.heard {
		c.wait.SetErr(c.err)
		c.wait.SetVal(c.least)
	}
}
