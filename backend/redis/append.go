package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// idempotencyWindow is how long a key makes a repeated append harmless.
const idempotencyWindow = 24 * time.Hour

// maxScripted is how many headers a message may have that a script stores without need.
const maxScripted = 1000

// Append stores messages in one round trip: a plain XADD each, or with an
// idempotency key a script that stores it once within 24 hours. A script also makes the
// stream, and notes that weir did.
func (b *Backend) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	results, err := b.append(ctx, msgs)
	var left []int // what found no stream
	for i := range results {
		if results[i].Err == redis.Nil || b.withoutScript(results[i].Err, &msgs[i]) {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		if err == nil && len(msgs) > 0 && !b.begun.Load() {
			b.begun.Store(true)
		}
		return results, err
	}
	b.begun.Store(false)
	again := make([]backend.Message, len(left))
	for i, at := range left {
		again[i] = msgs[at]
	}
	stored, err := b.append(ctx, again)
	for i, at := range left {
		if results[at].Err = err; i < len(stored) {
			results[at] = stored[i]
		}
		if results[at].Err == redis.Nil {
			results[at].Err = fmt.Errorf("redis: %w: stream %q was deleted meanwhile", backend.ErrUnavailable, b.keys.stream)
		}
	}
	for i := range results {
		if results[i].Err != nil {
			return results, results[i].Err
		}
	}
	return results, nil
}

// withoutScript returns whether a message that a user may not store by script can be stored
// without one: then nobody notes that weir made the stream.
func (b *Backend) withoutScript(err error, m *backend.Message) bool {
	if !errors.Is(err, backend.ErrForbidden) || m.IdempotencyKey != "" {
		return false
	}
	b.unscripted.Store(true)
	return true
}

func (b *Backend) append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	cmds := make([]redis.Cmder, 0, len(msgs)+1)
	now, limits := time.Now(), b.features.Load()
	keyed := -1 // the first that is a script
	plain := false
	for i := range msgs {
		err := limits.fit(&msgs[i])
		if err != nil && len(msgs) > 1 {
			err = fmt.Errorf("message %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		script := msgs[i].IdempotencyKey != "" || i == 0 && !b.begun.Load() && !b.unscripted.Load() && len(msgs[i].Headers) <= maxScripted
		cmd, err := b.appendCmd(ctx, &msgs[i], now, script)
		if err != nil {
			return nil, err
		}
		cmds = append(cmds, cmd)
		if !script {
			plain = true
		} else if keyed < 0 {
			keyed = i
		}
	}
	if len(msgs) == 0 {
		return nil, nil
	}
	if plain && keyed >= 0 {
		loadScript(cmds[keyed]) // if it were not known, plain messages would overtake those with a key
	}
	wait, err := b.guarantee(ctx)
	if err != nil {
		return nil, err
	}
	if wait != nil {
		cmds = append(cmds, wait)
	}
	_ = b.do(ctx, cmds...)
	return b.appended(msgs, cmds[:len(msgs)], wait)
}

func (b *Backend) appendCmd(ctx context.Context, m *backend.Message, now time.Time, script bool) (redis.Cmder, error) {
	args := make([]any, 0, 2*len(m.Headers)+12)
	if script {
		keys := []string{b.keys.stream, b.keys.about}
		if m.IdempotencyKey != "" {
			keys = append(keys, b.keys.idem+m.IdempotencyKey)
		}
		args, err := appendFields(append(args, idempotencyWindow.Milliseconds()), m, now)
		return appendScript.cmd(ctx, keys, args...), err
	}
	args = append(args, "XADD", b.keys.stream)
	if b.current(ctx).autoclaim && b.begun.Load() && !b.unscripted.Load() { // servers of that age know this, too
		args = append(args, "NOMKSTREAM")
	}
	args, err := appendFields(append(args, "*"), m, now)
	if err != nil {
		return nil, err
	}
	return redis.NewStringCmd(ctx, args...), nil
}

// appended reads what became of each message.
func (b *Backend) appended(msgs []backend.Message, cmds []redis.Cmder, wait *redis.IntCmd) (results []backend.Appended, first error) {
	results = make([]backend.Appended, len(msgs))
	for i, cmd := range cmds {
		r := &results[i]
		switch r.Err = cmd.Err(); cmd := cmd.(type) {
		case *redis.StringCmd:
			r.ID = cmd.Val()
		case *redis.RawCmd:
			if r.Err == nil {
				r.ID, r.Deduped, r.Err = parseAppended(cmd.Val())
			}
		}
		if r.Err == nil && wait != nil {
			r.Err = b.replicated(wait)
		}
		if r.Err != nil && first == nil {
			first = r.Err
		}
	}
	return results, first
}

func parseAppended(reply []byte) (id string, deduped bool, err error) {
	r := replyReader{reply}
	if _, err = r.array(); err != nil {
		return "", false, err
	}
	if id, err = r.text(); err != nil {
		return "", false, err
	}
	was, err := r.int()
	return id, was == 1, err
}
