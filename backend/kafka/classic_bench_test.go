package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/kafkatest"
)

// BenchmarkClassic compares a pool on a classic group with the loop that one would write by
// hand: poll, handle, commit. Both handle the same records, and do nothing with them.
func BenchmarkClassic(b *testing.B) {
	const records, partitions = 200_000, 4
	broker := kafkatest.Start(b, kafkatest.Options{ShareVersion: kafkatest.Without})
	s := open(b, fmt.Sprintf("%s/bench?partitions=%d", broker.URL(), partitions))
	if _, err := s.Append(b.Context(), messages("first")); err != nil {
		b.Fatal(err)
	}
	s.Close()
	client := broker.Client(kgo.DefaultProduceTopic("bench"), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1<<20))
	for range records {
		client.Produce(b.Context(), &kgo.Record{Value: payload()}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := client.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	groups := 0
	for range 3 {
		b.Run("loop", func(b *testing.B) {
			for range b.N {
				groups++
				loop(b, broker, fmt.Sprint("loop", groups), records)
			}
			b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "msg/s")
		})
		for _, c := range []weir.PoolConfig{{Workers: 16, Batch: 100}, {Workers: 64, Batch: 500}} {
			b.Run(fmt.Sprintf("pool-%d-%d", c.Workers, c.Batch), func(b *testing.B) {
				for range b.N {
					groups++
					work(b, fmt.Sprintf("%s/bench?group=pool%d", broker.URL(), groups), records, c)
				}
				b.ReportMetric(float64(b.N*records)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

func payload() []byte {
	b := make([]byte, 256)
	rand.Read(b)
	return b
}

func loop(b *testing.B, broker *kafkatest.Broker, group string, records int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.ConsumerGroup(group), kgo.ConsumeTopics("bench"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	b.StopTimer()
	for done := 0; done < records; {
		fetches := client.PollRecords(b.Context(), 500)
		b.StartTimer()
		fetches.EachRecord(func(*kgo.Record) { done++ })
		if err := client.CommitRecords(b.Context(), fetches.Records()...); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

func work(b *testing.B, url string, records int, c weir.PoolConfig) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	s := weir.New(open(b, url))
	defer s.Close()
	var done atomic.Int64
	b.StopTimer()
	pool, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error {
		switch done.Add(1) {
		case 1:
			b.StartTimer()
		case int64(records):
			cancel()
		}
		return nil
	}, c)
	if err != nil {
		b.Fatal(err)
	}
	if err := pool.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
	b.StopTimer()
}
