package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// readCommitted is the isolation level that leaves out what was produced in a transaction
// that was given up.
const readCommitted = 1

// page is the answer to a read of one partition.
type page struct {
	records []*kgo.Record
	next    int64   // the offset behind them
	start   int64   // of the log
	end     int64   // of what is not in a transaction that is still open
	high    int64   // of the log
	bytes   int     // that the records took
	by      *layout // by which it was read: the partition may have another leader by now, or be another topic's
}

// How often a read looks for a partition's leader, which a new topic does not have at once.
const (
	leaderTries = 40
	leaderEvery = 50 * time.Millisecond
)

// read reads a page of a partition from an offset on, or from the log's start if that is
// behind it. It does not wait for records.
func (b *Backend) read(ctx context.Context, topic string, l *layout, partition int32, offset int64, bytes int32) (page, error) {
	for try := 1; ; try++ {
		leader, there := l.leaders[partition]
		err := error(kerr.LeaderNotAvailable)
		if there && leader >= 0 {
			var p page
			if p, err = b.readOnce(ctx, topic, l.id, leader, partition, offset, bytes); err == nil {
				p.by = l
				return p, nil
			}
		}
		switch {
		case try == leaderTries:
			return page{}, err
		case errors.Is(err, kerr.OffsetOutOfRange):
			starts, err := named(ctx, b, b.admin.ListStartOffsets, topic)
			if err != nil {
				return page{}, err
			}
			start, _ := starts.Lookup(topic, partition)
			if start.Err != nil {
				return page{}, start.Err
			}
			offset = start.Offset
		case kerr.IsRetriable(err):
			if !b.pause(ctx, leaderEvery) {
				return page{}, err
			}
			if l, err = b.layoutOf(ctx, topic); err != nil {
				return page{}, err
			}
		default:
			return page{}, err
		}
	}
}

func (b *Backend) readOnce(ctx context.Context, topic string, id [16]byte, leader, partition int32, offset int64, bytes int32) (page, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, bytes
	answers, err := b.fetchOnce(ctx, topic, id, leader, []kmsg.FetchRequestTopicPartition{p}, bytes)
	if err != nil {
		return page{}, err
	}
	if len(answers) != 1 {
		return page{next: offset, end: offset, high: offset}, nil
	}
	return b.pageOf(topic, &answers[0], offset)
}

// fetchOnce makes one request for partitions of a topic to their leader.
func (b *Backend) fetchOnce(ctx context.Context, topic string, id [16]byte, leader int32, parts []kmsg.FetchRequestTopicPartition, bytes int32) ([]kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel = -1, 0, 0, bytes, readCommitted
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = topic, id, parts
	req.Topics = append(req.Topics, t)
	answer, err := b.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, b.onTopic(err, rightRead, topic)
	}
	if len(resp.Topics) != 1 {
		return nil, nil
	}
	return resp.Topics[0].Partitions, nil
}

// pageOf is what the answer for a partition says about an offset.
func (b *Backend) pageOf(topic string, p *kmsg.FetchResponseTopicPartition, offset int64) (page, error) {
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return page{}, b.onTopic(err, rightRead, topic)
	}
	opt := kgo.ProcessFetchPartitionOpts{Topic: topic, Partition: p.Partition, Offset: offset, IsolationLevel: kgo.ReadCommitted()}
	size := len(p.RecordBatches)
	got, next := kgo.ProcessFetchPartition(opt, p, kgo.DefaultDecompressor(), nil)
	return page{got.Records, max(next, offset), p.LogStartOffset, p.LastStableOffset, p.HighWatermark, size, nil}, got.Err
}

// pages reads a partition from an offset to its end. It returns the last page, or with an
// error how far it has got and by which layout, without the records.
func (b *Backend) pages(ctx context.Context, topic string, l *layout, partition int32, from int64, do func(*kgo.Record)) (page, error) {
	for {
		p, err := b.read(ctx, topic, l, partition, from, pageBytes)
		if err != nil {
			return page{next: from, by: l}, err
		}
		l = p.by
		for _, r := range p.records {
			do(r)
		}
		if p.next == from || p.next >= p.end {
			p.records = nil
			return p, nil
		}
		from = p.next
	}
}
