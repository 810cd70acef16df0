package kafka_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// refuses claims until that is an error, which has to come at once and say something.
func (g *ground) refuses(path, want string) {
	g.Helper()
	b := g.open(path)
	ctx, cancel := context.WithTimeout(g.Context(), 30*time.Second) // a new broker is slow at first
	defer cancel()
	if _, err := b.Claim(ctx, claim(1)); err == nil || backend.Retryable(err) || !strings.Contains(err.Error(), want) {
		g.Errorf("%s: %v, want %q", path, err, want)
	}
}

// aGroupWhoseLimitLeavesNothing, not even for messages without one of their own: the brokers
// would drop them.
func aGroupWhoseLimitLeavesNothing(t *testing.T, g *ground) {
	g.create("two")
	g.setGroup("g-two", "share.delivery.count.limit", "2")
	g.refuses("two?group=g-two", "share.delivery.count.limit of the group, 2")
}

// aGroupWhoseLimitIsLowered beside a worker, which claims nothing more until it is raised again.
func aGroupWhoseLimitIsLowered(t *testing.T, g *ground) {
	g.create("lowered")
	b := g.open("lowered?group=g-lowered")
	g.stores(b, 1)
	g.comes(b, 1, time.Minute)
	allows := func() bool {
		_, err := b.Claim(t.Context(), claim(1))
		return err == nil
	}
	g.setGroup("g-lowered", "share.delivery.count.limit", "2")
	await(t, "the limit to be noticed", func() bool { return !allows() })
	g.setGroup("g-lowered", "share.delivery.count.limit", "10")
	await(t, "the limit to be raised", allows)
}

// aConsumerGroupOfTheNewerProtocol is no share group.
func aConsumerGroupOfTheNewerProtocol(t *testing.T, g *ground) {
	g.create("modern")
	g.put(&kgo.Record{Topic: "modern", Value: []byte("x")})
	c := g.broker.Client(kgo.ConsumerGroup("newer"), kgo.ConsumeTopics("modern"), kgo.ServerSideBalancer(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if c.PollFetches(ctx).NumRecords() != 1 {
		t.Fatal("the consumer gets nothing")
	}
	g.refuses("modern?group=newer", `group "newer": the group exists as another type: consumer`)
}

// aGroupThatRenewsNoLocks cannot keep what it holds.
func aGroupThatRenewsNoLocks(t *testing.T, g *ground) {
	g.create("fleeting")
	g.setGroup("g-fleeting", "share.renew.acknowledge.enable", "false")
	g.refuses("fleeting?group=g-fleeting", "share.renew.acknowledge.enable=false")
}

// aGroupTakenFromConsumersOfTheNewerProtocol is there, and goes on where they were.
func aGroupTakenFromConsumersOfTheNewerProtocol(t *testing.T, g *ground) {
	g.create("taken")
	for _, text := range []string{"a", "b", "c"} {
		g.put(&kgo.Record{Topic: "taken", Value: []byte(text)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for group, query := range map[string]string{"never": "create=never", "new": "start=$"} {
		c := g.broker.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics("taken"), kgo.ServerSideBalancer(), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		first := c.PollRecords(ctx, 1).Records()
		if len(first) != 1 {
			t.Fatal("the consumer gets nothing")
		}
		g.must(c.CommitRecords(ctx, first...))
		c.Close()
		expect(t, g.open("taken?group_type=classic&group="+group+"&"+query), "b", "c")
	}
}

// TestMembersWithoutPartitions get nothing, though they are there: the doctor says so.
func TestMembersWithoutPartitions(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	f.take(b, 1)
	finds := func() bool {
		t.Helper()
		found, err := b.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(found, func(f backend.Finding) bool { return f.Code == "no_partitions" })
	}
	if finds() {
		t.Error("its member has the partition")
	}
	f.ControlKey(int16(kmsg.ShareGroupDescribe), func(req kmsg.Request) (kmsg.Response, error, bool) {
		answer := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
		group := kmsg.NewShareGroupDescribeResponseGroup()
		group.GroupID, group.GroupState = "g", "Stable"
		group.Members = append(group.Members, kmsg.NewShareGroupDescribeResponseGroupMember())
		answer.Groups = append(answer.Groups, group)
		return answer, nil, true
	})
	if !finds() {
		t.Error("its member has no partition")
	}
}
