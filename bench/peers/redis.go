package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// loadRedis appends payload to a fresh stream from as many goroutines as the
// plan has publishers, over one go-redis client with a connection for each.
func loadRedis(ctx context.Context, addr, payload string, p plan) (result, error) {
	client := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: p.publishers, MinIdleConns: p.publishers,
	})
	defer client.Close()
	const stream = "bench"
	if err := client.Del(ctx, stream).Err(); err != nil {
		return result{}, fmt.Errorf("redis at %s: %w", addr, err)
	}
	send := func(ctx context.Context) error {
		return client.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"d", payload}}).Err()
	}
	senders := make([]publish, p.publishers)
	for i := range senders {
		senders[i] = send
	}
	return drive(ctx, p, senders)
}
