package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Observer = (*Backend)(nil)

// Observe reads the groups, the consumers of this one, its oldest pending entries and the
// newest entries in one round trip. What may not be read is not known.
func (b *Backend) Observe(ctx context.Context, most int) (backend.Observed, error) {
	k := b.keys
	groups := redis.NewRawCmd(ctx, "XINFO", "GROUPS", k.stream)
	consumers := redis.NewRawCmd(ctx, "XINFO", "CONSUMERS", k.stream, k.group)
	pending := redis.NewRawCmd(ctx, "XPENDING", k.stream, k.group, "-", "+", most)
	last := redis.NewRawCmd(ctx, "XREVRANGE", k.stream, "+", "-", "COUNT", most)
	err := b.do(ctx, groups, consumers, pending, last)
	answered := false
	for _, cmd := range []redis.Cmder{groups, consumers, pending, last} {
		answered = answered || cmd.Err() == nil
	}
	if !answered {
		return backend.Observed{}, err
	}
	return observed(groups, consumers, pending, last, most)
}

func observed(groups, consumers, pending, last *redis.RawCmd, most int) (o backend.Observed, err error) {
	if groups.Err() == nil {
		o.Groups, err = each(groups, most, func(r *replyReader) (backend.GroupState, error) {
			g, err := r.group()
			return backend.GroupState{Name: g.name, Consumers: g.consumers, Pending: g.pending, Lag: g.lag}, err
		})
	}
	if err == nil && consumers.Err() == nil {
		o.Consumers, err = each(consumers, most, func(r *replyReader) (backend.ConsumerState, error) {
			c, err := r.consumer()
			return backend.ConsumerState{Name: c.name, Pending: int64(c.pending), Idle: c.idle}, err
		})
	}
	if err == nil && pending.Err() == nil {
		o.Held, err = each(pending, most, func(r *replyReader) (backend.Held, error) {
			p, err := r.pendingEntry()
			return backend.Held{ID: p.id, Consumer: p.consumer, Idle: p.idle, Deliveries: int64(p.count)}, err
		})
	}
	if err != nil || last.Err() != nil {
		return o, err
	}
	o.Last = []backend.Record{}
	return o, eachEntry(last, func(name string, c content) {
		r := backend.Record{ID: name, Data: c.data, Headers: c.headers}
		if v, err := parseID(name); err == nil {
			r.At = time.UnixMilli(int64(v.ms))
		}
		o.Last = append(o.Last, r)
	})
}

// each reads an array of up to most elements.
func each[T any](cmd *redis.RawCmd, most int, read func(*replyReader) (T, error)) ([]T, error) {
	r := &replyReader{cmd.Val()}
	n, err := r.array()
	all := make([]T, 0, min(max(n, 0), most))
	for range min(n, most) {
		if err != nil {
			return all, err
		}
		var v T
		if v, err = read(r); err == nil {
			all = append(all, v)
		}
	}
	return all, err
}
