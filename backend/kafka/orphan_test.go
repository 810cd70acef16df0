package kafka_test

import (
	"context"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/link"
)

// TestThePartitionsOfAKilledWorker are its own for as long as the brokers let a member be silent. Others take what is in
// them once they have seen that nobody does.
func TestThePartitionsOfAKilledWorker(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(4, "jobs"), kfake.BrokerConfigs(map[string]string{
		"group.share.session.timeout.ms": "600000", "group.share.max.session.timeout.ms": "600000", "group.share.heartbeat.interval.ms": "200",
	}))
	client := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	put := func() {
		t.Helper()
		for p := range int32(4) {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	proxy := link.NewProxy(t, f.ListenAddrs()[0])
	killed := f.open(groupShare, kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, proxy.Addr())
	}))
	other := f.open(groupShare)
	put()
	await(t, "two partitions each", func() bool {
		for _, b := range []*kafka.Backend{killed, other} {
			req := claim(10)
			req.Block = time.Millisecond
			got, err := b.Claim(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			settled(t, b, got.Deliveries)
		}
		groups, err := kadm.NewClient(client).DescribeShareGroups(t.Context(), "g")
		if err != nil || len(groups["g"].Members) != 2 {
			return false
		}
		return !slices.ContainsFunc(groups["g"].Members, func(m kadm.ShareGroupMember) bool { return len(m.Assignment["jobs"]) != 2 })
	})
	looked(t, other)
	proxy.Refuse()
	put()
	left := 4
	for range 50 {
		looked(t, other)
		got, err := other.Claim(t.Context(), claim(10))
		if err != nil {
			t.Fatal(err)
		}
		settled(t, other, got.Deliveries)
		if left -= len(got.Deliveries); left == 0 {
			return
		}
	}
	t.Errorf("%d of 4 messages do not come", left)
}
