package kafka_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/capture"
	"github.com/weirmq/weir/tests/kafkatest"
)

// lossScene is a group whose topic will lose its end: all from 10 on of 20 messages.
type lossScene struct {
	partitions int
	before     func(t *testing.T, b *kafka.Backend) // what its worker does
	stays      bool                                 // the worker, when the broker is killed
	after      int                                  // published in each partition before anybody looks
	most       int64                                // are lost and were given to nobody
	want       []string                             // ranges
}

// played is a scene on a topic of its own.
type played struct {
	lossScene
	broker           *kafkatest.Broker
	name, topic, url string
	kind             string
	worker           *kafka.Backend
}

// TestALostEndIsToldOnce, with its range, whoever was there when it was lost, however much has taken its numbers
// since, and in both types of groups.
func TestALostEndIsToldOnce(t *testing.T) {
	t.Parallel()
	scenes := map[string]lossScene{
		"a worker stays": {1, func(t *testing.T, b *kafka.Backend) { settled(t, b, gather(t, b, 4)) }, true, 0, 10, []string{"0:10 to 0:19"}},
		"nobody is there, and the numbers are given out again": {1, func(t *testing.T, b *kafka.Backend) { settled(t, b, gather(t, b, 4)) }, false, 15, 10, []string{"0:10 to 0:19"}},
		"one is left in front of it": {1, func(t *testing.T, b *kafka.Backend) {
			settled(t, b, slices.DeleteFunc(gather(t, b, 16), func(d *backend.Delivery) bool { return d.ID == "0:5" }))
		}, false, 3, 4, []string{"0:10 to 0:19"}},
		"all of it was finished": {1, func(t *testing.T, b *kafka.Backend) { settled(t, b, gather(t, b, 20)) }, false, 3, 0, []string{"0:10 to 0:19"}},
		"two partitions":         {2, func(t *testing.T, b *kafka.Backend) { settled(t, b, gather(t, b, 40)) }, true, 2, 0, []string{"0:10 to 0:19", "1:10 to 1:19"}},
	}
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{"group.min.session.timeout.ms": "500"}})
	admin := kadm.NewClient(broker.Client())
	var all []*played
	for name, s := range scenes {
		for _, kind := range groupTypes {
			p := &played{lossScene: s, broker: broker, kind: kind, name: name + ", " + kind, topic: fmt.Sprintf("lost%d", len(all))}
			p.url = fmt.Sprintf("%s/%s?group=g-%[2]s&group_type=%s", broker.URL(), p.topic, kind)
			if _, err := admin.CreateTopic(t.Context(), int32(s.partitions), 1, nil, p.topic); err != nil {
				t.Fatal(err)
			}
			p.worker = open(t, p.url)
			t.Cleanup(func() { p.worker.Close() })
			p.fills(t, "old", 20)
			s.before(t, p.worker)
			if !s.stays {
				if err := p.worker.Close(); err != nil {
					t.Fatal(err)
				}
			}
			all = append(all, p)
		}
	}
	time.Sleep(time.Second) // for what workers write down
	broker.Kill()
	for _, p := range all {
		for i := range int32(p.partitions) {
			broker.LoseEnd(p.topic, i, 10)
		}
	}
	broker.Restart()
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			p.fills(t, "new", p.after)
			handles := []*kafka.Backend{open(t, p.url), open(t, p.url)}
			if p.stays {
				handles = append(handles, p.worker)
			}
			var want, told []string
			for _, r := range p.want {
				want = append(want, fmt.Sprintf("%d from %s", p.most, r))
			}
			looks := func() {
				for _, b := range handles {
					got, err := b.Retained(t.Context(), true)
					if err != nil && !backend.Retryable(err) {
						t.Fatal(err)
					}
					for _, gap := range got.Gaps {
						if p.stays && p.kind == groupClassic && *gap.Missed <= 10 {
							*gap.Missed = p.most // what it has made ready it hands out, though it is lost
						}
						told = append(told, fmt.Sprintf("%d from %s to %s", *gap.Missed, gap.From, gap.To))
						if gap.Reason != backend.GapLost {
							t.Errorf("a gap of reason %q: %s", gap.Reason, told[len(told)-1])
						}
					}
				}
			}
			await(t, "the loss", func() bool { looks(); return len(told) >= len(want) })
			for i := range 4 {
				p.fills(t, "more", 1)
				if got, err := handles[i%2].Claim(t.Context(), claim(20)); err == nil {
					settled(t, handles[i%2], got.Deliveries)
				}
				looks()
			}
			slices.Sort(told)
			if !slices.Equal(told, want) {
				t.Errorf("told is %q, want %q", told, want)
			}
			found, err := handles[0].Examine(t.Context())
			if err != nil || !slices.ContainsFunc(found, func(f backend.Finding) bool {
				return f.Code == "messages_lost" && strings.Contains(f.Problem, "0:10–0:19")
			}) {
				t.Errorf("the doctor finds %+v, %v", found, err)
			}
			for _, b := range handles {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// fills stores n messages in each partition, each a batch.
func (p *played) fills(t *testing.T, name string, n int) {
	t.Helper()
	client := p.broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	for i := range n {
		for partition := range int32(p.partitions) {
			r := &kgo.Record{Topic: p.topic, Partition: partition, Value: fmt.Append(nil, name, i)}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A pool logs and counts what was lost.
func TestAPoolTellsOfALostEnd(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			broker := kafkatest.Start(t, kafkatest.Options{})
			url := broker.URL() + "/cut?partitions=1&group_type=" + kind
			producer := open(t, url)
			defer producer.Close()
			publish(t, producer, "old", 20)
			var log capture.Buffer
			stream := weir.New(open(t, url))
			defer stream.Close()
			wait := make(chan struct{})
			pool, err := weir.NewPool(stream, func(ctx context.Context, _ *weir.Delivery) error {
				select {
				case <-wait:
				case <-ctx.Done():
				}
				return nil
			}, weir.PoolConfig{Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			await(t, "the pool to begin", func() bool { return pool.Stats().Busy > 0 })
			cut(t, broker, 10)
			watch := stopwatch()
			await(t, "the loss to be told", func() bool { return len(log.Lines("messages lost")) > 0 })
			if took := watch(); took > 20*time.Second {
				t.Errorf("it was told after %s", took)
			}
			close(wait)
			publish(t, producer, "new", 5)
			time.Sleep(6 * time.Second) // another look
			cancel()
			<-ended
			lines := log.Lines("messages lost")
			if len(lines) != 1 || !strings.Contains(lines[0], "the server has lost them") || !strings.Contains(lines[0], "from=0:10 to=0:19") {
				t.Errorf("the log says\n%s", log.String())
			}
			if n := pool.Stats().Lost; n > 10 {
				t.Errorf("%d of 10 are counted as lost", n)
			}
		})
	}
}

// aTopicMadeAgainIsALoss of what the group had not been given of the first.
func aTopicMadeAgainIsALoss(t *testing.T, g *ground) {
	for _, kind := range groupTypes {
		topic := "remade-" + kind
		url := topic + "?group=g-" + topic + "&group_type=" + kind
		g.create(topic)
		b, other := g.open(url), g.open(url)
		g.stores(b, 10)
		settled(t, b, gather(t, b, 4))
		retained := func(b *kafka.Backend) []backend.Gap {
			var got backend.Retained
			await(t, "a look", func() (done bool) {
				var err error
				got, err = b.Retained(t.Context(), true)
				return err == nil
			})
			return got.Gaps
		}
		if gaps := append(retained(b), retained(other)...); len(gaps) > 0 {
			t.Errorf("%s: before it is deleted, %+v are lost", kind, gaps)
		}
		g.again(topic)
		g.stores(b, 3)
		var told []backend.Gap
		await(t, "the loss", func() bool {
			told = append(told, retained(b)...)
			return len(told) > 0
		})
		for range 3 {
			told = append(told, append(retained(other), retained(b)...)...)
		}
		if len(told) != 1 || told[0].Reason != backend.GapRecreated || told[0].To != "0:9" || *told[0].Missed < 1 || *told[0].Missed > 6 {
			t.Errorf("%s: told is %+v", kind, told)
		}
	}
}

// TestAnswersWithoutRecordsThatComeAtOnce, as where the group's place is behind the end that is left, are not asked for
// as fast as they come.
func TestAnswersWithoutRecordsThatComeAtOnce(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	f.take(b, 1)
	asked := 0
	f.ControlKey(int16(kmsg.ShareFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		asked++
		answer := req.ResponseKind().(*kmsg.ShareFetchResponse)
		answer.AcquisitionLockTimeoutMillis = 1000
		return answer, nil, true
	})
	req := claim(1)
	req.Block = time.Second
	if _, err := b.Claim(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if asked > 60 {
		t.Errorf("%d fetches in a second", asked)
	}
}
