package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// idempotencyWindow is how long a key keeps a repeated append harmless.
const idempotencyWindow = 24 * time.Hour

// maxScripted is the most headers of a message that is stored by script although it
// need not be.
const maxScripted = 1000

// Append stores messages in one round trip: each by a plain XADD or, with an
// idempotency key, by a script that stores it once within 24 hours. A script also
// creates the stream and records that weir did.
func (b *Backend) Append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	results, err := b.append(ctx, msgs)
	var left []int // those that found no stream
	for i := range results {
		if results[i].Err == redis.Nil || b.withoutScript(results[i].Err, &msgs[i]) {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		if err == nil && !b.begun.Load() && slices.ContainsFunc(results, func(r backend.Appended) bool { return !isLater(r.ID) }) {
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
			results[at].Err = fmt.Errorf("redis: %w: stream %q was deleted in the meantime", backend.ErrUnavailable, b.keys.stream)
		}
	}
	for i := range results {
		if results[i].Err != nil {
			return results, results[i].Err
		}
	}
	return results, nil
}

// Gathering has concurrent appends share pipelines.
func (b *Backend) Gathering() backend.Gathering { return backend.Gathering{Appends: 2, Keyed: true} }

// withoutScript reports whether a message that the user may not store by script can be
// stored without one. Then nothing records that weir created the stream.
func (b *Backend) withoutScript(err error, m *backend.Message) bool {
	if !errors.Is(err, backend.ErrForbidden) || m.IdempotencyKey != "" || m.IsDelayed() {
		return false
	}
	b.unscripted.Store(true)
	return true
}

func (b *Backend) append(ctx context.Context, msgs []backend.Message) ([]backend.Appended, error) {
	if len(msgs) == 0 {
		return nil, nil
	}
	cmds, err := b.appendCmds(ctx, msgs)
	if err != nil {
		return nil, err
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

// appendCmds returns a command for each message.
func (b *Backend) appendCmds(ctx context.Context, msgs []backend.Message) ([]redis.Cmder, error) {
	cmds := make([]redis.Cmder, 0, len(msgs)+1)
	limits, begun, unscripted := b.features.Load(), b.begun.Load(), b.unscripted.Load()
	now := any(time.Now().UnixMilli())
	head := append(make([]any, 0, 4), "XADD", b.keys.stream)
	if begun && !unscripted && b.current(ctx).autoclaim { // servers of that age know this too
		head = append(head, "NOMKSTREAM")
	}
	head = append(head, "*")
	args := make([]any, 0, countArgs(msgs)) // of all XADDs
	keyed, kept, plain := -1, -1, false     // the first script of each kind; whether there is a plain command
	first := !begun && !unscripted          // the next entry may be the stream's first
	for i := range msgs {
		m := &msgs[i]
		err := limits.fit(m)
		if err != nil && len(msgs) > 1 {
			err = fmt.Errorf("message %d: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		delay, err := delayOf(m)
		if err != nil {
			return nil, err
		}
		if delay > 0 {
			cmd, err := b.laterCmd(ctx, m, delay)
			if err != nil {
				return nil, err
			}
			if cmds = append(cmds, cmd); kept < 0 {
				kept = i
			}
			continue
		}
		made := first
		first = false
		if m.IdempotencyKey != "" || made && len(m.Headers) <= maxScripted {
			cmd, err := b.scriptedAppend(ctx, m, now)
			if err != nil {
				return nil, err
			}
			if cmds = append(cmds, cmd); keyed < 0 {
				keyed = i
			}
			continue
		}
		from := len(args)
		if args, err = appendFields(append(args, head...), m, now); err != nil {
			return nil, err
		}
		cmds, plain = append(cmds, redis.NewStringCmd(ctx, args[from:len(args):len(args)]...)), true
	}
	// If the server did not know a script, others would overtake its messages.
	if keyed >= 0 && (plain || kept >= 0) {
		loadScript(cmds[keyed])
	}
	if keyed >= 0 && kept >= 0 {
		loadScript(cmds[kept]) // of two with one key the first counts
	}
	return cmds, nil
}

// countArgs returns the most arguments the XADDs of messages can have.
func countArgs(msgs []backend.Message) int {
	n := 12 * len(msgs)
	for i := range msgs {
		n += 2 * len(msgs[i].Headers)
		if !msgs[i].Deadline.IsZero() {
			n += 2
		}
	}
	return n
}

func (b *Backend) scriptedAppend(ctx context.Context, m *backend.Message, now any) (redis.Cmder, error) {
	keys := []string{b.keys.stream, b.keys.about}
	if m.IdempotencyKey != "" {
		keys = append(keys, b.keys.idem+m.IdempotencyKey)
	}
	args := append(make([]any, 0, 2*len(m.Headers)+11), idempotencyWindow.Milliseconds())
	args, err := appendFields(args, m, now)
	return appendScript.cmd(ctx, keys, args...), err
}

// appended reads the outcome of each message.
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
