package kafka_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// TestALogThatLosesItsEnd, as one that is on a single machine does in a power cut: what is published afterwards
// has numbers that the group has finished before, and is handled all the same. Of what is left nothing is
// missing, and what was finished does not come again.
func TestALogThatLosesItsEnd(t *testing.T) {
	t.Parallel()
	broker := startClassic(t)
	url := broker.URL() + "/cut?partitions=1"
	producer := open(t, url)
	t.Cleanup(func() { producer.Close() })
	first := open(t, url)
	t.Cleanup(func() { first.Close() })
	publish(t, producer, "old", 20)
	list := gather(t, first, 20)
	list = slices.DeleteFunc(list, func(d *backend.Delivery) bool { return d.ID == "0:5" || d.ID == "0:15" })
	settled(t, first, list)
	if n := left(t, first); n != 2 { // this also waits for the commit
		t.Fatalf("%d are left", n)
	}

	cut(t, broker, 10)
	publish(t, producer, "new", 5)
	settled(t, first, expect(t, first, "old5", "new0", "new1", "new2", "new3", "new4"))
	await(t, "the end of the work", func() bool { return left(t, first) == 0 })
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}

	cut(t, broker, 12)
	publish(t, producer, "last", 3) // the log ends where the group stands
	second := open(t, url)
	t.Cleanup(func() { second.Close() })
	settled(t, second, expect(t, second, "last0", "last1", "last2"))
	await(t, "the end of the work", func() bool { return left(t, second) == 0 })
}

// cut kills the broker and starts it without the records from an offset on.
func cut(t *testing.T, broker *kafkatest.Broker, from int64) {
	t.Helper()
	broker.Kill()
	broker.LoseEnd("cut", 0, from)
	broker.Restart()
}

// publish appends messages one by one, each of which is a batch.
func publish(t *testing.T, b *kafka.Backend, name string, n int) {
	t.Helper()
	for i := range n {
		if _, err := b.Append(t.Context(), messages(fmt.Sprint(name, i))); err != nil {
			t.Fatal(err)
		}
	}
}

func settled(t *testing.T, b *kafka.Backend, list []*backend.Delivery) {
	t.Helper()
	if lost, err := b.Ack(t.Context(), leasesOf(list)); err != nil || len(lost) > 0 {
		t.Fatalf("%v, %v", lost, err)
	}
}

// expect claims until it has had these and no other ones, whatever fails meanwhile.
func expect(t *testing.T, b *kafka.Backend, want ...string) (all []*backend.Delivery) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); len(want) > 0; {
		got, err := b.Claim(t.Context(), claim(10))
		for _, d := range got.Deliveries {
			at := slices.Index(want, string(d.Data))
			if at < 0 {
				t.Fatalf("message %s, %s, has come", d.ID, d.Data)
			}
			want = slices.Delete(want, at, at+1)
		}
		all = append(all, got.Deliveries...)
		if time.Now().After(end) {
			t.Fatalf("%v have not come; the last error: %v", want, err)
		}
	}
	return all
}
