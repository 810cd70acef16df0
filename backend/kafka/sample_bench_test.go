package kafka

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
)

// BenchmarkSample compares readings of a topic, all of whose four partitions lag, with what
// any reading has to ask, one request after the other: where the topic ends, and how far the
// group is; and the first reading with these and one record of each partition. Of a share group the brokers take far longer to say it than of a classic one.
func BenchmarkSample(b *testing.B) {
	broker := kafkatest.Start(b, kafkatest.Options{})
	for _, kind := range []string{groupShare, groupClassic} {
		b.Run(kind, func(b *testing.B) { benchmarkSample(b, broker, kind) })
	}
}

func benchmarkSample(b *testing.B, broker *kafkatest.Broker, kind string) {
	u, err := url.Parse(broker.URL() + "/" + kind + "?partitions=4&group=g-" + kind + "&group_type=" + kind)
	if err != nil {
		b.Fatal(err)
	}
	h, err := Open(b.Context(), u)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { h.Close() })
	lag(b, h, broker)
	ctx := b.Context()
	sample := func(b *testing.B) {
		if s, err := h.Stats(ctx); err != nil || s.Lag == nil || *s.Lag == 0 || s.OldestSource == backend.AgeUnknown {
			b.Fatalf("%+v, %v", s, err)
		}
	}
	l, err := h.layout(ctx)
	if err != nil {
		b.Fatal(err)
	}
	plain := func(ctx context.Context, b *testing.B) {
		if ends, err := h.offsets(ctx, l, atEnd); err != nil || len(ends) != 4 {
			b.Fatalf("%v, %v", ends, err)
		}
		if _, err := h.group.progress(ctx); err != nil {
			b.Fatal(err)
		}
	}
	for range 1000 { // until the broker, too, is warm
		sample(b)
		plain(ctx, b)
	}
	records := func(ctx context.Context, b *testing.B) {
		plain(ctx, b)
		for p := range l.leaders {
			if page, err := h.read(ctx, h.set.topic, l, p, 5, 1); err != nil || len(page.records) == 0 {
				b.Fatalf("%d records, %v", len(page.records), err)
			}
		}
	}
	fetch := classicOffsets(b, h)
	inTurn(b, "repeated", func() { sample(b) }, func() { plain(ctx, b) })
	inTurn(b, "repeated, and one OffsetFetch", func() { sample(b) }, func() {
		if _, err := h.offsets(ctx, l, atEnd); err != nil {
			b.Fatal(err)
		}
		fetch(ctx, b)
	})
	inTurn(b, "first", func() { h.oldest.all = nil; sample(b) }, func() { records(ctx, b) })
}

// inTurn times both, one after the other, and reports the quotient of their medians.
func inTurn(b *testing.B, name string, weir, bare func()) {
	b.Run(name, func(b *testing.B) {
		var took [2][]time.Duration
		for b.Loop() {
			for i, do := range []func(){weir, bare} {
				begin := time.Now()
				do()
				took[i] = append(took[i], time.Since(begin))
			}
		}
		median := func(list []time.Duration) float64 {
			slices.Sort(list)
			return float64(list[len(list)/2].Microseconds())
		}
		b.ReportMetric(median(took[0]), "weir-µs")
		b.ReportMetric(median(took[1]), "bare-µs")
		b.ReportMetric(median(took[0])/median(took[1]), "ratio")
	})
}

// lag leaves every partition with some finished and some unfinished records.
func lag(b *testing.B, h *Backend, broker *kafkatest.Broker) {
	if _, err := h.Append(b.Context(), []backend.Message{{Data: []byte("first")}}); err != nil {
		b.Fatal(err)
	}
	client := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 40 {
		r := &kgo.Record{Topic: h.set.topic, Partition: int32(i % 4), Value: fmt.Append(nil, i)}
		if err := client.ProduceSync(b.Context(), r).FirstErr(); err != nil {
			b.Fatal(err)
		}
	}
	for n := 0; n < 8; {
		got, err := h.Claim(b.Context(), backend.ClaimRequest{Consumer: "c", Max: 8 - n, Block: time.Second, ReclaimAfter: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		for _, d := range got.Deliveries {
			if _, err := h.Ack(b.Context(), []backend.Lease{d.Lease}); err != nil {
				b.Fatal(err)
			}
			n++
		}
	}
}

// classicOffsets is one OffsetFetch of a classic group.
func classicOffsets(b *testing.B, h *Backend) func(context.Context, *testing.B) {
	l, err := h.layout(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	group.Group, topic.Topic, topic.TopicID, topic.Partitions = "other", h.set.topic, l.id, []int32{0, 1, 2, 3}
	group.Topics = append(group.Topics, topic)
	req.Groups = append(req.Groups, group)
	return func(ctx context.Context, b *testing.B) {
		if _, err := req.RequestWith(ctx, h.client); err != nil {
			b.Fatal(err)
		}
	}
}
