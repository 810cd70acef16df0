package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Remover = (*Backend)(nil)

// Remove deletes the stream and every key of it and the group, but the dead letters and
// the idempotency keys, which expire.
func (b *Backend) Remove(ctx context.Context) error {
	k := &b.keys
	return b.do(ctx, redis.NewIntCmd(ctx, "DEL", k.stream, k.lag, k.room, k.offered, k.window, k.retry, k.trimmed, k.about, k.workers, k.later, k.wake, k.shards))
}
