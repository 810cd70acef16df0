package redis

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Tallier = (*Backend)(nil)

// tallyLasts is how long the counters are kept after the last producer has counted.
const tallyLasts = time.Hour

// Tally adds to the counters of all processes, each 32 bits of one string. If the user
// may not write that key, it does not ask again for a while.
func (b *Backend) Tally(ctx context.Context, add []uint32) ([]uint32, *backend.Signal, error) {
	if no := b.noTally.Load(); no != nil && time.Since(no.at) < askAgain {
		return nil, nil, no.err
	}
	sums, err := b.tally(ctx, b.keys.offered, add, b.do)
	if err != nil && !backend.Retryable(err) {
		b.noTally.Store(&denial{time.Now(), err})
	}
	return sums, nil, err
}

// tally adds to the counters in a key; do sends the commands to it.
func (b *Backend) tally(ctx context.Context, key string, add []uint32, do func(context.Context, ...redis.Cmder) error) ([]uint32, error) {
	args := []any{"BITFIELD", key, "OVERFLOW", "WRAP"}
	for i, n := range add {
		if n > 0 {
			args = append(args, "INCRBY", "u32", fmt.Sprintf("#%d", i), n)
		}
	}
	counters := redis.NewStringCmd(ctx, "GETRANGE", key, 0, 4*len(add)-1)
	cmds := []redis.Cmder{counters}
	if len(args) > 4 {
		lasts := redis.NewBoolCmd(ctx, "PEXPIRE", key, tallyLasts.Milliseconds())
		cmds = []redis.Cmder{redis.NewSliceCmd(ctx, args...), lasts, counters}
	}
	if err := do(ctx, cmds...); err != nil {
		return nil, fmt.Errorf("redis: key %q cannot be written: %w", key, err)
	}
	text := counters.Val()
	sums := make([]uint32, len(add))
	for i := range sums {
		if 4*i+4 <= len(text) {
			sums[i] = binary.BigEndian.Uint32([]byte(text[4*i : 4*i+4]))
		}
	}
	return sums, nil
}
