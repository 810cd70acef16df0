package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// loadRedis appends payload to a fresh stream from as many goroutines as the
// plan has publishers, over one go-redis client with a connection for each; more
// than one at a time in a pipeline. stamped entries say when they were published.
func loadRedis(ctx context.Context, addr, payload string, batch int, stamped bool, p plan) (result, error) {
	client := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: p.publishers, MinIdleConns: p.publishers,
	})
	defer client.Close()
	const stream = "bench"
	if err := client.Del(ctx, stream).Err(); err != nil {
		return result{}, fmt.Errorf("redis at %s: %w", addr, err)
	}
	args := func() *redis.XAddArgs {
		a := &redis.XAddArgs{Stream: stream, Values: []any{"data", payload}}
		if stamped {
			a.Values = []any{"data", payload, "enqueue_ts", time.Now().UnixMilli()}
		}
		return a
	}
	send := func(ctx context.Context) error { return client.XAdd(ctx, args()).Err() }
	if batch > 1 {
		send = func(ctx context.Context) error {
			_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for range batch {
					pipe.XAdd(ctx, args())
				}
				return nil
			})
			return err
		}
	}
	senders := make([]publish, p.publishers)
	for i := range senders {
		senders[i] = send
	}
	r, err := drive(ctx, p, senders)
	r.Ops *= int64(batch)
	return r, err
}
