package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/open"
)

// published compares producers of goroutines at once on topics of their own.
func published(goroutines int) func(context.Context, *bench) (turn, turn, func(), error) {
	payload := []byte(strings.Repeat("x", 1024))
	return func(ctx context.Context, b *bench) (turn, turn, func(), error) {
		s, err := open.URL(ctx, fmt.Sprintf("%s/weir-%d?partitions=%d", b.broker.URL(), goroutines, partitions))
		if err != nil {
			return nil, nil, nil, err
		}
		p, err := weir.NewProducer(s, weir.ProducerConfig{MaxDepth: 1 << 40, DisableLoadShedding: true})
		if err != nil {
			return nil, nil, nil, err
		}
		topic := fmt.Sprintf("plain-%d", goroutines)
		if err := b.create(ctx, topic); err != nil {
			return nil, nil, nil, err
		}
		client, err := kgo.NewClient(
			kgo.SeedBrokers(b.broker.Addr()),
			kgo.DefaultProduceTopic(topic),
			kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.MaxBufferedBytes(32<<20),
			kgo.MaxBufferedRecords(1<<20),
			kgo.ProducerLinger(0),
			kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		)
		if err != nil {
			return nil, nil, nil, err
		}
		end := func() { p.Close(); s.Close(); client.Close() }
		return b.loop(goroutines, func(ctx context.Context) error { return p.Publish(ctx, weir.Message{Data: payload}) }),
			b.loop(goroutines, func(ctx context.Context) error {
				return client.ProduceSync(ctx, &kgo.Record{Value: payload}).FirstErr()
			}), end, nil
	}
}

// loop calls do from goroutines at once for the length of a turn. Each has called it once
// before the clock starts: what a side did last was a turn ago, and its connections, and the
// guard's reading of the load, are as old.
func (b *bench) loop(goroutines int, do func(context.Context) error) turn {
	return func(ctx context.Context) (float64, error) {
		var done atomic.Int64
		var failure atomic.Pointer[error]
		var ready, all sync.WaitGroup
		var begin time.Time
		start := make(chan struct{})
		ready.Add(goroutines)
		for range goroutines {
			all.Go(func() {
				if err := do(ctx); err != nil {
					failure.Store(&err)
				}
				ready.Done()
				<-start
				for time.Since(begin) < b.length && failure.Load() == nil {
					if err := do(ctx); err != nil {
						failure.Store(&err)
					}
					done.Add(1)
				}
			})
		}
		ready.Wait()
		begin = time.Now()
		close(start)
		all.Wait()
		if err := failure.Load(); err != nil {
			return 0, *err
		}
		return float64(done.Load()) / time.Since(begin).Seconds(), nil
	}
}
