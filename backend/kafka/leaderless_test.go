package kafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// loseLeader has the cluster say that nobody leads a partition, until the function returned is called.
func (f *fake) loseLeader(partition int32) (elect func()) {
	f.Helper()
	brokers := kmsg.NewMetadataResponseBroker()
	brokers.NodeID, brokers.Host = f.PartitionInfo("jobs", 0).Leader, "127.0.0.1"
	_, port, _ := strings.Cut(f.ListenAddrs()[0], ":")
	for _, digit := range port {
		brokers.Port = brokers.Port*10 + digit - '0'
	}
	over := make(chan struct{})
	f.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		select {
		case <-over:
			return nil, nil, false
		default:
			f.KeepControl()
		}
		answer := req.ResponseKind().(*kmsg.MetadataResponse)
		answer.ControllerID, answer.Brokers = brokers.NodeID, append(answer.Brokers, brokers)
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			info := f.TopicInfo("jobs")
			if asked.Topic == nil || *asked.Topic != "jobs" {
				return nil, nil, false
			}
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, info.TopicID
			for p := range int32(4) {
				part := kmsg.NewMetadataResponseTopicPartition()
				part.Partition, part.Leader, part.LeaderEpoch = p, brokers.NodeID, f.PartitionInfo("jobs", p).Epoch
				part.Replicas, part.ISR = []int32{brokers.NodeID}, []int32{brokers.NodeID}
				if p == partition {
					part.ErrorCode, part.Leader, part.ISR = kerr.LeaderNotAvailable.Code, -1, nil
				}
				topic.Partitions = append(topic.Partitions, part)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	led := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets, kmsg.DescribeShareGroupOffsets}, Topic: "jobs", Partitions: []int32{partition}, Err: kerr.NotLeaderForPartition, Count: -1})
	return func() { close(over); led.Remove() }
}

// TestAPartitionWithoutALeader is left out of readings: what waits in the others is known, what is finished there
// counts, and the doctor says what is wrong. Once it is led again it is counted as before.
func TestAPartitionWithoutALeader(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			f := newFake(t, kfake.SeedTopics(4, "jobs"))
			client := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
			for i := range int32(12) {
				if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Partition: i % 4, Value: []byte("x")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			b := f.open(kind)
			reads := func(what string, fits func(s backend.Signal) bool) (read backend.Signal) {
				t.Helper()
				await(t, what, func() bool {
					s, err := b.Signal(t.Context(), 1)
					read = s
					return err == nil && fits(s)
				})
				return read
			}
			before := reads("12 that wait", func(s backend.Signal) bool { return s.Lag != nil && *s.Lag == 12 })
			elect := f.loseLeader(1)
			partial := reads("a reading of the others", func(s backend.Signal) bool { return s.Lag == nil })
			if partial.Behind != 9 || partial.XLen != 9 || partial.Finished == nil || *partial.Finished != *before.Finished {
				t.Errorf("of 12 messages 9 are in partitions with a leader, the guard reads %+v", partial)
			}
			if s, err := b.Stats(t.Context()); err != nil || s.Lag != nil || s.Behind != 9 || s.OldestSource != backend.AgeBacklog {
				t.Errorf("of 12 messages 9 are in partitions with a leader, stats are %+v, %v", s, err)
			}
			found, err := weir.New(b).Examine(t.Context(), weir.Exam{})
			codes := []string{}
			for _, f := range found.Findings {
				codes = append(codes, f.Code)
			}
			if err != nil || !slices.Contains(codes, "too_few_replicas") || slices.Contains(codes, "lag_unknown") {
				t.Errorf("the doctor finds %v, %v", codes, err)
			}
			var held []*backend.Delivery
			await(t, "the 9", func() bool {
				got, err := b.Claim(t.Context(), claim(20))
				if err != nil {
					t.Fatal(err)
				}
				held = append(held, got.Deliveries...)
				return len(held) >= 9
			})
			settled(t, b, slices.DeleteFunc(held, func(d *backend.Delivery) bool { return strings.HasPrefix(d.ID, "1:") }))
			done := reads("9 that are finished", func(s backend.Signal) bool { return s.Finished != nil && *s.Finished == *before.Finished+9 })
			if done.Behind+done.Pending > 3 {
				t.Errorf("all that is in partitions with a leader is finished, the guard reads %+v", done)
			}
			elect()
			again := reads("the partition", func(s backend.Signal) bool { return s.Lag != nil })
			if *again.Lag+again.Pending != 3 || *again.Finished != *done.Finished {
				t.Errorf("3 are left, the guard reads %+v", again)
			}
		})
	}
}
