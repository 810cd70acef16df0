package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.PlaceKeeper = (*Backend)(nil)

// AppendAt stores messages of a source in one script: all or none, even if the server
// is killed midway, because it logs what a script writes as a unit.
func (b *Backend) AppendAt(ctx context.Context, source string, at uint64, msgs []backend.Message) (backend.Placed, error) {
	now, limits := any(time.Now().UnixMilli()), b.features.Load()
	args := append(make([]any, 0, 2+7*len(msgs)), idempotencyWindow.Milliseconds(), at)
	for i := range msgs {
		err := limits.fit(&msgs[i])
		if err != nil {
			return backend.Placed{}, fmt.Errorf("message %d: %w", i, err)
		}
		delay, err := delayOf(&msgs[i])
		if err != nil {
			return backend.Placed{}, fmt.Errorf("message %d: %w", i, err)
		}
		at, n := now, len(args)
		if delay > 0 {
			at = untilDue
		}
		if args, err = appendFields(append(args, delay.Milliseconds(), 0), &msgs[i], at); err != nil {
			return backend.Placed{}, err
		}
		args[n+1] = len(args) - n - 2
		if len(args)-n-2 > mostFields {
			return backend.Placed{}, fmt.Errorf("message %d: redis: %w: %d headers are too many for a source", i, backend.ErrTooLarge, len(msgs[i].Headers))
		}
		if err = limits.fitLater(&msgs[i], delay, len(args)-n-2); err != nil {
			return backend.Placed{}, fmt.Errorf("message %d: %w", i, err)
		}
	}
	wait, err := b.guarantee(ctx)
	if err != nil || len(msgs) == 0 {
		return backend.Placed{Next: at}, err
	}
	store := placeScript.cmd(ctx, []string{b.keys.stream, b.keys.idem + source, b.keys.about, b.keys.later, b.keys.wake}, args...)
	cmds := []redis.Cmder{store}
	if wait != nil {
		cmds = append(cmds, wait)
	}
	_ = b.do(ctx, cmds...)
	if err = store.Err(); err != nil {
		return backend.Placed{}, err
	}
	placed, err := parsePlaced(store.Val())
	if err == nil && wait != nil {
		err = b.replicated(wait)
	}
	return placed, err
}

// KeyWindow returns the same for every stream.
func (b *Backend) KeyWindow(context.Context) (time.Duration, error) { return idempotencyWindow, nil }

// parsePlaced reads [next, ID of the last, whether nothing was stored].
func parsePlaced(reply []byte) (p backend.Placed, err error) {
	r := replyReader{reply}
	if _, err = r.array(); err != nil {
		return p, err
	}
	next, err := r.text()
	if err != nil {
		return p, err
	}
	if p.Next, err = strconv.ParseUint(next, 10, 64); err != nil {
		return p, fmt.Errorf("redis: place %q: %w", next, err)
	}
	if p.LastID, err = r.text(); err != nil {
		return p, err
	}
	known, err := r.int()
	p.Known = known == 1
	return p, err
}
