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
func (b *Backend) Tally(ctx context.Context, add []uint32) ([]uint32, error) {
	if no := b.noTally.Load(); no != nil && time.Since(no.at) < askAgain {
		return nil, no.err
	}
	args := []any{"BITFIELD", b.keys.offered, "OVERFLOW", "WRAP"}
	for i, n := range add {
		if n > 0 {
			args = append(args, "INCRBY", "u32", fmt.Sprintf("#%d", i), n)
		}
	}
	counters := redis.NewStringCmd(ctx, "GETRANGE", b.keys.offered, 0, 4*len(add)-1)
	cmds := []redis.Cmder{counters}
	if len(args) > 4 {
		lasts := redis.NewBoolCmd(ctx, "PEXPIRE", b.keys.offered, tallyLasts.Milliseconds())
		cmds = []redis.Cmder{redis.NewSliceCmd(ctx, args...), lasts, counters}
	}
	if err := b.do(ctx, cmds...); err != nil {
		err = fmt.Errorf("redis: key %q cannot be written: %w", b.keys.offered, err)
		if !backend.Retryable(err) {
			b.noTally.Store(&denial{time.Now(), err})
		}
		return nil, err
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
