package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// fieldGroup followed by a name is a field of the hash {stream}:weir; it says that weir
// reads that group.
const fieldGroup = "group:"

// rosterEvery is how long the information of other processes is relied on.
const rosterEvery = 5 * time.Second

// roster is what this process has announced about its consumers and knows about the
// others. From it processes know which consumers and groups are weir's, and how long
// the leases of each last.
type roster struct {
	mu     sync.Mutex
	told   map[string]time.Duration // consumer -> how long its leases last
	leases map[string]time.Duration // of all consumers, as they were read
	least  time.Duration            // of leases
	most   time.Duration            // of leases
	read   time.Time                // when that was
	looked time.Time                // when silent consumers were looked for, or the first enrolled
}

// others returns the leases of all consumers if any of them differs from own.
func (r *roster) others(own time.Duration) map[string]time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.leases) == 0 || r.least == own && r.most == own {
		return nil
	}
	return r.leases
}

// of returns how long the leases of a consumer last, of this process or of another.
func (r *roster) of(consumer string) (lease time.Duration, told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if lease, told = r.told[consumer]; !told {
		lease, told = r.leases[consumer]
	}
	return lease, told
}

// longest returns the longest lease that this process has announced, at least d.
func (r *roster) longest(d time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, lease := range r.told {
		d = max(d, lease)
	}
	return d
}

// due reports whether the hash has to be read before a scan: for a consumer not yet in
// it, and often enough that a later consumer is known before its first delivery is as
// old as lease.
func (r *roster) due(consumer string, lease time.Duration) (fresh, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh = r.told[consumer] != lease
	return fresh, fresh || time.Since(r.read) > min(lease/2, rosterEvery)
}

// enrolled notes what has been announced and read. It reports whether it is time to
// look for silent consumers.
func (r *roster) enrolled(consumer string, lease time.Duration, all map[string]string, at time.Time) (look bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if look = at.Sub(r.looked) > forgetEvery && !r.looked.IsZero(); look || r.looked.IsZero() {
		r.looked = at
	}
	if r.told == nil || len(r.told) >= maxNames {
		r.told = map[string]time.Duration{}
	}
	r.told[consumer], r.read = lease, at
	r.leases = make(map[string]time.Duration, len(all))
	for name, text := range all {
		if ms, err := strconv.ParseInt(text, 10, 64); err == nil && ms > 0 {
			r.leases[name] = time.Duration(ms) * time.Millisecond
		}
	}
	r.least, r.most = lease, lease
	for _, other := range r.leases {
		r.least, r.most = min(r.least, other), max(r.most, other)
	}
	return look
}

// enroll announces a consumer to the group's other processes before it claims, and
// reads what they announced. What the server refuses is tried again when due.
func (b *Backend) enroll(ctx context.Context, req *backend.ClaimRequest) error {
	fresh, due := b.roster.due(req.Consumer, req.ReclaimAfter)
	if !due {
		return nil
	}
	now := time.Now()
	ms := strconv.FormatInt(req.ReclaimAfter.Milliseconds(), 10)
	all := redis.NewMapStringStringCmd(ctx, "HGETALL", b.keys.workers)
	tell := []redis.Cmder{
		redis.NewIntCmd(ctx, "HSET", b.keys.workers, req.Consumer, ms),
		redis.NewIntCmd(ctx, "HSET", b.keys.about, fieldGroup+b.keys.group, 1),
		all,
	}
	if !fresh {
		if err := unlessRefused(b.do(ctx, all)); err != nil {
			return err
		}
	}
	if fresh || all.Val()[req.Consumer] != ms {
		if err := unlessRefused(b.do(ctx, tell...)); err != nil {
			return err
		}
	}
	if b.roster.enrolled(req.Consumer, req.ReclaimAfter, all.Val(), now) {
		_ = b.forgetSilent(ctx) // otherwise next time
	}
	return nil
}

// unlessRefused drops an error that is an answer of the server, unless that passes: what a server says while it
// loads, or is busy, tells nothing of what a user may do.
func unlessRefused(err error) error {
	if code, _ := replyCode(err); code != "" && !errors.Is(err, backend.ErrUnavailable) {
		return nil
	}
	return err
}

var _ backend.Shared = (*Backend)(nil)

// Others names the groups of a stream that a message sent back to group would also
// reach: those weir does not read, and weir's with a foreign consumer. Consumers of
// weir versions that did not enroll count as foreign.
func (b *Backend) Others(ctx context.Context, stream, group string) ([]string, error) {
	if stream == "" {
		stream = b.keys.stream
	}
	k, err := keysOf(stream, group)
	if err != nil || group == "" {
		return nil, err
	}
	groups := redis.NewRawCmd(ctx, "XINFO", "GROUPS", stream)
	about := redis.NewMapStringStringCmd(ctx, "HGETALL", k.about)
	if err := b.do(ctx, groups, about); err != nil {
		if noSuchKey(err) {
			err = nil
		}
		return nil, err
	}
	found, err := each(groups, math.MaxInt, (*replyReader).group)
	if err != nil {
		return nil, err
	}
	var all, others []string
	there := false
	for _, g := range found {
		name := g.name
		all = append(all, name)
		if name == group {
			there = true
			continue
		}
		if _, ours := about.Val()[fieldGroup+name]; ours {
			foreign, err := b.foreignConsumer(ctx, stream, name)
			if err != nil {
				return nil, err
			}
			if foreign == "" {
				continue
			}
			name += fmt.Sprintf(" (consumer %q)", foreign)
		}
		others = append(others, name)
	}
	if !there {
		return all, nil
	}
	return others, nil
}

// foreignConsumer returns a consumer of a group that is not weir's; empty if there is none.
func (b *Backend) foreignConsumer(ctx context.Context, stream, group string) (string, error) {
	k, err := keysOf(stream, group)
	if err != nil {
		return "", err
	}
	consumers := redis.NewRawCmd(ctx, "XINFO", "CONSUMERS", stream, group)
	workers := redis.NewMapStringStringCmd(ctx, "HGETALL", k.workers)
	if err := b.do(ctx, consumers, workers); err != nil {
		return "", err
	}
	all, err := each(consumers, math.MaxInt, (*replyReader).consumer)
	for _, c := range all {
		if _, ours := workers.Val()[c.name]; !ours {
			return c.name, nil
		}
	}
	return "", err
}
