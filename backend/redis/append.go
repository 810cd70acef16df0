package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// idempotencyWindow is how long a key makes a repeated append harmless.
const idempotencyWindow = 24 * time.Hour

// Append stores messages in one round trip: a plain XADD each, or with an
// idempotency key a script that stores it once within 24 hours.
func (b *Backend) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	cmds := make([]redis.Cmder, 0, len(msgs)+1)
	now, limits := time.Now(), b.features.Load()
	keyed := -1 // the first
	plain := false
	for i := range msgs {
		err := limits.fit(&msgs[i])
		if err != nil && len(msgs) > 1 {
			err = fmt.Errorf("message %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		cmd, err := b.appendCmd(ctx, &msgs[i], now)
		if err != nil {
			return nil, err
		}
		cmds = append(cmds, cmd)
		if msgs[i].IdempotencyKey == "" {
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

func (b *Backend) appendCmd(ctx context.Context, m *backend.Message, now time.Time) (redis.Cmder, error) {
	room := 2*len(m.Headers) + 11
	if m.IdempotencyKey != "" {
		args, err := appendFields(append(make([]any, 0, room), idempotencyWindow.Milliseconds()), m, now)
		return appendScript.cmd(ctx, []string{b.keys.stream, b.keys.idem + m.IdempotencyKey}, args...), err
	}
	args, err := appendFields(append(make([]any, 0, room), "XADD", b.keys.stream, "*"), m, now)
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
