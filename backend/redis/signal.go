package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Signaler = (*Backend)(nil)

// Signal reads what a guard needs in one round trip. A stream or group that is
// not there yet has nothing pending and no known lag.
func (b *Backend) Signal(ctx context.Context) (backend.Signal, error) {
	published := redis.NewStringCmd(ctx, "GET", b.keys.lag)
	length := redis.NewIntCmd(ctx, "XLEN", b.keys.stream)
	groups := redis.NewRawCmd(ctx, "XINFO", "GROUPS", b.keys.stream)
	_ = b.do(ctx, published, length, groups)
	if err := length.Err(); err != nil {
		return backend.Signal{}, err
	}
	s := backend.Signal{XLen: length.Val()}
	switch text, err := published.Result(); {
	case err == nil:
		// What is not a number was not written by a worker: not known.
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			s.Workers = &n
		}
	case err != redis.Nil:
		return backend.Signal{}, err
	}
	g, err := b.findGroup(groups)
	switch {
	case missing(err):
		return s, nil
	case err != nil:
		return backend.Signal{}, err
	}
	s.Pending, s.Lag = g.pending, g.lag
	return s, nil
}

// PublishSignal counts the pending messages and stores the number for ttl.
func (b *Backend) PublishSignal(ctx context.Context, ttl time.Duration) error {
	return b.do(ctx, signalScript.cmd(ctx, []string{b.keys.stream, b.keys.lag}, b.keys.group, ttl.Milliseconds()))
}
