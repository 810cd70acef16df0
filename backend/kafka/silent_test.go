package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/link"
)

// mute is a broker that stands still, or whose machine is gone: its connections stay open, and nothing answers.
type mute struct{ addr atomic.Pointer[string] }

func (m *mute) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &mutable{c, m, addr}, err
}

type mutable struct {
	net.Conn
	mute *mute
	addr string
}

func (c *mutable) Write(p []byte) (int, error) {
	if silent := c.mute.addr.Load(); silent != nil && *silent == c.addr {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// openAll is open with the addresses of all brokers.
func (f *fake) openAll(kind string, opts ...kgo.Opt) *kafka.Backend {
	b := open(f, "kafka://"+strings.Join(f.ListenAddrs(), ",")+"/jobs?group=g&group_type="+kind, opts...)
	f.T.Cleanup(func() { b.Close() })
	return b
}

// leaderGone ends the broker that leads the topic, of two. What it had is led by the other.
func (f *fake) leaderGone(silent *mute) {
	f.Helper()
	gone := f.PartitionInfo("jobs", 0).Leader
	silent.addr.Store(&f.ListenAddrs()[gone])
	if err := f.RemoveNode(gone); err != nil {
		f.Fatal(err)
	}
}

// TestAPublishLeavesALeaderThatStandsStill within seconds, once another leads.
func TestAPublishLeavesALeaderThatStandsStill(t *testing.T) {
	t.Parallel()
	f, silent := newFake(t, kfake.NumBrokers(2)), new(mute)
	b := f.openAll(groupClassic, kgo.Dialer(silent.dial))
	f.publish(b, 0, 1)
	f.leaderGone(silent)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := stopwatch()
	_, err := b.Append(ctx, messages("x"))
	if took := watch(); err != nil || took > 25*time.Second { // 10 for the publish, 5 if it asks that broker who leads, and what a busy machine takes
		t.Errorf("stored after %s, %v", took, err)
	}
}

// TestABrokerThatIsListedNoMore is one that is down: readings and a worker that begins then wait for the one that
// leads now.
func TestABrokerThatIsListedNoMore(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			f := newFake(t, kfake.NumBrokers(2))
			b := f.openAll(kind)
			f.publish(b, 0, 1)
			if _, err := b.Stats(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.leaderGone(new(mute))
			if _, err := b.List(t.Context(), "", "", 1); err != nil { // which asks for another topic, and hears who is there
				t.Fatal(err)
			}
			await(t, "the leader of now to be read from", func() bool {
				_, err := b.Stats(t.Context())
				if err != nil && !backend.Retryable(err) {
					t.Fatal(err)
				}
				return err == nil
			})
			f.take(b, 1)
		})
	}
}

// tooFewReplicas: while a topic has fewer replicas than have to be in sync, who publishes hears nothing, the doctor
// says why, and what waits is stored once there are enough.
func tooFewReplicas(t *testing.T, cluster *kafkatest.Cluster, admin *kadm.Client) {
	if _, err := admin.CreateTopic(t.Context(), 1, 2, settingsOf([]string{"min.insync.replicas=2"}), "few"); err != nil {
		t.Fatal(err)
	}
	var replicas []int32
	await(t, "the topic", func() bool {
		topics, err := admin.ListTopics(t.Context(), "few")
		replicas = topics["few"].Partitions[0].ISR
		return err == nil && len(replicas) == 2
	})
	b := open(t, cluster.URL()+"/few?group=g")
	defer b.Close()
	publish(t, b, "first", 1)
	finds := func() bool {
		found, err := b.Examine(t.Context())
		if err != nil && !backend.Retryable(err) {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found, func(f backend.Finding) bool { return f.Code == "too_few_replicas" })
	}
	if finds() {
		t.Error("the doctor finds too few replicas though all are there")
	}
	gone := cluster.Broker(replicas[0])
	gone.Kill()
	await(t, "the doctor's finding", finds)
	await(t, "an append that hears nothing", func() bool { // of a busy machine the time may be over before it is sent
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := b.Append(ctx, messages("waits"))
		if !errors.Is(err, backend.ErrOutcomeUnknown) && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("without replicas: %v", err)
		}
		return errors.Is(err, backend.ErrOutcomeUnknown)
	})
	gone.Restart()
	if got := gather(t, b, 2); string(got[1].Data) != "waits" {
		t.Errorf("it gets %q", got[1].Data)
	}
	await(t, "the finding to be gone", func() bool { return !finds() })
}

// TestAShareOfTheRoomThatIsShownLate by a leader that has just been elected: it has what the one before has
// acknowledged, and shows it once the others have it too.
func TestAShareOfTheRoomThatIsShownLate(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	req := backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Want: 1}
	asks(t, b, req)
	id, stored, late := f.TopicInfo("jobs.weir").TopicID, false, 3
	f.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		stored = stored || req.(*kmsg.ProduceRequest).Topics[0].TopicID == id
		return nil, nil, false
	})
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		if !stored || late == 0 || len(fetch.Topics) == 0 || fetch.Topics[0].TopicID != id {
			return nil, nil, false
		}
		late--
		resp, topic, part := fetch.ResponseKind().(*kmsg.FetchResponse), kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		part.HighWatermark, part.RecordBatches = fetch.Topics[0].Partitions[0].FetchOffset, []byte{}
		part.LastStableOffset = part.HighWatermark
		topic.TopicID, topic.Partitions = id, append(topic.Partitions, part)
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	asks(t, b, req)
	if late > 0 {
		t.Errorf("%d readings were not late", late)
	}
}

// TestALargeMessageOnASlowNetwork is stored, though all of it takes longer than a broker may be silent: most of that
// time what was written waits in this machine's own buffers. It is delivered, too, once, and read.
func TestALargeMessageOnASlowNetwork(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{"group.share.record.lock.duration.ms": "30000"}})
	proxy := link.NewProxy(t, broker.Addr())
	b := open(t, broker.URL()+"/slow?partitions=1", through(proxy))
	defer b.Close()
	if _, err := b.Append(t.Context(), messages("small")); err != nil {
		t.Fatal(err)
	}
	settled(t, b, gather(t, b, 1))
	proxy.Set(link.Fault{Rate: 60_000})
	defer proxy.Heal()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	watch := stopwatch()
	_, err := b.Append(ctx, []backend.Message{{Data: random(500_000)}})
	t.Logf("stored after %s", watch())
	if err != nil {
		t.Error(err)
	}
	proxy.Set(link.Fault{Rate: 80_000})
	watch = stopwatch()
	got := gather(t, b, 1)
	t.Logf("delivered after %s", watch())
	if got[0].Attempt > 1 {
		t.Errorf("it is delivered for the %dth time", got[0].Attempt)
	}
	settled(t, b, got)
	watch = stopwatch()
	read, err := b.Read(t.Context(), backend.ReadRequest{After: "0:0", Max: 10})
	t.Logf("read after %s", watch())
	if err != nil || len(read.Records) != 1 || !bytes.Equal(read.Records[0].Data, got[0].Data) {
		t.Errorf("%d records are read, %v", len(read.Records), err)
	}
}

// TestLocksAreRenewedBeforeASlowFetch: while its answer comes, nothing of what is held can be.
func TestLocksAreRenewedBeforeASlowFetch(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.BrokerConfigs(map[string]string{"group.share.record.lock.duration.ms": "4000"}))
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	f.take(b, 1)
	f.publish(b, 1, 2)
	var renewals, before atomic.Int64
	f.ControlKey(int16(kmsg.ShareAcknowledge), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if req.(*kmsg.ShareAcknowledgeRequest).IsRenewAck {
			renewals.Add(1)
		}
		return nil, nil, false
	})
	f.ControlKey(int16(kmsg.ShareFetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		before.Store(renewals.Load())
		f.SleepControl(func() { <-time.After(700 * time.Millisecond) }) // more than an eighth of the locks' time
		return nil, nil, false
	})
	list := gather(t, b, 1)
	if _, err := b.Claim(t.Context(), claim(1)); err != nil {
		t.Fatal(err)
	}
	if before.Load() == 0 {
		t.Error("a fetch that follows a slow one was sent before the locks were renewed")
	}
	settled(t, b, list)
}
