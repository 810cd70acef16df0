package kafka_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
