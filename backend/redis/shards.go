package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.ShardKeeper = (*Backend)(nil)

// Shards keeps the numbers in a hash of this stream. It writes only to raise them.
func (b *Backend) Shards(ctx context.Context, least int) (backend.Shards, error) {
	read := redis.NewMapStringStringCmd(ctx, "HGETALL", b.keys.shards)
	if err := b.do(ctx, read); err != nil {
		return backend.Shards{}, b.shardsError(err)
	}
	found := backend.Shards{First: number(read.Val()["first"]), Now: number(read.Val()["now"])}
	if found.Now >= least {
		return found, nil
	}
	raise := shardsScript.cmd(ctx, []string{b.keys.shards}, least)
	if err := b.do(ctx, raise); err != nil {
		return backend.Shards{}, b.shardsError(err)
	}
	r := replyReader{raise.Val()}
	_, err1 := r.array()
	first, err2 := r.int()
	now, err3 := r.int()
	return backend.Shards{First: first, Now: now}, errors.Join(err1, err2, err3)
}

func (b *Backend) shardsError(err error) error {
	if errors.Is(err, backend.ErrForbidden) {
		return fmt.Errorf("redis: let the ACL user run HGETALL, HSET and EVALSHA on %q: %w", b.keys.shards, err)
	}
	return err
}

// number is a number of the hash, 0 if it is not there.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
