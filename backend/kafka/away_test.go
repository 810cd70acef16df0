package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
)

// TestAWorkerThatIsClosedStaysAway, though the brokers are slow to take what it says last: the next one has its
// partitions at once.
func TestAWorkerThatIsClosedStaysAway(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(2, "jobs"))
	first := f.open(groupShare)
	f.publish(first, 0, 1)
	f.take(first, 1)
	if err := first.PublishSignal(t.Context(), time.Minute); err != nil { // so that the ledger is there
		t.Fatal(err)
	}
	f.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		id := f.TopicInfo("jobs.weir").TopicID
		if slices.ContainsFunc(req.(*kmsg.ProduceRequest).Topics, func(t kmsg.ProduceRequestTopic) bool { return t.TopicID == id }) {
			f.DropControl()
			f.SleepControl(func() { time.Sleep(time.Second) }) // several heartbeats
		}
		return nil, nil, false
	})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, client := f.open(groupShare), f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if seen, err := second.Observe(t.Context(), 10); err != nil || len(seen.Consumers) > 0 {
		t.Errorf("its workers are %+v, %v", seen.Consumers, err)
	}
	for p := range int32(2) {
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Partition: p, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	f.take(second, 2)
}

// TestAPartitionGoesToAnotherAndComesBack: what handlers have finish of it counts, what is not handed out by then does
// not, and whoever has it again hands out what is new.
func TestAPartitionGoesToAnotherAndComesBack(t *testing.T) {
	t.Parallel()
	for range 30 {
		if comesBack(newFake(t, kfake.SeedTopics(2, "jobs"))) {
			return
		}
	}
	t.Fatal("this machine is too slow for handlers to finish in the time that they have")
}

func comesBack(f *fake) (inTime bool) {
	f.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		f.SleepControl(func() { time.Sleep(100 * time.Millisecond) }) // so that something is always to be said
		return nil, nil, false
	})
	client := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	put := func(n int) {
		f.Helper()
		var records []*kgo.Record
		for i := range 2 * n {
			records = append(records, &kgo.Record{Topic: "jobs", Partition: int32(i % 2), Value: []byte("x")})
		}
		if err := client.ProduceSync(f.Context(), records...).FirstErr(); err != nil {
			f.Fatal(err)
		}
	}
	a, b := f.open(groupClassic), f.open(groupClassic, kgo.SessionTimeout(5*time.Minute))
	handled := map[string]int{}
	ack := func(by *kafka.Backend, list []*backend.Delivery) (lost []string) {
		f.Helper()
		lost, err := by.Ack(f.Context(), leasesOf(list))
		if err != nil {
			f.Fatal(err)
		}
		for _, d := range list {
			if handled[d.ID]++; d.Attempt != 1 {
				f.Errorf("%s comes for the %d. time", d.ID, d.Attempt)
			}
		}
		return lost
	}
	more := func(from *kafka.Backend, most int) int {
		f.Helper()
		req := claim(most)
		req.Block = 10 * time.Millisecond
		got, err := from.Claim(f.Context(), req)
		if err != nil {
			f.Fatal(err)
		}
		ack(from, got.Deliveries)
		return len(got.Deliveries)
	}
	const held, each = 30, 200
	more(a, each*3/2) // as many are made ready from then on, so some of each partition
	put(held)
	list := gather(f, a, 2*held)
	slices.SortFunc(list, func(a, b *backend.Delivery) int { return strings.Compare(a.ID[2:], b.ID[2:]) }) // the partitions take turns
	put(each)
	start := time.Now()
	moved := more(b, 10) // when b has joined, a is told which partition to give up
	for ; len(list) > 0; list = list[1:] {
		moved += more(b, 10)
		if len(list) > held {
			more(a, 1)
		}
		if lost := ack(a, list[:1]); time.Since(start) > 4*time.Second {
			return false
		} else if len(lost) > 0 {
			f.Errorf("%v are lost %s after b joined", lost, time.Since(start))
		}
	}
	f.soon(func() string { // though a claims nothing more
		if moved += more(b, 10); moved > 0 {
			return ""
		}
		return "b has got nothing"
	})
	f.soon(func() string {
		more(a, 10)
		more(b, 10)
		if len(handled) == 2*(held+each) {
			return ""
		}
		return fmt.Sprintf("%d messages of %d were handled", len(handled), 2*(held+each))
	})
	for id, n := range handled {
		if n > 1 {
			f.Errorf("%s was handled %d times", id, n)
		}
	}
	if err := b.Close(); err != nil {
		f.Fatal(err)
	}
	put(1)
	f.take(a, 2)
	return true
}
