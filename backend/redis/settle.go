package redis

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// leaseOf returns how long the leases of a consumer last: pools of one process may differ in
// that.
func (b *Backend) leaseOf(consumer string) time.Duration {
	if d, told := b.roster.of(consumer); told {
		return d
	}
	return time.Duration(b.reclaimAfter.Load()) // nobody has said
}

// Ack completes deliveries: recent ones by one plain XACK, those held longer than half
// their consumer's ReclaimAfter only if they are still held.
func (b *Backend) Ack(ctx context.Context, leases []backend.Lease) (lost []string, err error) {
	var (
		now    = time.Now()
		ack    = append(make([]any, 0, 3+len(leases)), "XACK", b.keys.stream, b.keys.group)
		notes  = []any{"HDEL", b.keys.retry} // only repeated deliveries have one
		old    []lease
		fenced *redis.RawCmd
		cmds   []redis.Cmder
	)
	for _, l := range leases {
		if now.Sub(l.Since) > b.leaseOf(l.Consumer)/2 {
			old = append(old, lease{Lease: l})
			continue
		}
		if ack = append(ack, l.ID); l.Attempt > 1 {
			notes = append(notes, l.ID)
		}
	}
	if len(ack) > 3 {
		cmds = append(cmds, redis.NewIntCmd(ctx, ack...))
	}
	if len(notes) > 2 {
		cmds = append(cmds, redis.NewIntCmd(ctx, notes...))
	}
	if len(old) > 0 {
		fenced = b.settleCmd(ctx, "ack", old, b.keys.retry)
		cmds = append(cmds, fenced)
	}
	if lost, err = b.acknowledge(ctx, leases, cmds, fenced); fenced == nil || !slotMoves(fenced.Err()) {
		return lost, err
	}
	// The rest is done. Of these, what is known goes in a step of its own.
	fenced = b.settleCmd(ctx, "ack", old)
	notes = []any{"HDEL", b.keys.retry}
	for _, l := range old {
		notes = append(notes, l.ID)
	}
	return b.acknowledge(ctx, leases, []redis.Cmder{fenced, redis.NewIntCmd(ctx, notes...)}, fenced)
}

// acknowledge sends the commands of an Ack, of which fenced names the lost ones;
// nil: none needed the fence.
func (b *Backend) acknowledge(ctx context.Context, leases []backend.Lease, cmds []redis.Cmder, fenced *redis.RawCmd) (lost []string, err error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	if err = b.do(ctx, cmds...); err == nil && fenced != nil {
		lost, err = parseLost(fenced)
	}
	if err != nil {
		return nil, err
	}
	b.acked.acknowledged(leases, lost)
	return lost, nil
}

// Extend keeps leases for d from now on. d is limited to the consumer's ReclaimAfter,
// after which others take a message regardless.
func (b *Backend) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) (lost []string, err error) {
	list := make([]lease, len(leases))
	for i, l := range leases {
		list[i] = lease{Lease: l, idle: max(0, b.leaseOf(l.Consumer)-d), count: l.Attempt}
	}
	if lost, err = b.settleAll(ctx, "extend", list); err != nil {
		return nil, err
	}
	for _, l := range leases {
		if slices.Contains(lost, l.ID) {
			b.acked.forgot(l.ID, l.Since)
		} else {
			b.acked.extended(l.ID)
		}
	}
	return lost, nil
}

// Nack gives deliveries back, each to be claimed after its delay.
func (b *Backend) Nack(ctx context.Context, returns []backend.Return) (lost []string, err error) {
	list := make([]lease, 0, len(returns))
	var again []string
	for _, r := range returns {
		if b.acked.again(r.ID, r.Since) { // the fence cannot tell an unstarted delivery from the next
			again = append(again, r.ID)
			continue
		}
		reclaim := b.leaseOf(r.Consumer)
		l := lease{Lease: r.Lease, idle: max(0, reclaim-r.Delay), count: r.Attempt, err: cut(r.Error)}
		if r.NotStarted {
			l.count = max(0, r.Attempt-1)
		}
		switch {
		case r.Delay <= 0:
			l.idle = anyone
		case r.Delay > reclaim:
			l.delay = r.Delay
		}
		list = append(list, l)
	}
	if lost, err = b.settleAll(ctx, "nack", list); err != nil {
		return nil, err
	}
	for _, l := range list {
		b.acked.gaveBack(l.ID, l.Since)
	}
	return append(lost, again...), nil
}

// lease is one lease and what is to be done with it.
type lease struct {
	backend.Lease
	idle  time.Duration
	count int           // deliveries, from now on
	delay time.Duration // 0: only idle says when
	err   string
}

func (b *Backend) settleAll(ctx context.Context, verb string, list []lease) ([]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	cmd := b.settleCmd(ctx, verb, list, b.keys.retry)
	err := b.do(ctx, cmd)
	if slotMoves(err) && verb == "extend" { // the pending entry alone says who holds it, but for what this process gave back
		cmd = b.settleCmd(ctx, verb, list)
		err = b.do(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return parseLost(cmd)
}

// settleCmd settles leases with the notes about them in a hash, if that is given.
func (b *Backend) settleCmd(ctx context.Context, verb string, list []lease, notes ...string) *redis.RawCmd {
	args := make([]any, 0, 2+7*len(list))
	args = append(args, b.keys.group, verb)
	for _, l := range list {
		args = append(args, l.ID, l.Consumer, l.Attempt, l.idle.Milliseconds(), l.count, l.delay.Milliseconds(), l.err)
	}
	return settleScript.cmd(ctx, append([]string{b.keys.stream}, notes...), args...)
}

func parseLost(cmd *redis.RawCmd) ([]string, error) {
	r := replyReader{cmd.Val()}
	return r.texts(nil)
}

// cut bounds an error's text.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), backend.MaxErrorBytes)], "")
}
