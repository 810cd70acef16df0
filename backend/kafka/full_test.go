package kafka_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

// polled counts the records that a handle has taken from its client.
type polled struct{ atomic.Int64 }

func (n *polled) OnFetchRecordUnbuffered(_ *kgo.Record, polled bool) {
	if polled {
		n.Add(1)
	}
}

// A member of a classic group takes so many records ahead of its claims, and has so many of a partition out.
const mostAhead, mostOut = 16_000, 1000

// TestAWorkerThatIsFull has taken all that it can of one partition, of which no more may be out for now. It goes on
// with another one, with the first when that is finished, and with the topic if that is deleted and made again.
func TestAWorkerThatIsFull(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "jobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f := &fake{t, c}
	put := func(partition int32, n int, text string) {
		t.Helper()
		client := f.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
		records := make([]*kgo.Record, n)
		for i := range records {
			records[i] = &kgo.Record{Topic: "jobs", Partition: partition, Value: []byte(text)}
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	rest := mostAhead + 4000
	put(0, mostOut+rest, "old")
	var seen polled
	worker := f.open(groupClassic, kgo.WithHooks(&seen))
	held := gather(t, worker, mostOut)
	await(t, "as many as it takes", func() bool { return seen.Load() >= mostAhead+mostOut })
	comes := func(text string) {
		t.Helper()
		put(1, 1, text)
		var got backend.Claimed
		await(t, text, func() bool {
			req := claim(1)
			req.Block = 20 * time.Millisecond // as that of a pool where something is due soon
			got, _ = worker.Claim(t.Context(), req)
			return len(got.Deliveries) > 0 && string(got.Deliveries[0].Data) == text
		})
	}
	comes("of another partition")
	settled(t, worker, held)
	await(t, "the rest of the first", func() bool {
		got, err := worker.Claim(t.Context(), claim(mostOut))
		if err != nil {
			t.Fatal(err)
		}
		settled(t, worker, got.Deliveries)
		rest -= len(got.Deliveries)
		return rest == 0
	})
	if err := f.DeleteTopic("jobs"); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic("jobs", 2, nil); err != nil {
		t.Fatal(err)
	}
	comes("of the topic made again")
	comes("more of it")
}

// TestAWorkerWhosePartitionsGoUnread takes records ahead of its claims each time, more in all than it takes at once. What
// is gone with its topic takes no room from what comes.
func TestAWorkerWhosePartitionsGoUnread(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client := f.client(kgo.MaxBufferedRecords(mostAhead))
	var seen polled
	worker := f.open(groupClassic, kgo.WithHooks(&seen))
	const round = mostAhead * 3 / 4
	for n := range 3 {
		if n > 0 {
			if err := f.DeleteTopic("jobs"); err != nil {
				t.Fatal(err)
			}
			if err := f.CreateTopic("jobs", 1, nil); err != nil {
				t.Fatal(err)
			}
			client.PurgeTopicsFromClient("jobs")
		}
		text := strconv.Itoa(n)
		records := make([]*kgo.Record, round)
		for i := range records {
			records[i] = &kgo.Record{Topic: "jobs", Value: []byte(text)}
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		before := seen.Load()
		await(t, "a message of topic "+text, func() bool {
			got, _ := worker.Claim(t.Context(), claim(1))
			return len(got.Deliveries) > 0 && string(got.Deliveries[0].Data) == text
		})
		await(t, "what is taken ahead of topic "+text, func() bool { return seen.Load() >= before+round/2 })
	}
}

// TestAWorkerTakesHeadersIntoAccount: what it takes ahead of its claims has a bound in bytes, of which records of others
// may have all in their headers.
func TestAWorkerTakesHeadersIntoAccount(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client := f.client()
	const large, count = 500 << 10, 200
	const most = 32 << 20 / large
	value := random(large)
	for range count {
		r := &kgo.Record{Topic: "jobs", Headers: []kgo.RecordHeader{{Key: "h", Value: value}}}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var seen polled
	worker := f.open(groupClassic, kgo.WithHooks(&seen))
	gather(t, worker, 1)
	await(t, "as many as it takes", func() bool { return seen.Load() >= most })
	time.Sleep(time.Second) // for what it would take besides
	if n := seen.Load(); n > 2*most {
		t.Errorf("%d records of %d kB are taken ahead, want %d or a few more", n, large>>10, most)
	}
}
