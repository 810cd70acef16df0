package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// TestWhatAnAckOfAShareGroupIsTold: what the broker refuses is lost, what it may have done is of unknown
// outcome.
func TestWhatAnAckOfAShareGroupIsTold(t *testing.T) {
	t.Parallel()
	for err, lost := range map[*kerr.Error]int{
		kerr.ShareSessionNotFound: 3, kerr.InvalidShareSessionEpoch: 3, // -1: unknown
		kerr.NotLeaderForPartition: -1, kerr.KafkaStorageError: -1, kerr.UnknownServerError: -1,
	} {
		f := newFake(t)
		b := f.open(groupShare)
		f.publish(b, 0, 3)
		list := gather(t, b, 3)
		fault := f.Fault(trouble{key: kmsg.ShareAcknowledge, err: err, whole: true}.fault(1))
		got, said := b.Ack(t.Context(), leasesOf(list))
		fault.Remove()
		if len(got) != max(0, lost) || errors.Is(said, backend.ErrOutcomeUnknown) != (lost < 0) || lost >= 0 && said != nil {
			t.Errorf("%v: lost %v, %v", err.Message, got, said)
		}
	}
}

// TestARecordThatIsRefusedTakesNoOtherAlong, of its partition or another: brokers refuse all of a partition
// for one that is another's by now.
func TestARecordThatIsRefusedTakesNoOtherAlong(t *testing.T) {
	t.Parallel()
	for err, unknown := range map[*kerr.Error]bool{kerr.InvalidRecordState: false, kerr.NotLeaderForPartition: true} {
		c, failed := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "jobs"))
		if failed != nil {
			t.Fatal(failed)
		}
		t.Cleanup(c.Close)
		f := &fake{t, c}
		b := f.open(groupShare, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		f.publish(b, 0, 8)
		list := gather(t, b, 8)
		slices.SortFunc(list, func(a, b *backend.Delivery) int { return strings.Compare(a.ID[2:], b.ID[2:]) }) // the partitions take turns
		refused := list[3].ID
		f.ControlKey(int16(kmsg.ShareAcknowledge), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			return refusal(req.(*kmsg.ShareAcknowledgeRequest), refused, err), nil, true
		})
		lost, said := b.Ack(t.Context(), leasesOf(list))
		if unknown && (!errors.Is(said, backend.ErrOutcomeUnknown) || len(lost) > 0) || !unknown && (said != nil || !slices.Equal(lost, []string{refused})) {
			t.Errorf("%v of %s: lost %v, %v", err.Message, refused, lost, said)
		}
	}
}

// refusal is the answer of a broker to which one record is not the member's.
func refusal(req *kmsg.ShareAcknowledgeRequest, id string, err *kerr.Error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	for _, t := range req.Topics {
		topic := kmsg.NewShareAcknowledgeResponseTopic()
		topic.TopicID = t.TopicID
		for i, p := range t.Partitions {
			part := kmsg.NewShareAcknowledgeResponseTopicPartition()
			part.Partition = p.Partition
			if slices.ContainsFunc(t.Partitions[:i], func(q kmsg.ShareAcknowledgeRequestTopicPartition) bool { return q.Partition == p.Partition }) {
				part.ErrorCode = kerr.InvalidRequest.Code // it is there twice
			}
			for _, batch := range p.AcknowledgementBatches {
				for at := batch.FirstOffset; at <= batch.LastOffset; at++ {
					if fmt.Sprintf("%d:%d", p.Partition, at) == id {
						part.ErrorCode = err.Code
					}
				}
			}
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// TestARecordThatIsRefusedWhileAPartitionMoves takes no other along either: of the partition that moves, the outcome is unknown.
func TestARecordThatIsRefusedWhileAPartitionMoves(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(2, "jobs"))
	b := f.open(groupShare, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	f.publish(b, 0, 8)
	list := gather(t, b, 8)
	f.ControlKey(int16(kmsg.ShareAcknowledge), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := refusal(req.(*kmsg.ShareAcknowledgeRequest), "0:1", kerr.InvalidRecordState).(*kmsg.ShareAcknowledgeResponse)
		for _, topic := range resp.Topics {
			for i := range topic.Partitions {
				if topic.Partitions[i].Partition == 1 {
					topic.Partitions[i].ErrorCode = kerr.NotLeaderForPartition.Code
				}
			}
		}
		return resp, nil, true
	})
	lost, err := b.Ack(t.Context(), leasesOf(list))
	if !errors.Is(err, backend.ErrOutcomeUnknown) || !slices.Equal(lost, []string{"0:1"}) {
		t.Errorf("lost %v, %v", lost, err)
	}
}

// TestAnAckThatCannotBeginInTime has said nothing, and may be said again.
func TestAnAckThatCannotBeginInTime(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.share.record.lock.duration.ms": "15000"}))
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	list := gather(t, b, 1)
	asked, goOn := make(chan struct{}), make(chan struct{})
	f.ControlKey(int16(kmsg.ShareFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.DropControl()
		f.SleepControl(func() { close(asked); <-goOn })
		return nil, nil, false
	})
	claimed := make(chan error, 1)
	go func() { _, err := b.Claim(t.Context(), claim(1)); claimed <- err }()
	<-asked // the session has a request on its way, and no other until that is answered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if lost, err := b.Ack(ctx, leasesOf(list)); !errors.Is(err, context.DeadlineExceeded) || len(lost) > 0 {
		t.Errorf("lost %v, %v", lost, err)
	}
	close(goOn)
	if err := <-claimed; err != nil {
		t.Error(err)
	}
	if lost, err := b.Ack(t.Context(), leasesOf(list)); err != nil || len(lost) > 0 {
		t.Errorf("said again: lost %v, %v", lost, err)
	}
}

// TestAnAckThatWaitsForItsCommit, which the broker refuses for a while, is told when that gets through, or that
// the group has put the member out, and the messages are others' by now.
func TestAnAckThatWaitsForItsCommit(t *testing.T) {
	t.Parallel()
	for _, out := range []bool{false, true} {
		f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.min.session.timeout.ms": "500"}))
		b := f.open(groupClassic, shortSession...)
		f.publish(b, 0, 3)
		list := gather(t, b, 3)
		refused := f.Fault(trouble{key: kmsg.OffsetCommit, err: kerr.RebalanceInProgress}.fault(-1))
		time.Sleep(time.Second) // the broker has not heard of it for more than half a session
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		told := make(chan []string, 1)
		go func() {
			lost, err := b.Ack(ctx, leasesOf(list))
			if err != nil {
				t.Error(err)
			}
			told <- lost
		}()
		if err := refused.Wait(t.Context(), refused.Hits()+2); err != nil {
			t.Fatal(err)
		}
		if out {
			f.Fault(trouble{key: kmsg.Heartbeat, err: kerr.UnknownMemberID, whole: true}.fault(1))
		} else {
			refused.Remove()
		}
		if lost := <-told; out && len(lost) != len(list) {
			t.Errorf("of %d that are others' by now the ack has lost %v", len(list), lost)
		}
	}
}

// TestADeliveryCountsThoughTheOneBeforeDidNot: no handler had begun with the first, and the lease of the
// second has ended.
func TestADeliveryCountsThoughTheOneBeforeDidNot(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	req := claim(1)
	var got []*backend.Delivery
	for _, want := range []int{1, 1, 2} {
		await(t, "the message", func() bool {
			claimed, err := b.Claim(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got = claimed.Deliveries
			return len(got) > 0
		})
		if got[0].Attempt != want {
			t.Errorf("attempt %d, want %d", got[0].Attempt, want)
		}
		if req.Consumer = "b"; want == 1 && got[0].Consumer == "a" {
			if _, err := b.Nack(t.Context(), []backend.Return{{Lease: got[0].Lease, NotStarted: true}}); err != nil {
				t.Fatal(err)
			}
			req.ReclaimAfter = 100 * time.Millisecond
		}
	}
}

// TestALetterOnItsWayIsNotHandedOut, though its lease ends before it is stored.
func TestALetterOnItsWayIsNotHandedOut(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		f := newFake(t, kfake.SeedTopics(1, "jobs.dlq"))
		b := f.open(kind)
		asked, goOn := make(chan struct{}), make(chan struct{})
		f.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			id := f.TopicInfo("jobs.dlq").TopicID
			if slices.ContainsFunc(req.(*kmsg.ProduceRequest).Topics, func(t kmsg.ProduceRequestTopic) bool { return t.TopicID == id }) {
				f.DropControl()
				f.SleepControl(func() { close(asked); <-goOn })
			}
			return nil, nil, false
		})
		f.publish(b, 0, 1)
		req := claim(1)
		req.ReclaimAfter = 300 * time.Millisecond
		stored := make(chan error, 1)
		for onItsWay := false; !onItsWay; {
			got, err := b.Claim(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Deliveries) == 0 {
				continue
			}
			go func() { stored <- b.DeadLetter(t.Context(), got.Deliveries[0], "", poison) }()
			select {
			case <-asked:
				onItsWay = true
			case err := <-stored:
				if !errors.Is(err, backend.ErrLeaseLost) { // this machine stood still for as long as the lease
					t.Fatal(err)
				}
			}
		}
		for end := time.Now().Add(3 * req.ReclaimAfter); time.Now().Before(end); {
			if got, err := b.Claim(t.Context(), req); err != nil || len(got.Deliveries) > 0 {
				t.Errorf("%s group: while its letter is on its way the message comes again, %v", kind, err)
				break
			}
		}
		close(goOn)
		if err := <-stored; err != nil {
			t.Errorf("%s group: %v", kind, err)
		}
	}
}

// TestWhatNobodyHasClaimedIsNotPending: it came when the claim had ended, and goes back.
func TestWhatNobodyHasClaimedIsNotPending(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	claimed := make(chan error)
	asked, back := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	f.ControlKey(int16(kmsg.ShareFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.DropControl()
		f.SleepControl(func() { close(asked); <-back })
		return nil, nil, false
	})
	released := make(chan struct{})
	f.ControlKey(int16(kmsg.ShareAcknowledge), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.DropControl()
		close(released)
		return nil, nil, false
	})
	go func() {
		req := claim(1)
		req.ReclaimAfter = 100 * time.Millisecond
		_, err := b.Claim(ctx, req)
		claimed <- err
	}()
	<-asked
	f.publish(b, 0, 2)
	cancel()
	if err := <-claimed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(back)
	<-released
	await(t, "a reading that says that nobody holds anything", func() bool {
		s, err := b.Stats(t.Context())
		return err == nil && s.Pending == 0 && s.Lag != nil && *s.Lag == 2
	})
}

// TestAnAckThatWaitsWhileTheTopicIsMadeAgain says nothing of the message with the same ID in the new one, which fails
// and comes again.
func TestAnAckThatWaitsWhileTheTopicIsMadeAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.share.record.lock.duration.ms": "15000"}))
	b := f.open(groupShare)
	f.publish(b, 0, 2)
	list := gather(t, b, 2)
	asked, goOn := make(chan struct{}), make(chan struct{})
	f.ControlKey(int16(kmsg.ShareAcknowledge), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.DropControl()
		f.SleepControl(func() { close(asked); <-goOn })
		return nil, nil, false
	})
	var acks sync.WaitGroup
	ack := func(d *backend.Delivery) {
		acks.Go(func() { _, _ = b.Ack(t.Context(), []backend.Lease{d.Lease}) }) // it may be told or not
	}
	ack(list[1])
	<-asked // what follows waits for its answer
	if err := b.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic("jobs", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.client().ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Value: []byte("new")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan []*backend.Delivery, 1)
	comes := func() {
		var got backend.Claimed
		await(t, "the new message", func() bool {
			got, _ = b.Claim(t.Context(), claim(1))
			return len(got.Deliveries) > 0
		})
		claimed <- got.Deliveries
	}
	go comes()
	time.Sleep(100 * time.Millisecond) // the claim's request is the next one, and the ack waits for that, too
	ack(list[0])
	time.Sleep(100 * time.Millisecond)
	close(goOn)
	acks.Wait()
	if lost, err := b.Nack(t.Context(), []backend.Return{{Lease: (<-claimed)[0].Lease}}); err != nil || len(lost) > 0 {
		t.Errorf("the handler of the new message has failed: lost %v, %v", lost, err)
	}
	comes()
}
