package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	stream = "bench"
	group  = "bench"
	// block is how long an empty read waits.
	block = 2 * time.Second
	// fillBatch is how many entries one pipeline writes while a stream is prepared.
	fillBatch = 1000
	// fillers is how many goroutines enqueue where only one job at a time can be.
	fillers = 16
)

// jobs is a work that waits in Redis and the workers that do it.
type jobs struct {
	addr    string
	count   int
	workers int
	batch   int
	single  bool
	payload string
}

// client is one with a connection for each worker.
func (j jobs) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: j.addr, PoolSize: j.workers + 1})
}

// timed runs work until it has called done for each job.
func (j jobs) timed(ctx context.Context, work func(ctx context.Context, done func(n int)) error) (result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var finished, took atomic.Int64
	fmt.Println("counting")
	begin := time.Now()
	err := work(ctx, func(n int) {
		if finished.Add(int64(n)) >= int64(j.count) && took.CompareAndSwap(0, int64(time.Since(begin))) {
			stop()
		}
	})
	if err != nil {
		return result{}, err
	}
	if n := finished.Load(); n != int64(j.count) {
		return result{}, fmt.Errorf("%d of %d jobs were done", n, j.count)
	}
	return result{Ops: int64(j.count), Seconds: time.Duration(took.Load()).Seconds()}, nil
}

// redis is the loop that one writes by hand: read, work, acknowledge.
func (j jobs) redis(ctx context.Context) (result, error) {
	client := j.client()
	defer client.Close()
	if err := j.fill(ctx, client); err != nil {
		return result{}, err
	}
	return j.timed(ctx, func(ctx context.Context, done func(int)) error {
		errs := make(chan error, j.workers)
		for i := range j.workers {
			go func() { errs <- j.loop(ctx, client, fmt.Sprintf("worker-%d", i), done) }()
		}
		var first error
		for range j.workers {
			if err := <-errs; err != nil && first == nil {
				first = err
			}
		}
		return first
	})
}

func (j jobs) fill(ctx context.Context, client *redis.Client) error {
	if err := client.FlushDB(ctx).Err(); err != nil {
		return err
	}
	for done := 0; done < j.count; done += fillBatch {
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range min(fillBatch, j.count-done) {
				p.XAdd(ctx, &redis.XAddArgs{Stream: stream, Values: []string{"data", j.payload}})
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("fill: %w", err)
		}
	}
	return client.XGroupCreate(ctx, stream, group, "0").Err()
}

// loop is one worker; a context that ends is its end.
func (j jobs) loop(ctx context.Context, client *redis.Client, name string, done func(int)) error {
	args := &redis.XReadGroupArgs{Group: group, Consumer: name, Streams: []string{stream, ">"}, Count: int64(j.batch), Block: block}
	ids := make([]string, 0, j.batch)
	for ctx.Err() == nil {
		got, err := client.XReadGroup(ctx, args).Result()
		if err == redis.Nil || ctx.Err() != nil {
			continue
		}
		if err != nil {
			return err
		}
		ids = ids[:0]
		for _, m := range got[0].Messages {
			ids = append(ids, m.ID)
			if j.single {
				if err := client.XAck(ctx, stream, group, m.ID).Err(); err != nil {
					return err
				}
			}
		}
		if !j.single {
			if err := client.XAck(ctx, stream, group, ids...).Err(); err != nil {
				return err
			}
		}
		done(len(ids))
	}
	return nil
}

func (j jobs) asynq(ctx context.Context) (result, error) {
	target := asynq.RedisClientOpt{Addr: j.addr, PoolSize: j.workers + fillers}
	client := asynq.NewClient(target)
	defer client.Close()
	flush := j.client()
	defer flush.Close()
	if err := flush.FlushDB(ctx).Err(); err != nil {
		return result{}, err
	}
	err := j.enqueue(func() error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask("bench", []byte(j.payload)))
		return err
	})
	if err != nil {
		return result{}, err
	}
	server := asynq.NewServer(target, asynq.Config{Concurrency: j.workers, LogLevel: asynq.FatalLevel})
	return j.timed(ctx, func(ctx context.Context, done func(int)) error {
		err := server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			done(1)
			return nil
		}))
		if err != nil {
			return err
		}
		<-ctx.Done()
		server.Shutdown()
		return nil
	})
}

// enqueue calls add once for each job.
func (j jobs) enqueue(add func() error) error {
	var left atomic.Int64
	left.Store(int64(j.count))
	errs := make(chan error, fillers)
	for range fillers {
		go func() {
			for left.Add(-1) >= 0 {
				if err := add(); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var first error
	for range fillers {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// watermill runs as many subscribers as there are workers: each has one message
// in hand at a time.
func (j jobs) watermill(ctx context.Context) (result, error) {
	log.SetOutput(io.Discard)
	client := j.client()
	defer client.Close()
	if err := client.FlushDB(ctx).Err(); err != nil {
		return result{}, err
	}
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{})
	if err != nil {
		return result{}, err
	}
	err = j.enqueue(func() error {
		return publisher.Publish(stream, message.NewMessage(watermill.NewUUID(), message.Payload(j.payload)))
	})
	if err != nil {
		return result{}, err
	}
	return j.timed(ctx, func(ctx context.Context, done func(int)) error {
		var all sync.WaitGroup
		defer all.Wait()
		for i := range j.workers {
			// A subscriber closes its client.
			own := redis.NewClient(&redis.Options{Addr: j.addr})
			subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
				Client: own, ConsumerGroup: group, Consumer: fmt.Sprintf("worker-%d", i), OldestId: "0",
			}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			messages, err := subscriber.Subscribe(ctx, stream)
			if ctx.Err() != nil {
				return nil // those before it have done everything
			}
			if err != nil {
				return err
			}
			all.Go(func() {
				defer subscriber.Close()
				for m := range messages {
					m.Ack()
					done(1)
				}
			})
		}
		return nil
	})
}
