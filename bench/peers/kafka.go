package main

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// consume times how long watermill-kafka takes for count messages of a topic in a classic
// group. The clock starts with the first message: joining the group is not counted.
// One subscriber has a message of each partition in hand at a time.
func consume(ctx context.Context, addr, topic, group string, count int) (result, error) {
	config := kafka.DefaultSaramaSubscriberConfig()
	config.Version = sarama.V3_6_0_0 // brokers of today do not speak the default's any more
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers: []string{addr}, Unmarshaler: kafka.DefaultMarshaler{}, ConsumerGroup: group, OverwriteSaramaConfig: config,
	}, watermill.NopLogger{})
	if err != nil {
		return result{}, err
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(ctx, topic)
	if err != nil {
		return result{}, err
	}
	fmt.Println("counting")
	var begin time.Time
	done := 0
	for m := range messages {
		if done == 0 {
			begin = time.Now()
		}
		m.Ack()
		if done++; done == count {
			return result{Ops: int64(count), Seconds: time.Since(begin).Seconds()}, nil
		}
	}
	return result{}, fmt.Errorf("%d of %d messages were handled", done, count)
}
