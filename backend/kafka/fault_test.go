package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/leak"
)

// fake is a cluster in this process whose answers can be wrong, with one topic.
type fake struct {
	*testing.T
	*kfake.Cluster
}

func newFake(t *testing.T, opts ...kfake.Opt) *fake {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "jobs"), kfake.BrokerConfigs(map[string]string{
		"group.share.record.lock.duration.ms": "1000", "share.record.lock.sweep.interval.ms": "100", "group.share.heartbeat.interval.ms": "200",
	})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &fake{t, c}
}

// client is another program that uses the cluster until the test ends.
func (f *fake) client(opts ...kgo.Opt) *kgo.Client {
	f.Helper()
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(f.ListenAddrs()...))...)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(c.Close)
	return c
}

func (f *fake) open(kind string, opts ...kgo.Opt) *kafka.Backend {
	b := open(f, "kafka://"+f.ListenAddrs()[0]+"/jobs?group=g&group_type="+kind, opts...)
	f.T.Cleanup(func() { b.Close() })
	return b
}

// stored is how many records the topic has.
func (f *fake) stored() int64 { return f.PartitionInfo("jobs", 0).HighWatermark }

// trouble is an error that the cluster answers with.
type trouble struct {
	key   kmsg.Key
	err   *kerr.Error
	whole bool // of the whole request
	first bool // before anything is stored or claimed
}

func (w trouble) String() string { return fmt.Sprintf("%s answers %s", w.key.Name(), w.err.Message) }

func (w trouble) fault(times int) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{w.key}, Err: w.err, TopLevel: w.whole, Count: times}
}

// Troubles that pass: of producers and of both types of groups, of share groups, and of
// classic ones.
var passing = map[string][]trouble{
	"": {
		{key: kmsg.Produce, err: kerr.NotLeaderForPartition},
		{key: kmsg.Produce, err: kerr.NotEnoughReplicas},
		{key: kmsg.Produce, err: kerr.NotEnoughReplicasAfterAppend},
		{key: kmsg.Produce, err: kerr.RequestTimedOut},
		{key: kmsg.Produce, err: kerr.KafkaStorageError},
		{key: kmsg.InitProducerID, err: kerr.CoordinatorLoadInProgress, whole: true, first: true},
		{key: kmsg.InitProducerID, err: kerr.NotCoordinator, whole: true, first: true},
		{key: kmsg.Metadata, err: kerr.LeaderNotAvailable, first: true},
		{key: kmsg.Metadata, err: kerr.UnknownTopicOrPartition},
		{key: kmsg.FindCoordinator, err: kerr.CoordinatorNotAvailable, first: true},
	},
	groupShare: {
		{key: kmsg.ShareGroupHeartbeat, err: kerr.CoordinatorLoadInProgress, whole: true, first: true},
		{key: kmsg.ShareGroupHeartbeat, err: kerr.NotCoordinator, whole: true, first: true},
		{key: kmsg.ShareGroupHeartbeat, err: kerr.UnknownMemberID, whole: true},
		{key: kmsg.ShareGroupHeartbeat, err: kerr.FencedMemberEpoch, whole: true},
		{key: kmsg.ShareFetch, err: kerr.NotLeaderForPartition},
		{key: kmsg.ShareFetch, err: kerr.UnknownTopicID},
		{key: kmsg.ShareFetch, err: kerr.FencedLeaderEpoch},
		{key: kmsg.ShareFetch, err: kerr.ShareSessionNotFound, whole: true},
		{key: kmsg.ShareFetch, err: kerr.InvalidShareSessionEpoch, whole: true},
		{key: kmsg.ShareAcknowledge, err: kerr.NotLeaderForPartition},
		{key: kmsg.ShareAcknowledge, err: kerr.InvalidRecordState},
		{key: kmsg.ShareAcknowledge, err: kerr.ShareSessionNotFound, whole: true},
		{key: kmsg.ShareAcknowledge, err: kerr.InvalidShareSessionEpoch, whole: true},
	},
	groupClassic: {
		{key: kmsg.JoinGroup, err: kerr.CoordinatorLoadInProgress, whole: true, first: true},
		{key: kmsg.JoinGroup, err: kerr.NotCoordinator, whole: true, first: true},
		{key: kmsg.SyncGroup, err: kerr.RebalanceInProgress, whole: true, first: true},
		{key: kmsg.SyncGroup, err: kerr.UnknownMemberID, whole: true, first: true},
		{key: kmsg.OffsetFetch, err: kerr.CoordinatorLoadInProgress, first: true},
		{key: kmsg.OffsetFetch, err: kerr.UnstableOffsetCommit, first: true},
		{key: kmsg.Heartbeat, err: kerr.RebalanceInProgress, whole: true},
		{key: kmsg.Heartbeat, err: kerr.IllegalGeneration, whole: true},
		{key: kmsg.OffsetFetch, err: kerr.UnknownTopicOrPartition, first: true},
		{key: kmsg.ListOffsets, err: kerr.UnknownTopicOrPartition, first: true},
		{key: kmsg.Fetch, err: kerr.NotLeaderForPartition},
		{key: kmsg.Fetch, err: kerr.UnknownTopicOrPartition},
		{key: kmsg.OffsetCommit, err: kerr.UnknownTopicOrPartition},
		{key: kmsg.Fetch, err: kerr.UnknownTopicID},
		{key: kmsg.Fetch, err: kerr.KafkaStorageError},
		{key: kmsg.OffsetCommit, err: kerr.IllegalGeneration},
		{key: kmsg.OffsetCommit, err: kerr.RebalanceInProgress},
		{key: kmsg.OffsetCommit, err: kerr.UnknownMemberID},
		{key: kmsg.OffsetCommit, err: kerr.CoordinatorLoadInProgress},
		{key: kmsg.OffsetCommit, err: kerr.NotCoordinator},
	},
}

const groupShare, groupClassic = "share", "classic"

// TestABrokerThatIsBehindEndsNoWorker: one that has just started may not have heard of the topic.
func TestABrokerThatIsBehindEndsNoWorker(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			worker := f.open(kind)
			f.publish(worker, 0, 2)
			f.take(worker, 1)
			until := time.Now().Add(500 * time.Millisecond)
			f.isBehind(until)
			for time.Now().Before(until) {
				_, _ = worker.Retained(t.Context(), true) // which asks for the topic
				if _, err := worker.Claim(t.Context(), claim(1)); errors.Is(err, backend.ErrStreamNotFound) {
					t.Fatal(err)
				}
				f.publish(worker, 2, 3)
			}
		})
	}
}

// isBehind has the cluster know no topic until a time.
func (f *fake) isBehind(until time.Time) {
	f.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if time.Now().After(until) {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.MetadataResponse)
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.TopicID, topic.ErrorCode = asked.Topic, asked.TopicID, kerr.UnknownTopicOrPartition.Code
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
}

// TestATopicThatWasMadeIsNotMissing: who has just made it is not told to make it, and goes on once the brokers know it.
func TestATopicThatWasMadeIsNotMissing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := open(t, "kafka://"+f.ListenAddrs()[0]+"/late?group=g&partitions=1")
	defer b.Close()
	f.ControlKey(int16(kmsg.CreateTopics), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.isBehind(time.Now().Add(time.Second))
		return nil, nil, false
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	messages := []backend.Message{{Data: []byte("a")}}
	if _, err := b.Append(ctx, messages); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("while the brokers do not know the topic: %v", err)
	}
	if _, err := b.Append(t.Context(), messages); err != nil {
		t.Error(err)
	}
}

// TestABrokerThatIsBehindMakesNoStreamEmpty, though the URL says that a topic that is missing is to be made.
func TestABrokerThatIsBehindMakesNoStreamEmpty(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := open(t, "kafka://"+f.ListenAddrs()[0]+"/jobs?group=g&group_type=classic&partitions=1")
	defer b.Close()
	f.publish(b, 0, 2)
	until := time.Now().Add(500 * time.Millisecond)
	f.isBehind(until)
	for time.Now().Before(until) {
		_, _ = b.Retained(t.Context(), false) // which asks for the topic
		if s, err := b.Signal(t.Context(), 1); err == nil && (s.Lag == nil || *s.Lag != 2) || err != nil && !backend.Retryable(err) {
			t.Fatalf("2 messages wait, the guard reads %+v, %v", s, err)
		}
		if s, err := b.Stats(t.Context()); err == nil && (s.Lag == nil || *s.Lag != 2) || err != nil && !backend.Retryable(err) {
			t.Fatalf("2 messages wait, stats are %+v, %v", s, err)
		}
	}
}

// TestTroubleThatPasses: the cluster answers two requests with an error that says to try again,
// or to begin anew. Every message is stored once, within its context, and handled, and nothing
// is left to do.
func TestTroubleThatPasses(t *testing.T) {
	t.Parallel()
	leak.Check(t, 10*time.Second, func() {
		at := newCases()
		defer at.running.Wait()
		for what, list := range passing {
			for _, kind := range groupTypes {
				for _, w := range list {
					if what == "" || what == kind {
						at.once(func() {
							t.Run(kind+" "+w.String(), func(t *testing.T) { passes(newFake(t), kind, w) })
						})
					}
				}
			}
		}
	})
}

// cases run eight at a time rather than as parallel tests, of which few would: they wait.
type cases struct {
	running sync.WaitGroup
	slots   chan struct{}
}

func newCases() *cases { return &cases{slots: make(chan struct{}, 8)} }

func (c *cases) once(do func()) {
	c.slots <- struct{}{}
	c.running.Go(func() {
		defer func() { <-c.slots }()
		do()
	})
}

func passes(f *fake, kind string, w trouble) {
	producer, worker := f.open(kind), f.open(kind)
	var fault *kfake.FaultHandle
	if w.first {
		fault = f.Fault(w.fault(2))
	}
	crew := startCrew(f, worker)
	const some, all = 5, 25
	f.publish(producer, 0, some)
	crew.handled(some)
	if !w.first {
		fault = f.Fault(w.fault(2))
	}
	if w.key == kmsg.Metadata {
		f.Fault(trouble{key: kmsg.Produce, err: kerr.NotLeaderForPartition}.fault(1)) // so that it is asked for
	}
	f.publish(producer, some, all)
	hit, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	if err := fault.Wait(hit, 1); err != nil {
		f.Fatal("the trouble did not come")
	}
	crew.handled(all)
	if n := f.stored(); n != all {
		f.Errorf("%d messages were stored as %d records", all, n)
	}
	var stats backend.Stats
	var err error
	f.soon(func() string {
		if stats, err = worker.Stats(f.Context()); err == nil && stats.Pending == 0 && stats.Lag != nil && *stats.Lag == 0 {
			return ""
		}
		return fmt.Sprintf("work is left: %d pending, %v", stats.Pending, err)
	})
	crew.end()
}

// publish stores messages with numbers as their payloads, each within its context.
func (f *fake) publish(b *kafka.Backend, from, to int) {
	f.Helper()
	for i := from; i < to; i++ {
		ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
		if _, err := b.Append(ctx, messages(fmt.Sprint(i))); err != nil {
			f.Errorf("message %d: %v", i, err)
		}
		cancel()
	}
}

// soon waits until nothing is amiss.
func (f *fake) soon(amiss func() string) {
	f.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		what := amiss()
		switch {
		case what == "":
			return
		case time.Now().After(deadline):
			f.Fatal(what)
		}
	}
}

// crew is a pool at work.
type crew struct {
	*fake
	mu     sync.Mutex
	runs   map[string]int
	ended  chan error
	cancel context.CancelFunc
}

func startCrew(f *fake, b *kafka.Backend) *crew {
	f.Helper()
	c := &crew{fake: f, runs: map[string]int{}, ended: make(chan error, 1)}
	pool, err := weir.NewPool(weir.New(b), func(_ context.Context, d *weir.Delivery) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs[string(d.Data)]++
		return nil
	}, weir.PoolConfig{Workers: 4, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	c.cancel = cancel
	go func() { c.ended <- pool.Run(ctx) }()
	return c
}

// handled waits until n messages have been.
func (c *crew) handled(n int) {
	c.Helper()
	c.soon(func() string {
		select {
		case err := <-c.ended:
			c.Fatalf("the pool ended: %v", err)
		default:
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.runs) >= n {
			return ""
		}
		return fmt.Sprintf("of %d messages, %d were handled", n, len(c.runs))
	})
}

func (c *crew) end() {
	c.Helper()
	c.cancel()
	if err := <-c.ended; err != nil && !errors.Is(err, context.Canceled) {
		c.Errorf("the pool ended with %v", err)
	}
}

// Troubles that stay, by who meets them, and what is said of them.
var staying = map[string][]struct {
	trouble
	want error
}{
	"": {
		{trouble{key: kmsg.Produce, err: kerr.MessageTooLarge}, backend.ErrTooLarge},
		{trouble{key: kmsg.Produce, err: kerr.TopicAuthorizationFailed}, backend.ErrForbidden},
		{trouble{key: kmsg.Produce, err: kerr.PolicyViolation}, kerr.PolicyViolation},
		{trouble{key: kmsg.Produce, err: kerr.UnknownServerError}, backend.ErrOutcomeUnknown},
	},
	groupShare: {
		{trouble{key: kmsg.ShareGroupHeartbeat, err: kerr.GroupAuthorizationFailed, whole: true, first: true}, backend.ErrForbidden},
		{trouble{key: kmsg.ShareGroupHeartbeat, err: kerr.GroupMaxSizeReached, whole: true, first: true}, kerr.GroupMaxSizeReached},
		{trouble{key: kmsg.ShareFetch, err: kerr.TopicAuthorizationFailed}, backend.ErrForbidden},
		{trouble{key: kmsg.ShareFetch, err: kerr.GroupAuthorizationFailed, whole: true}, backend.ErrForbidden},
	},
	groupClassic: {
		{trouble{key: kmsg.JoinGroup, err: kerr.GroupAuthorizationFailed, whole: true, first: true}, backend.ErrForbidden},
		{trouble{key: kmsg.JoinGroup, err: kerr.GroupMaxSizeReached, whole: true, first: true}, kerr.GroupMaxSizeReached},
		{trouble{key: kmsg.Fetch, err: kerr.TopicAuthorizationFailed}, backend.ErrForbidden},
		{trouble{key: kmsg.OffsetCommit, err: kerr.TopicAuthorizationFailed}, backend.ErrForbidden},
		{trouble{key: kmsg.OffsetCommit, err: kerr.GroupAuthorizationFailed}, backend.ErrForbidden},
	},
}

// TestTroubleThatStays: an append, or a claim, is an error at once that says so, and few requests
// are made in vain. When the trouble is over, the same handle goes on.
func TestTroubleThatStays(t *testing.T) {
	t.Parallel()
	leak.Check(t, 10*time.Second, func() {
		at := newCases()
		defer at.running.Wait()
		for kind, list := range staying {
			for _, w := range list {
				at.once(func() {
					t.Run(kind+" "+w.String(), func(t *testing.T) { stays(newFake(t), kind, w.trouble, w.want) })
				})
			}
		}
	})
}

func stays(f *fake, kind string, w trouble, want error) {
	b := f.open(cmp.Or(kind, groupClassic))
	f.publish(b, 0, 1)
	if kind != "" && !w.first {
		f.take(b, 1)
	}
	fault, watch := f.Fault(w.fault(-1)), stopwatch()
	if kind != "" && !w.first {
		f.publish(b, 1, 2)
	}
	err := f.try(kind, b)
	if took := watch(); !errors.Is(err, want) || backend.Retryable(err) != errors.Is(want, backend.ErrOutcomeUnknown) || took > 3*time.Second {
		f.Errorf("%v after %s, retryable %v; want %v", err, took, backend.Retryable(err), want)
	}
	if n := fault.Hits(); n > 20 {
		f.Errorf("%d requests were made in vain", n)
	}
	fault.Remove()
	if kind == "" {
		f.publish(b, 1, 2)
		if n := f.stored(); n != 2 {
			f.Errorf("2 messages were stored as %d records", n)
		}
		return
	}
	f.take(b, 1)
}

// try appends, or claims, until that is an error.
func (f *fake) try(kind string, b *kafka.Backend) (err error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 30*time.Second)
	defer cancel()
	for err == nil {
		if kind == "" {
			_, err = b.Append(ctx, messages("refused"))
		} else {
			_, err = b.Claim(ctx, claim(1))
		}
	}
	return err
}

// take claims messages and accepts them, whatever fails meanwhile.
func (f *fake) take(b *kafka.Backend, n int) {
	f.Helper()
	f.soon(func() string {
		got, err := b.Claim(f.Context(), claim(n))
		if err == nil && len(got.Deliveries) > 0 {
			n -= len(got.Deliveries)
			_, err = b.Ack(f.Context(), leasesOf(got.Deliveries))
		}
		if n == 0 {
			return ""
		}
		return fmt.Sprintf("%d messages did not come: %v", n, err)
	})
}

func leasesOf(list []*backend.Delivery) (leases []backend.Lease) {
	for _, d := range list {
		leases = append(leases, d.Lease)
	}
	return leases
}

// TestAPartitionThatStaysUnreadableIsTold: of an answer that is none as a whole, too.
func TestAPartitionThatStaysUnreadableIsTold(t *testing.T) {
	t.Parallel()
	for want, why := range map[error]*kerr.Error{backend.ErrForbidden: kerr.TopicAuthorizationFailed, backend.ErrUnavailable: kerr.KafkaStorageError} {
		t.Run(why.Message, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			b := f.open(groupShare)
			f.publish(b, 0, 1)
			f.take(b, 1)
			f.publish(b, 1, 2)
			id, away := f.TopicInfo("jobs").TopicID, atomic.Bool{}
			away.Store(true)
			f.ControlKey(int16(kmsg.ShareFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
				f.KeepControl()
				if !away.Load() {
					return nil, nil, false
				}
				answer, topic, part := req.ResponseKind().(*kmsg.ShareFetchResponse), kmsg.NewShareFetchResponseTopic(), kmsg.NewShareFetchResponseTopicPartition()
				topic.TopicID, part.ErrorCode = id, why.Code
				topic.Partitions = append(topic.Partitions, part)
				answer.Topics = append(answer.Topics, topic)
				return answer, nil, true
			})
			if err := f.try(groupShare, b); !errors.Is(err, want) {
				t.Errorf("%v; want %v", err, want)
			}
			away.Store(false)
			f.take(b, 1)
		})
	}
}
