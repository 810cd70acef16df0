package kafka_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/link"
)

// fetches counts the fetches from each of two brokers.
type fetches [2]atomic.Int64

func (f *fetches) OnBrokerWrite(meta kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == int16(kmsg.Fetch) && meta.NodeID >= 0 && int(meta.NodeID) < len(f) {
		f[meta.NodeID].Add(1)
	}
}

// TestReadingsFollowALeaderThatMoves, as in a rolling restart: the ledger and the dead letters are read from
// whoever leads them now, and not asked for in vain first each time.
func TestReadingsFollowALeaderThatMoves(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(1, "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f := &fake{t, c}
	worker := f.open(groupClassic)
	f.publish(worker, 0, 1)
	if err := worker.DeadLetter(t.Context(), gather(t, worker, 1)[0], "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		t.Fatal(err)
	}
	lead := func(broker int32) {
		for _, topic := range []string{"jobs.weir", "jobs.dlq"} {
			if err := c.MoveTopicPartition(topic, 0, broker); err != nil {
				t.Fatal(err)
			}
		}
	}
	var seen fetches
	reader := f.open(groupClassic, kgo.WithHooks(&seen))
	read := func() {
		t.Helper()
		s, err := reader.Stats(t.Context())
		if err != nil || s.DeadLetters == nil || *s.DeadLetters != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	lead(0)
	read()
	lead(1)
	read()
	before := seen[0].Load()
	for range 5 {
		read()
	}
	if n := seen[0].Load() - before; n > 0 {
		t.Errorf("5 readings asked %d times a broker that leads no more", n)
	}
}

// TestALeaseEndsWithItsLeader: the broker that leads a partition now hands out what was held, so its holder
// learns that it is another's, as after a rolling restart, when leaders go back where they were.
func TestALeaseEndsWithItsLeader(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.NumBrokers(2))
	first, second := f.open(groupShare), f.open(groupShare)
	f.publish(first, 0, 1)
	held := gather(t, first, 1)
	if err := f.MoveTopicPartition("jobs", 0, 1-f.PartitionInfo("jobs", 0).Leader); err != nil {
		t.Fatal(err)
	}
	if got := gather(t, second, 1); got[0].ID != held[0].ID {
		t.Fatalf("the other gets %s", got[0].ID)
	}
	await(t, "the end of the lease", func() bool {
		lost, err := first.Extend(t.Context(), leasesOf(held), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return len(lost) > 0
	})
}

// TestManyPartitionsMoveAtOnce, as when one of two brokers of a large topic is stopped: the next claim brings what
// is published then, and no error.
func TestManyPartitionsMoveAtOnce(t *testing.T) {
	t.Parallel()
	const partitions = 1200
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(partitions, "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f := &fake{t, c}
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	f.take(b, 1)
	for p := range int32(partitions) {
		if err := c.MoveTopicPartition("jobs", p, 1-f.PartitionInfo("jobs", p).Leader); err != nil {
			t.Fatal(err)
		}
	}
	watch := stopwatch()
	f.publish(b, 1, 2)
	gather(t, b, 1)
	if took := watch(); took > 6*time.Second {
		t.Errorf("a message came after %s", took)
	}
}

// TestReadingsGoOnWithoutALeaderThatIsGone: another leads its partition when a broker has been stopped. The next
// reading but one, at the latest, is of what is.
func TestReadingsGoOnWithoutALeaderThatIsGone(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		f := newFake(t, kfake.NumBrokers(2))
		stays := f.CoordinatorFor("g")
		goes := 1 - stays
		lead := func(topic string, broker int32) {
			t.Helper()
			if err := f.MoveTopicPartition(topic, 0, broker); err != nil {
				t.Fatal(err)
			}
		}
		worker := f.open(kind)
		f.publish(worker, 0, 1)
		f.take(worker, 1)
		if err := worker.PublishSignal(t.Context(), time.Minute); err != nil { // so that the ledger is there
			t.Fatal(err)
		}
		lead("jobs.weir", stays)
		lead("jobs", goes)
		proxy := link.NewProxy(t, f.ListenAddrs()[goes])
		b := f.open(kind, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == f.ListenAddrs()[goes] {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}))
		if _, err := b.Signal(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		lead("jobs", stays)
		proxy.Refuse()
		_, first := b.Signal(t.Context(), 1)
		if _, err := b.Signal(t.Context(), 1); err != nil {
			t.Errorf("readings of a %s group: %v, then %v", kind, first, err)
		}
	}
}

// TestTheAgeInATopicMadeAgain is not that of a message of the first, which had the same place.
func TestTheAgeInATopicMadeAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		f := newFake(t)
		b := f.open(kind)
		stores := func(published time.Time) {
			t.Helper()
			r := &kgo.Record{Topic: "jobs", Value: []byte("x"), Timestamp: published}
			if err := f.client().ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		age := func() time.Duration {
			s, err := b.Stats(t.Context())
			if err != nil || s.OldestSource != backend.AgeBacklog {
				t.Fatalf("%+v, %v", s, err)
			}
			return s.OldestAge
		}
		stores(time.Now().Add(-time.Hour))
		if old := age(); old < time.Hour {
			t.Errorf("%s group: an hour after it was published a message is %v old", kind, old)
		}
		if err := b.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := f.CreateTopic("jobs", 1, nil); err != nil {
			t.Fatal(err)
		}
		stores(time.Now())
		if now := age(); now > 10*time.Minute {
			t.Errorf("%s group: a message that was published just now is %v old", kind, now)
		}
	}
}

// TestMovesOfALeaderThatAreFarApart do not count together: between them there are answers without
// anything new, which name no partition.
func TestMovesOfALeaderThatAreFarApart(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	f.take(b, 1)
	moves := 0
	f.ControlKey(int16(kmsg.ShareFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		answer := req.ResponseKind().(*kmsg.ShareFetchResponse)
		answer.AcquisitionLockTimeoutMillis = 1000
		if moves++; moves%2 == 0 {
			topic, part := kmsg.NewShareFetchResponseTopic(), kmsg.NewShareFetchResponseTopicPartition()
			part.ErrorCode = kerr.NotLeaderForPartition.Code
			topic.Partitions = append(topic.Partitions, part)
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	for moves < 100 {
		req := claim(1)
		req.Block = time.Millisecond
		if _, err := b.Claim(t.Context(), req); err != nil {
			t.Fatalf("after %d answers: %v", moves, err)
		}
	}
}

// TestAGroupGoesOnWithItsNextCoordinator, whether the last one says so or is gone: workers are told of a partition that is
// added then.
func TestAGroupGoesOnWithItsNextCoordinator(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		f := newFake(t, kfake.NumBrokers(2))
		client := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		brokers, err := kadm.NewClient(client).BrokerMetadata(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		coordinated := func(by int32) {
			for f.CoordinatorFor("g") != by {
				f.RehashCoordinators()
			}
		}
		stays := brokers.Controller
		coordinated(1 - stays)
		if err := f.MoveTopicPartition("jobs", 0, stays); err != nil {
			t.Fatal(err)
		}
		goes := f.ListenAddrs()[1-stays]
		proxy := link.NewProxy(t, goes)
		b := f.open(groupShare, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == goes {
				addr = proxy.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}))
		f.publish(b, 0, 1)
		f.take(b, 1)
		if gone {
			proxy.Refuse()
		}
		coordinated(stays)
		f.added(b, client, stays)
	}
}

// added has a worker handle a message in a partition that is new, led by a broker.
func (f *fake) added(b *kafka.Backend, client *kgo.Client, leader int32) {
	f.Helper()
	if _, err := kadm.NewClient(client).UpdatePartitions(f.Context(), 2, "jobs"); err != nil {
		f.Fatal(err)
	}
	if err := f.MoveTopicPartition("jobs", 1, leader); err != nil {
		f.Fatal(err)
	}
	await(f, "a message in the new partition", func() bool {
		return client.ProduceSync(f.Context(), &kgo.Record{Topic: "jobs", Partition: 1, Value: []byte("x")}).FirstErr() == nil
	})
	f.take(b, 1)
}

// TestAWorkerThatTheGroupHasForgotten, of which it has heard nothing for longer than a session, joins again.
func TestAWorkerThatTheGroupHasForgotten(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.share.session.timeout.ms": "500", "group.share.heartbeat.interval.ms": "100"}))
	client := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	f.take(b, 1)
	var forgotten atomic.Bool
	f.ControlKey(int16(kmsg.ShareGroupHeartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if forgotten.Load() {
			return nil, nil, false
		}
		f.KeepControl()
		answer := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		answer.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return answer, nil, true
	})
	await(t, "the end of the session", func() bool {
		groups, err := kadm.NewClient(client).DescribeShareGroups(t.Context(), "g")
		return err == nil && len(groups["g"].Members) == 0
	})
	forgotten.Store(true)
	f.added(b, client, 0)
}

// TestClaimsGoOnWhereAPartitionHasLeft: of two that a broker led another leads one by now, and in the one that is
// left nothing is new.
func TestClaimsGoOnWhereAPartitionHasLeft(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "jobs"))
	lead := func(partition, broker int32) {
		t.Helper()
		if err := f.MoveTopicPartition("jobs", partition, broker); err != nil {
			t.Fatal(err)
		}
	}
	lead(0, 0)
	lead(1, 0)
	b := f.open(groupShare, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	f.publish(b, 0, 2)
	f.take(b, 2)
	lead(1, 1)
	f.publish(b, 2, 4)
	f.take(b, 2)
	for range 100 {
		req := claim(1)
		req.Block = time.Millisecond
		if _, err := b.Claim(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAWorkerAsksOnlyForWhatIsItsOwn: once another has joined, each has one of two partitions, and asks the broker
// that leads it.
func TestAWorkerAsksOnlyForWhatIsItsOwn(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "jobs"))
	for p := range int32(2) {
		if err := f.MoveTopicPartition("jobs", p, p); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	asked := map[string][]int32{} // brokers, by member
	f.ControlKey(int16(kmsg.ShareFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		member := *req.(*kmsg.ShareFetchRequest).MemberID
		asked[member] = append(asked[member], f.CurrentNode())
		return nil, nil, false
	})
	first, second := f.open(groupShare), f.open(groupShare)
	req := claim(1)
	req.Block = time.Millisecond
	f.soon(func() string {
		for _, b := range []*kafka.Backend{first, second} {
			if _, err := b.Claim(t.Context(), req); err != nil {
				return err.Error()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for member, brokers := range asked {
			if n := len(brokers); n < 20 || len(slices.Compact(slices.Clone(brokers[n-20:]))) > 1 {
				return fmt.Sprintf("of %d fetches of %s the last were from %v", n, member, brokers[max(0, n-20):])
			}
		}
		if len(asked) == 2 {
			return ""
		}
		return "one has not fetched"
	})
}

// TestAWorkerThatComesRightBehindItsTopic: a broker has not heard of it yet, and the worker does not end.
func TestAWorkerThatComesRightBehindItsTopic(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		f := newFake(t, kfake.NumBrokers(2))
		if err := f.client().ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "jobs", Err: kerr.UnknownTopicOrPartition, Count: 4})
		b := f.open(kind)
		await(t, "the message", func() bool {
			got, err := b.Claim(t.Context(), claim(1))
			if err != nil && !backend.Retryable(err) {
				t.Fatal(err)
			}
			return len(got.Deliveries) > 0
		})
	}
}

// TestAPublisherThatComesRightBehindItsTopic: what it publishes is stored, not refused.
func TestAPublisherThatComesRightBehindItsTopic(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.NumBrokers(2))
	if err := f.client().ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "jobs", Err: kerr.UnknownTopicOrPartition, Count: 4})
	if got, err := f.open(groupTypes[0]).Append(t.Context(), []backend.Message{{Data: []byte("y")}}); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
