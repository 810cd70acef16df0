package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/open"
)

// sampled compares readings of a topic whose group has work left with the two requests that
// nobody can do without: the ends of the partitions, and where the group is.
func sampled(ctx context.Context, b *bench) (turn, turn, func(), error) {
	const topic = "sampled"
	if err := b.fill(ctx, topic); err != nil {
		return nil, nil, nil, err
	}
	if _, err := shareLoop(ctx, b, topic, topic); err != nil { // so that there is a group
		return nil, nil, nil, err
	}
	if err := b.produce(ctx, topic, 1000); err != nil {
		return nil, nil, nil, err
	}
	s, err := open.URL(ctx, b.broker.URL()+"/"+topic+"?group="+topic)
	if err != nil {
		return nil, nil, nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.broker.Addr()))
	if err != nil {
		return nil, nil, nil, err
	}
	ends, progress := requests(topic)
	bare := func(ctx context.Context) error {
		if _, err := ends.RequestWith(ctx, client); err != nil {
			return err
		}
		_, err := progress.RequestWith(ctx, client)
		return err
	}
	pressure := func(ctx context.Context) error {
		p, err := s.Pressure(ctx)
		if err == nil && (p.Lag == nil || *p.Lag != 1000) {
			err = fmt.Errorf("the lag is %v, want 1000", p.Lag)
		}
		return err
	}
	return b.loop(1, pressure), b.loop(1, bare), func() { s.Close(); client.Close() }, nil
}

func requests(topic string) (*kmsg.ListOffsetsRequest, *kmsg.DescribeShareGroupOffsetsRequest) {
	ends, listed := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic()
	progress, group, asked := kmsg.NewPtrDescribeShareGroupOffsetsRequest(), kmsg.NewDescribeShareGroupOffsetsRequestGroup(), kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	ends.ReplicaID, listed.Topic, group.GroupID, asked.Topic = -1, topic, topic, topic
	for p := range int32(partitions) {
		one := kmsg.NewListOffsetsRequestTopicPartition()
		one.Partition, one.Timestamp = p, -1
		listed.Partitions, asked.Partitions = append(listed.Partitions, one), append(asked.Partitions, p)
	}
	ends.Topics, group.Topics = append(ends.Topics, listed), append(group.Topics, asked)
	progress.Groups = append(progress.Groups, group)
	return ends, progress
}
