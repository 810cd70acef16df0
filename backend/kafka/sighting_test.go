package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// looked is what a look tells, whatever fails before.
func looked(t *testing.T, b *kafka.Backend) (told string) {
	t.Helper()
	await(t, "a look", func() bool {
		got, err := b.Retained(t.Context(), true)
		told = gapsOf(got)
		return err == nil
	})
	return told
}

// TestEachLostEndIsToldByItself: what was given to members before counts as given though they have had records of the
// next leader since, and of the second end that a log loses only what is lost with that is told.
func TestEachLostEndIsToldByItself(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{"group.min.session.timeout.ms": "500"}})
	admin := kadm.NewClient(broker.Client())
	var all []*played
	for _, kind := range groupTypes {
		p := &played{lossScene: lossScene{partitions: 1}, broker: broker, kind: kind, topic: "ends-" + kind}
		p.url = fmt.Sprintf("%s/%s?group=g-%[2]s&group_type=%s", broker.URL(), p.topic, kind)
		if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, p.topic); err != nil {
			t.Fatal(err)
		}
		p.worker = open(t, p.url)
		p.fills(t, "a", 20)
		settled(t, p.worker, gather(t, p.worker, 4))
		if err := p.worker.Close(); err != nil { // its entry in the ledger stays
			t.Fatal(err)
		}
		p.worker = open(t, p.url)
		if told := looked(t, p.worker); told != "" {
			t.Errorf("%s: of a log that is whole, %q are told", kind, told)
		}
		settled(t, p.worker, gather(t, p.worker, 16))
		all = append(all, p)
	}
	loses := func(from int64) {
		time.Sleep(time.Second) // for what workers write down
		broker.Kill()
		for _, p := range all {
			broker.LoseEnd(p.topic, 0, from)
		}
		broker.Restart()
	}
	loses(10)
	for _, p := range all {
		p.fills(t, "b", 15)
		await(t, "a message of the next leader", func() bool {
			got, err := p.worker.Claim(t.Context(), claim(3))
			return err == nil && len(got.Deliveries) > 0
		})
		if told := looked(t, p.worker); told != "0 from 0:10 to 0:19" {
			t.Errorf("%s: of what was given before, %q are told", p.kind, told)
		}
		p.fills(t, "b", 5)
		if told := looked(t, p.worker); told != "" {
			t.Errorf("%s: then %q are told", p.kind, told)
		}
		if err := p.worker.Close(); err != nil {
			t.Error(err)
		}
	}
	loses(27)
	for _, p := range all {
		b := open(t, p.url)
		if told := looked(t, b); !strings.HasSuffix(told, " from 0:27 to 0:29") || told[0] > '3' {
			t.Errorf("%s: of a second end, %q are told", p.kind, told)
		}
		if told := looked(t, b); told != "" {
			t.Errorf("%s: then %q are told", p.kind, told)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// elects has another leader lead, which knows the log of the ones before up to some offset.
func (f *fake) elects(end int64) (asked *atomic.Int64) {
	f.Helper()
	asked = new(atomic.Int64)
	f.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		asked.Add(1)
		answer := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, topic := range req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
			of := kmsg.NewOffsetForLeaderEpochResponseTopic()
			of.Topic = topic.Topic
			for _, p := range topic.Partitions {
				at := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				at.Partition, at.LeaderEpoch, at.EndOffset = p.Partition, p.LeaderEpoch, end
				of.Partitions = append(of.Partitions, at)
			}
			answer.Topics = append(answer.Topics, of)
		}
		return answer, nil, true
	})
	f.leads()
	return asked
}

// leads has another leader lead.
func (f *fake) leads() {
	f.Helper()
	if err := f.MoveTopicPartition("jobs", 0, 0); err != nil {
		f.Fatal(err)
	}
}

// TestWhatManyHaveSeenIsOneQuestion to a later leader, and none once it has answered.
func TestWhatManyHaveSeenIsOneQuestion(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for i := range 20 {
		worker := f.open(groupShare)
		f.publish(worker, 5*i, 5*i+5)
		f.take(worker, 1+i%5)
		if err := worker.Close(); err != nil {
			t.Fatal(err)
		}
	}
	asked := f.elects(100)
	b := f.open(groupShare)
	for range 2 {
		if told := looked(t, b); told != "" {
			t.Errorf("%q are told", told)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the leader was asked %d times", n)
	}
	seen := 0
	client := f.client(kgo.ConsumeTopics("jobs.weir"))
	for end := f.PartitionInfo("jobs.weir", 0).HighWatermark; end > 0; {
		for _, r := range client.PollFetches(t.Context()).Records() {
			if strings.Contains(string(r.Value), `"seen"`) {
				seen++
			}
			if r.Offset == end-1 {
				end = 0
			}
		}
	}
	if seen > 40 { // with each look at most, of which each worker has one or two
		t.Errorf("it is written down %d times how far the log reaches", seen)
	}
}

// TestALossIsSharedByWhoFindItAtOnce: what one has seen that the other has not is all that is left to tell.
func TestALossIsSharedByWhoFindItAtOnce(t *testing.T) {
	t.Parallel()
	for range 5 {
		f := newFake(t)
		worker := f.open(groupClassic)
		f.publish(worker, 0, 20)
		f.take(worker, 3)
		await(t, "the commit", func() bool { return left(t, worker) == 17 })
		if err := worker.Close(); err != nil {
			t.Fatal(err)
		}
		both := []*kafka.Backend{f.open(groupClassic), f.open(groupClassic)}
		looked(t, both[0])
		f.publish(both[0], 20, 25)
		looked(t, both[1])
		f.elects(15)
		var asked, told sync.WaitGroup
		asked.Add(2)
		f.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			asked.Done()
			f.SleepControl(asked.Wait)
			return nil, nil, false
		})
		var lost atomic.Int64
		for _, b := range both {
			told.Go(func() {
				got, err := b.Retained(t.Context(), true)
				if err != nil {
					t.Error(err)
				}
				for _, gap := range got.Gaps {
					lost.Add(*gap.Missed)
				}
			})
		}
		told.Wait()
		if n := lost.Load(); n != 10 {
			t.Errorf("10 are lost, %d are told", n)
		}
	}
}

// TestALookThatWaitsHoldsUpNoClaim: the leader of one partition may be silent while others have messages.
func TestALookThatWaitsHoldsUpNoClaim(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		f := newFake(t)
		b := f.open(kind)
		f.publish(b, 0, 10)
		f.take(b, 1)
		looked(t, b)
		silent, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		f.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			once.Do(func() { close(silent) })
			f.SleepControl(func() { <-goOn })
			return nil, nil, false
		})
		f.leads()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = b.Retained(t.Context(), true)
		}()
		<-silent
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		claimed := make(chan error, 1)
		go func() {
			_, err := b.Claim(ctx, claim(1))
			claimed <- err
		}()
		select {
		case <-claimed:
		case <-ended:
			t.Errorf("%s: a claim ends after the look that waits", kind)
		}
		if err := ctx.Err(); err != nil {
			t.Errorf("%s: a claim ends after its context", kind)
		}
		cancel()
		close(goOn)
		<-ended
	}
}

// TestWhoOnlyLooksTakesNothingFromWhoTells, nor from the next who only looks.
func TestWhoOnlyLooksTakesNothingFromWhoTells(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 20)
	f.take(b, 3)
	await(t, "the commit", func() bool { return left(t, b) == 17 })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = f.open(groupClassic)
	if told := looked(t, b); told != "" {
		t.Errorf("%q are told", told)
	}
	f.elects(15)
	if err := f.DeleteRecords("jobs", 0, 7); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		found, err := b.Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		codes := ""
		for _, finding := range found {
			if finding.Concern == backend.OfLoss {
				codes += finding.Code + " "
			}
		}
		if codes != "messages_lost trimmed_unread " {
			t.Errorf("the doctor finds %s", codes)
		}
	}
	const want = "5 from 0:15 to 0:194 from 0:3 to 0:6"
	if got, err := b.Retained(t.Context(), false); err != nil || gapsOf(got) != want {
		t.Errorf("who only looks finds %q, %v", gapsOf(got), err)
	}
	if told := looked(t, b); told != want {
		t.Errorf("%q are told; want %q", told, want)
	}
}

// TestWhatAWorkerHoldsIsNotLost, though what it says of itself in the ledger is gone, or as old as an outage was long.
func TestWhatAWorkerHoldsIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 10)
	gather(t, b, 10)
	await(t, "the ledger", func() bool { return f.PartitionInfo("jobs.weir", 0) != nil })
	if told := looked(t, b); told != "" {
		t.Errorf("%q are told", told)
	}
	if err := f.DeleteTopic("jobs.weir"); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic("jobs.weir", 1, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.DeleteRecords("jobs", 0, 7); err != nil {
		t.Fatal(err)
	}
	if told := looked(t, b); told != "" {
		t.Errorf("the worker holds all of it, and %q are told", told)
	}
}

// says waits until a worker says something of itself.
func (f *fake) says(text string) {
	f.Helper()
	client := f.client(kgo.ConsumeTopics("jobs.weir"))
	await(f, text, func() bool {
		return slices.ContainsFunc(client.PollFetches(f.Context()).Records(), func(r *kgo.Record) bool { return strings.Contains(string(r.Value), text) })
	})
}

// TestWhatAWorkerHasFetchedIsNotLost: it hands it out, though it is stored no more.
func TestWhatAWorkerHasFetchedIsNotLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b, beside := f.open(groupClassic), f.open(groupClassic)
	f.publish(b, 0, 100)
	settled(t, b, gather(t, b, 1))
	f.says(`"fetched":{"0":100}`)
	for start := range int64(4) {
		if told := looked(t, b) + looked(t, beside); told != "" {
			t.Errorf("a worker has all of them, and %q are told", told)
		}
		if err := f.DeleteRecords("jobs", 0, 30*start); err != nil {
			t.Fatal(err)
		}
	}
	f.take(b, 99)
	f.publish(b, 100, 110)
	f.take(b, 10)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	f.publish(beside, 110, 120)
	if err := f.DeleteRecords("jobs", 0, 115); err != nil {
		t.Fatal(err)
	}
	if told := looked(t, beside); told != "5 from 0:110 to 0:114" {
		t.Errorf("nobody has 5, and %q are told", told)
	}
}

// TestAPoolThatEndsSoonTells of a loss: once it is noted that one tells it, no other does.
func TestAPoolThatEndsSoonTells(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	worker := f.open(groupClassic)
	f.publish(worker, 0, 10)
	f.take(worker, 3)
	await(t, "the commit", func() bool { return left(t, worker) == 7 })
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.DeleteRecords("jobs", 0, 7); err != nil {
		t.Fatal(err)
	}
	stream := weir.New(f.open(groupClassic))
	ctx, cancel := context.WithCancel(t.Context())
	var handled atomic.Int64
	pool, err := weir.NewPool(stream, func(context.Context, *weir.Delivery) error {
		if handled.Add(1) == 3 {
			cancel()
		}
		return nil
	}, weir.PoolConfig{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	_ = pool.Run(ctx)
	if n := pool.Stats().Lost; n != 4 {
		t.Errorf("of 4 that were lost, %d are told", n)
	}
}

// TestALossIsToldOnceThoughItsNoteIsGone, as after a day, and the commit of a group that has been given nothing since
// still says how far the log reached.
func TestALossIsToldOnceThoughItsNoteIsGone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	worker := f.open(groupClassic)
	f.publish(worker, 0, 20)
	f.take(worker, 20)
	await(t, "the commit", func() bool { return left(t, worker) == 0 })
	f.elects(15)
	if told := looked(t, worker); told != "0 from 0:15 to 0:19" {
		t.Fatalf("%q are told", told)
	}
	note := f.PartitionInfo("jobs.weir", 0).HighWatermark
	await(t, "what the worker has seen to be written down", func() bool { return f.PartitionInfo("jobs.weir", 0).HighWatermark >= note+3 })
	if err := f.DeleteRecords("jobs.weir", 0, note); err != nil {
		t.Fatal(err)
	}
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	if told := looked(t, f.open(groupClassic)); told != "" {
		t.Errorf("%q are told once more", told)
	}
}

// TestWhatIsLostWhileNobodyKnowsHowFarTheGroupIs, as with too few brokers for the topics in which these keep it: what was
// published and lost in that time is told afterwards.
func TestWhatIsLostWhileNobodyKnowsHowFarTheGroupIs(t *testing.T) {
	t.Parallel()
	for kind, key := range map[string]kmsg.Key{groupShare: kmsg.DescribeShareGroupOffsets, groupClassic: kmsg.OffsetFetch} {
		f := newFake(t)
		b := f.open(kind)
		f.publish(b, 0, 5)
		f.take(b, 5)
		looked(t, b)
		away := f.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.UnknownServerError, Count: -1})
		looks := func() {
			t.Helper()
			if _, err := b.Retained(t.Context(), true); err == nil {
				t.Fatal("the group's place is known")
			}
		}
		f.publish(b, 5, 25)
		looks()
		f.elects(15)
		looks()
		away.Remove()
		if told := looked(t, b); told != "10 from 0:15 to 0:24" {
			t.Errorf("%s group: %q are told", kind, told)
		}
	}
}
