package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Signaler = (*Backend)(nil)

// Signal reads what a guard needs in one round trip. A group that does not exist yet has
// what its first claim will find; if it is not to be created, everything stored may be its.
func (b *Backend) Signal(ctx context.Context, most int64) (backend.Signal, error) {
	at := time.Now()
	published := redis.NewStringCmd(ctx, "GET", b.keys.lag)
	waits := b.count.lagCmd(ctx, &b.keys, most, at)
	paused, back := b.pausedCmd(ctx, "HMGET"), b.givenBackCmd(ctx)
	role := b.roleCmd(ctx)
	cmds := with(role, published, waits, paused)
	if most > 0 { // otherwise no guard asks, and the user need not have the right
		cmds = append(cmds, back)
	}
	_ = b.do(ctx, cmds...)
	if b.misled(ctx, role) {
		return b.Signal(ctx, most)
	}
	if slotMoves(waits.Err()) {
		waits = b.lagApart(ctx, most, at)
	}
	s, _, err := b.signal(published, waits, at)
	s.Paused, s.GivenBack = marked(paused), min(back.Val(), s.Pending)
	return s, err
}

// givenBackCmd counts the notes on failed deliveries, of which the user may know nothing.
func (b *Backend) givenBackCmd(ctx context.Context) *redis.IntCmd {
	return redis.NewIntCmd(ctx, "HLEN", b.keys.retry)
}

// signal reads the answers requested at the time at; rest holds the elements of waits'
// reply after those of the script lag.
func (b *Backend) signal(published *redis.StringCmd, waits *redis.RawCmd, at time.Time) (s backend.Signal, rest replyReader, err error) {
	switch text, err := published.Result(); {
	case err == nil:
		// What is not a number was not written by a worker: unknown.
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			s.Workers = &n
		}
	case err != redis.Nil:
		return backend.Signal{}, rest, err
	}
	if err := waits.Err(); err != nil {
		return backend.Signal{}, rest, err
	}
	got, rest, err := b.count.parse(waits.Val(), &b.keys, at)
	switch {
	case b.notYet(err) != nil:
		b.foresee(&got)
	case errors.Is(err, backend.ErrGroupNotFound):
		got.behind = got.xlen - got.delayed
	case err != nil && !errors.Is(err, backend.ErrStreamNotFound):
		return backend.Signal{}, rest, err
	}
	s.XLen, s.Pending, s.Lag, s.Behind, s.Delayed = got.xlen, got.pending, got.lag, got.behind, got.delayed
	if got.read >= got.pending {
		finished := got.read - got.pending
		s.Finished = &finished
	}
	return s, rest, nil
}

// PublishSignal counts the pending messages and stores the number for ttl.
func (b *Backend) PublishSignal(ctx context.Context, ttl time.Duration) error {
	err := b.do(ctx, signalScript.cmd(ctx, []string{b.keys.stream, b.keys.lag}, b.keys.group, ttl.Milliseconds()))
	if noSuchKey(err) {
		err = fmt.Errorf("redis: %w: %q", backend.ErrStreamNotFound, b.keys.stream)
	}
	return err
}
