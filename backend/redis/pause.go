package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Pauser = (*Backend)(nil)

const (
	// fieldPaused followed by a group is a field of the hash {stream}:weir: since when, in
	// Unix ms, the group is paused.
	fieldPaused = "paused:"
	// pauseEvery is how long a process relies on what it knows about the pause.
	pauseEvery = time.Second
)

// pausing is what is known about the pause of the group.
type pausing struct {
	mu     sync.Mutex
	paused bool
	read   time.Time // when the request was sent that said so
}

func (p *pausing) known() (paused, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused, time.Since(p.read) < pauseEvery
}

// set notes an answer to what was sent at the time at, unless a later one is known.
func (p *pausing) set(paused bool, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !at.Before(p.read) {
		p.paused, p.read = paused, at
	}
}

// Pause marks the group as paused or takes the mark away. The stream need not exist yet.
func (b *Backend) Pause(ctx context.Context, paused bool) error {
	field := fieldPaused + b.keys.group
	mark := redis.NewIntCmd(ctx, "HDEL", b.keys.about, field)
	if paused {
		mark = redis.NewIntCmd(ctx, "HSET", b.keys.about, field, time.Now().UnixMilli())
	}
	if err := b.do(ctx, mark); err != nil {
		return err
	}
	b.pause.set(paused, time.Now())
	return nil
}

// isPaused asks the server if what is known is too old. A user who may not read it is not
// paused; a server that cannot say it now, as while it loads, says nothing of it.
func (b *Backend) isPaused(ctx context.Context) (bool, error) {
	if paused, fresh := b.pause.known(); fresh {
		return paused, nil
	}
	at := time.Now()
	mark := b.pausedCmd(ctx, "HGET")
	if err := unlessRefused(b.do(ctx, mark)); err != nil {
		return false, err
	}
	paused := marked(mark)
	b.pause.set(paused, at)
	return paused, nil
}

// pausedCmd reads the mark, with a command that the caller's role has.
func (b *Backend) pausedCmd(ctx context.Context, command string) *redis.RawCmd {
	return redis.NewRawCmd(ctx, command, b.keys.about, fieldPaused+b.keys.group)
}

// marked reads the answer of HGET, or of HMGET with one field. An error is no mark.
func marked(cmd *redis.RawCmd) bool {
	if cmd.Err() != nil {
		return false
	}
	r := replyReader{cmd.Val()}
	if cmd.Args()[0] == "HMGET" {
		if n, err := r.array(); err != nil || n < 1 {
			return false
		}
	}
	value, err := r.bytes()
	return err == nil && value != nil
}

// rest waits while the group is paused, until end at most. It reports whether the group is
// paused still.
func (b *Backend) rest(ctx context.Context, c *claim, end time.Time) (paused bool, err error) {
	for {
		if paused, err = b.isPaused(ctx); !paused || err != nil {
			return paused, err
		}
		if !b.grouped.Load() && b.set.create != createNever {
			// A group that begins at the end begins when its first worker comes, not when
			// that may work.
			if err := b.createGroup(ctx); err != nil {
				return true, err
			}
			b.grouped.Store(true)
		}
		left := min(time.Until(end), pauseEvery)
		if left <= 0 || c.HasEnough() {
			return true, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-c.Enough:
		case <-ctx.Done():
			timer.Stop()
			return true, ctx.Err()
		case <-b.parting.Done():
			timer.Stop()
			return true, b.explain(ctx, errEnded)
		}
		timer.Stop()
	}
}

// unlessPaused gives back what came at the end of a wait during which the group was
// paused: as not begun, for whoever claims when it goes on.
func (b *Backend) unlessPaused(ctx context.Context, c *claim) error {
	if len(c.got.Deliveries) == 0 {
		return nil
	}
	if paused, err := b.isPaused(ctx); !paused || err != nil {
		return nil // it was not when that was last known
	}
	back := c.got.Deliveries
	c.got.Deliveries, c.got.Reclaimed = nil, 0
	return b.handBack(ctx, back)
}
