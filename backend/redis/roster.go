package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// fieldGroup and a name are a field of the hash {stream}:weir: weir reads that group.
const fieldGroup = "group:"

// roster is what this process has told of its consumers: other processes know by
// it which consumers and groups are weir's.
type roster struct {
	mu   sync.Mutex
	told map[string]time.Duration // consumer -> how long its leases last
	read time.Time                // when the hash of consumers was read last
}

// due reports whether the hash has to be looked at before a claim: for a consumer
// that is not in it yet, and from time to time, since somebody may have removed it.
func (r *roster) due(consumer string, lease time.Duration, now time.Time) (fresh, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh = r.told[consumer] != lease
	return fresh, fresh || now.Sub(r.read) > lease/2
}

func (r *roster) enrolled(consumer string, lease time.Duration, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == nil || len(r.told) >= maxNames {
		r.told = map[string]time.Duration{}
	}
	r.told[consumer], r.read = lease, now
}

// enroll tells the group's other processes of a consumer before it claims. What
// the server refuses is not asked for again before the next time it is due.
func (b *Backend) enroll(ctx context.Context, req *backend.ClaimRequest) error {
	now := time.Now()
	fresh, due := b.roster.due(req.Consumer, req.ReclaimAfter, now)
	if !due {
		return nil
	}
	if !fresh {
		have := redis.NewStringCmd(ctx, "HGET", b.keys.workers, req.Consumer)
		if err := unlessRefused(b.do(ctx, have)); err != nil {
			return err
		}
		fresh = have.Err() == redis.Nil
	}
	if fresh {
		err := b.do(ctx,
			redis.NewIntCmd(ctx, "HSET", b.keys.workers, req.Consumer, req.ReclaimAfter.Milliseconds()),
			redis.NewIntCmd(ctx, "HSET", b.keys.about, fieldGroup+b.keys.group, 1))
		if err = unlessRefused(err); err != nil {
			return err
		}
	}
	b.roster.enrolled(req.Consumer, req.ReclaimAfter, now)
	return nil
}

// unlessRefused drops an error that is the server's answer.
func unlessRefused(err error) error {
	if code, _ := replyCode(err); code != "" {
		return nil
	}
	return err
}

var _ backend.Shared = (*Backend)(nil)

// Others names the groups of a stream that a message which is sent back to group
// would reach too: those that weir does not read, and weir's with a consumer that is
// not. Consumers of weir's versions that did not enroll count as such.
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
	r := &replyReader{groups.Val()}
	n, err := r.array()
	var all, others []string
	there := false
	for range n {
		name, _, err := r.group()
		if err != nil {
			return nil, err
		}
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
		return all, err
	}
	return others, err
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
	r := &replyReader{consumers.Val()}
	n, err := r.array()
	for range n {
		info, err := r.info()
		if err != nil {
			return "", err
		}
		if _, ours := workers.Val()[info["name"]]; !ours {
			return info["name"], nil
		}
	}
	return "", err
}
