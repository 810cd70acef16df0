package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Budgeter = (*Backend)(nil)

// budgetKey is what the streams of a budget share (hash, expires, see draw.lua). It is
// in a slot of its own; so is the key of the counters.
func budgetKey(budget string) string { return "weir:budget:" + budget }

func budgetOfferedKey(budget string) string { return budgetKey(budget) + ":offered" }

// Spent returns the counter of a stream.
func (b *Backend) Spent(ctx context.Context, budget, stream string) (int64, error) {
	if no := b.noBudget.Load(); no != nil && time.Since(no.at) < askAgain {
		return 0, no.err
	}
	read := redis.NewSliceCmd(ctx, "HMGET", budgetKey(budget), "s:"+stream)
	if err := b.apart(ctx, read); err != nil {
		return 0, b.budgetError(budget, err)
	}
	if len(read.Val()) == 0 || read.Val()[0] == nil {
		return 0, nil
	}
	text, _ := read.Val()[0].(string)
	first, _, _ := strings.Cut(text, " ")
	return strconv.ParseInt(first, 10, 64)
}

// Draw is one script on the budget's key.
func (b *Backend) Draw(ctx context.Context, req backend.DrawRequest) (backend.Signal, backend.Room, error) {
	unknown := func(n *int64) int64 {
		if n == nil {
			return -1
		}
		return *n
	}
	read := &req.Signal
	draw := drawScript.cmd(ctx, []string{budgetKey(req.Budget)}, req.Stream, req.Producer, req.Spent,
		read.Pending, unknown(read.Lag), read.Behind, unknown(read.Workers), unknown(read.Finished), read.XLen,
		req.Limit, req.Need, req.Want, req.Kept, req.Lifetime.Milliseconds(), read.Delayed)
	if err := b.apart(ctx, draw); err != nil {
		return backend.Signal{}, backend.Room{}, b.budgetError(req.Budget, err)
	}
	r := replyReader{draw.Val()}
	_, err := r.array()
	var n [9]int64
	for i := range n {
		one, wrong := r.int()
		n[i], err = int64(one), errors.Join(err, wrong)
	}
	known := func(n int64) *int64 {
		if n < 0 {
			return nil
		}
		return &n
	}
	all := backend.Signal{Pending: n[2], Lag: known(n[3]), Behind: n[4], Workers: known(n[5]), Finished: known(n[6]), XLen: n[7], Delayed: n[8], Paused: read.Paused}
	return all, backend.Room{Given: n[0], Taken: n[1]}, err
}

// TallyBudget counts in a key of the budget.
func (b *Backend) TallyBudget(ctx context.Context, budget string, add []uint32) ([]uint32, error) {
	if no := b.noBudget.Load(); no != nil && time.Since(no.at) < askAgain {
		return nil, no.err
	}
	return b.tally(ctx, budgetOfferedKey(budget), add, b.apart)
}

// apart sends commands on keys that are not in the stream's slot.
func (b *Backend) apart(ctx context.Context, cmds ...redis.Cmder) error {
	if b.cluster == nil {
		return b.do(ctx, cmds...)
	}
	send := func(ctx context.Context, cmds []redis.Cmder) error {
		sent := cmds
		if b.lent {
			sent = eachOnce(cmds)
		}
		for _, cmd := range sent {
			if strings.EqualFold(cmd.Name(), "evalsha") {
				loadScript(cmd)
			}
			_ = b.cluster.Process(ctx, cmd)
		}
		refusals(cmds)
		return b.settleErrors(ctx, cmds)
	}
	if b.lent {
		return b.aside(ctx, cmds, send)
	}
	w := b.calls.watch(ctx, callTimeout)
	defer w.end()
	return send(w, cmds)
}

// budgetError says what a user lacks, and remembers it for a while.
func (b *Backend) budgetError(budget string, err error) error {
	key := budgetKey(budget)
	if errors.Is(err, backend.ErrForbidden) || strings.Contains(err.Error(), "run this command") {
		err = fmt.Errorf("redis: let the ACL user run HMGET, HGETALL, HSET, HDEL and PEXPIRE on %q, and BITFIELD and GETRANGE on %q: %w", key, budgetOfferedKey(budget), err)
	} else {
		err = fmt.Errorf("redis: key %q cannot be written: %w", key, err)
	}
	if !backend.Retryable(err) {
		b.noBudget.Store(&denial{time.Now(), err})
	}
	return err
}
