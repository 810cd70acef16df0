package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

const (
	// replicaWait is how long an append waits for a replica if the URL asks for fsync
	// and there are replicas. If none confirms in time, the outcome is unknown.
	replicaWait = 2 * time.Second
	// countEvery is how old the number of replicas, and the knowledge of the server's
	// durability, may get if the URL asks for a durability.
	countEvery = time.Second
	// aloneFor is how long a server that has lost its last replica still has to be confirmed:
	// it may be the replica that has taken over. In a failover that somebody asks Sentinel for,
	// the old primary takes writes for a second or two before anybody hears of the new one, and
	// then throws them away; so it does if it is started again at once after a crash.
	aloneFor = 5 * time.Second
)

// replicas is how many replicas the server has, as last reported.
type replicas struct {
	number   atomic.Int64
	at       atomic.Int64  // Unix ns; 0: ask again
	counting chan struct{} // holds a token while someone asks

	mu      sync.Mutex
	of      string    // run ID of the server; guarded by mu
	history string    // of its data (master_replid); guarded by mu
	alone   time.Time // since when it has none, though it had; guarded by mu
}

// set takes what a server says of itself in INFO.
func (r *replicas) set(server, replication string, cluster bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, _ := strconv.ParseInt(infoField(replication, "connected_slaves"), 10, 64)
	now := time.Now()
	of, history := infoField(server, "run_id"), infoField(replication, "master_replid")
	// A replica that has taken over goes on with the history of its primary, and has maybe no other to wait for. Any
	// other server is the one before, started again, which may be being replaced. In a Cluster it may be another
	// master, and one that was started again takes no writes before it knows who has its slots.
	succeeds := of != r.of && (cluster || infoField(replication, "master_replid2") == r.history)
	if n > 0 || succeeds || r.number.Load() == 0 {
		r.alone = time.Time{}
	} else if r.alone.IsZero() {
		r.alone = now
	}
	r.of, r.history = of, history
	if r.alone.IsZero() || now.Sub(r.alone) > aloneFor {
		r.number.Store(n)
	}
	r.at.Store(now.UnixNano())
}

func (r *replicas) fresh() bool { return younger(&r.at, countEvery) }

// guarantee makes sure that the server is as durable as the URL asks, and returns the
// command that waits for a replica; nil if that was not asked for or there is none.
func (b *Backend) guarantee(ctx context.Context) (wait *redis.IntCmd, err error) {
	switch {
	case b.set.durability == "" && b.lent:
		return nil, b.unfit(ctx)
	case b.set.durability == "":
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

// lookAgain detects the server's settings and replicas again if they are stale: both
// change without any connection of this process ending. What cannot be read stays as it
// was.
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

// replicated returns why a stored message may still be lost.
func (b *Backend) replicated(wait *redis.IntCmd) error {
	switch {
	case wait.Err() != nil:
		return fmt.Errorf("redis: stored, not known to be on a replica: %w: %w", backend.ErrOutcomeUnknown, wait.Err())
	case wait.Val() < 1:
		b.replicas.at.Store(0) // there may no longer be any
		return fmt.Errorf("redis: stored, no replica has it after %s: %w", replicaWait, backend.ErrOutcomeUnknown)
	}
	return nil
}

// confirmation is the answer of the WAIT after some appends. It covers only the appends
// of its own round trip: those that are sent again need another.
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

// hear takes the answer if the round trip has stored anything.
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

// settle stores the worst answer in the command.
func (c *confirmation) settle() {
	if c.heard {
		c.wait.SetErr(c.err)
		c.wait.SetVal(c.least)
	}
}
