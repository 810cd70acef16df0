package kafka_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// TestAPartitionThatTakesNothing, as with too few in-sync replicas, or until another leads it, holds up what goes there:
// whatever may go anywhere is stored in the others.
func TestAPartitionThatTakesNothing(t *testing.T) {
	t.Parallel()
	const all, most = 100, 10 // of them wait there
	f := newFake(t, kfake.SeedTopics(4, "jobs"))
	b := f.open(groupShare)
	f.publish(b, 0, 1)
	away := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "jobs", Partitions: []int32{2}, Err: kerr.NotEnoughReplicas, Count: -1})
	var stored atomic.Int64
	publish := func(key string) (done chan struct{}) {
		done = make(chan struct{})
		go func() {
			defer close(done)
			if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x"), FairKey: key}}); err == nil {
				stored.Add(1)
			}
		}()
		return done
	}
	for range all {
		select {
		case <-publish(""):
		case <-time.After(100 * time.Millisecond): // the next one comes anyway
		}
	}
	await(t, fmt.Sprintf("all but %d of %d", most, all), func() bool { return stored.Load() >= all-most })
	away.Remove()
	await(t, "the rest", func() bool { return stored.Load() == all })
	if n := f.storedIn(4); n != 1+all {
		t.Errorf("%d records are stored, want %d", n, 1+all)
	}
}

// storedIn is how many records the topic has in so many partitions.
func (f *fake) storedIn(partitions int32) (n int64) {
	for p := range partitions {
		n += f.PartitionInfo("jobs", p).HighWatermark
	}
	return n
}
