package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirmq/weir"
)

// fillBatch is how many entries one pipeline writes while a stream is prepared.
const fillBatch = 1000

func (c config) client() *redis.Client { return redis.NewClient(&redis.Options{Addr: c.addr}) }

func (c config) empty(ctx context.Context) error {
	if c.url != "" {
		return nil
	}
	client := c.client()
	defer client.Close()
	return client.FlushDB(ctx).Err()
}

// fill puts jobs into an empty stream: on a Redis server as plain XADDs do, with a group that
// has read none of them.
func (c config) fill(ctx context.Context) error {
	if c.url != "" {
		return c.fillURL(ctx)
	}
	if err := c.empty(ctx); err != nil {
		return err
	}
	client := c.client()
	defer client.Close()
	for done := 0; done < c.jobs; done += fillBatch {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range min(fillBatch, c.jobs-done) {
				p.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []any{"data", c.payload}})
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return client.XGroupCreate(ctx, stream, "bench", "0").Err()
}

// fillURL fills the stream of the URL, which no other client uses.
func (c config) fillURL(ctx context.Context) error {
	s, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	for done := 0; done < c.jobs; done += fillBatch {
		msgs := make([]weir.Message, min(fillBatch, c.jobs-done))
		for i := range msgs {
			msgs[i].Data = c.payload
		}
		if _, err := s.Backend().Append(ctx, msgs); err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return nil
}

// pool works until handle says that it is enough and then stops in order. It
// returns when handle was first called and when it said so.
func (c config) pool(ctx context.Context, s *weir.Stream, handle func() (enough bool)) (took time.Duration, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var end atomic.Int64
	begin := time.Now()
	handler := func(context.Context, *weir.Delivery) error {
		if handle() && end.CompareAndSwap(0, int64(time.Since(begin))) {
			stop()
		}
		return nil
	}
	p, err := weir.NewPool(s, handler, weir.PoolConfig{Workers: c.goroutines, Batch: c.batch})
	if err != nil {
		return 0, err
	}
	if err := p.Run(ctx); err != nil {
		return 0, err
	}
	return time.Duration(end.Load()), nil
}

// work drains a prepared stream and checks that every message is acknowledged.
func work(ctx context.Context, c config) (result, error) {
	if err := c.fill(ctx); err != nil {
		return result{}, err
	}
	s, err := c.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	fmt.Println("counting")
	var done atomic.Int64
	took, err := c.pool(ctx, s, func() bool { return done.Add(1) == int64(c.jobs) })
	if err != nil {
		return result{}, err
	}
	stats, err := s.Backend().Stats(ctx)
	if err != nil {
		return result{}, err
	}
	if n := done.Load(); n != int64(c.jobs) || stats.Pending != 0 || stats.Lag == nil || *stats.Lag != 0 {
		return result{}, fmt.Errorf("%d of %d jobs were handled once, %d are pending", n, c.jobs, stats.Pending)
	}
	return result{Ops: int64(c.jobs), Seconds: took.Seconds()}, nil
}

// sample compares one reading of a stream in use with one XLEN, in turn. The
// value is how many times as long a reading takes, by the medians.
func sample(ctx context.Context, c config) (result, error) {
	if err := c.fill(ctx); err != nil {
		return result{}, err
	}
	client := c.client()
	defer client.Close()
	for left := c.jobs / 10; left > 0; left -= fillBatch {
		args := &redis.XReadGroupArgs{Group: "bench", Consumer: "slow", Streams: []string{stream, ">"}, Count: int64(min(fillBatch, left))}
		if err := client.XReadGroup(ctx, args).Err(); err != nil {
			return result{}, err
		}
	}
	s, err := c.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	fmt.Println("counting")
	var reads, lens []time.Duration
	begin := time.Now()
	for ctx.Err() == nil && time.Since(begin) < c.length {
		start := time.Now()
		if _, err := s.Pressure(ctx); err != nil {
			return result{}, err
		}
		middle := time.Now()
		if err := client.XLen(ctx, stream).Err(); err != nil {
			return result{}, err
		}
		reads, lens = append(reads, middle.Sub(start)), append(lens, time.Since(middle))
	}
	slices.Sort(reads)
	slices.Sort(lens)
	reading, length := reads[len(reads)/2], lens[len(lens)/2]
	return result{
		Value: float64(reading) / float64(length),
		Note:  fmt.Sprintf("a reading %s, XLEN %s, medians of %d", reading.Round(time.Microsecond), length.Round(time.Microsecond), len(reads)),
	}, nil
}

// backlog publishes jobs messages guarded, works on some of them with the rest
// waiting, and tells how many MiB that took here at the most.
func backlog(ctx context.Context, c config) (result, error) {
	if err := c.empty(ctx); err != nil {
		return result{}, err
	}
	s, err := c.open(ctx)
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	p, err := weir.NewProducer(s, unlimited)
	if err != nil {
		return result{}, err
	}
	defer p.Close()
	msgs := make([]weir.Message, min(fillBatch, c.jobs))
	for i := range msgs {
		msgs[i].Data = c.payload
	}
	fmt.Println("counting")
	for done := 0; done < c.jobs; done += len(msgs) {
		if err := p.PublishBatch(ctx, msgs[:min(len(msgs), c.jobs-done)]); err != nil {
			return result{}, err
		}
	}
	var handled atomic.Int64
	if _, err := c.pool(ctx, s, func() bool { return handled.Add(1) >= int64(c.jobs/fillBatch) }); err != nil {
		return result{}, err
	}
	mib, err := residentPeak()
	if err != nil {
		return result{}, err
	}
	note, err := c.redisMemory(ctx)
	return result{Value: float64(mib), Note: note}, err
}
