package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// TestALedgerThatIsAwayTakesNoRoomFromTheStream, nor a topic of dead letters: the only broker that has it is lost,
// and all that is to be written there waits in the producer's buffer. The stream itself goes on for as long as that takes.
func TestALedgerThatIsAwayTakesNoRoomFromTheStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		topic string
		write func(context.Context, backend.Backend, *backend.Delivery) error
	}{
		{"jobs.weir", func(ctx context.Context, b backend.Backend, _ *backend.Delivery) error {
			_, _, err := b.(backend.Tallier).Tally(ctx, []uint32{1})
			return err
		}},
		{"jobs.dlq", func(ctx context.Context, b backend.Backend, d *backend.Delivery) error {
			return b.DeadLetter(ctx, d, "", poison)
		}},
	} {
		t.Run(c.topic, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			b := open(t, "kafka://"+f.ListenAddrs()[0]+"/jobs?group=g&group_type=classic&buffer_memory=4096")
			defer b.Close()
			f.publish(b, 0, 2)
			held := gather(t, b, 2)
			if err := c.write(t.Context(), b, held[0]); err != nil {
				t.Fatal(err)
			}
			away := f.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: c.topic, Err: kerr.NotLeaderForPartition, Count: -1})
			for range 100 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				if err := c.write(ctx, b, held[1]); err == nil {
					t.Fatal("it is written")
				}
				cancel()
			}
			if _, err := b.Append(t.Context(), messages(strings.Repeat("x", 300))); err != nil {
				t.Error(err)
			}
			away.Remove()
			if err := c.write(t.Context(), b, held[1]); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAReadingWaitsForNoCommitThatIsRefused, as while a group is divided anew, which takes as long as its slowest
// member: a producer in a process of workers goes on to read the load.
func TestAReadingWaitsForNoCommitThatIsRefused(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 3)
	f.take(b, 1)
	list := gather(t, b, 1)
	await(t, "the commit", func() bool { return left(t, b) == 2 })
	f.Fault(trouble{key: kmsg.OffsetCommit, err: kerr.RebalanceInProgress}.fault(-1))
	if _, err := b.Ack(t.Context(), leasesOf(list)); err != nil {
		t.Fatal(err)
	}
	if s, err := b.Signal(t.Context(), 1); err != nil || s.Lag == nil || s.Pending+*s.Lag != 2 {
		t.Errorf("2 of 3 messages are committed to be left, the guard reads %+v, %v", s, err)
	}
	if s, err := b.Stats(t.Context()); err != nil || s.Lag == nil || s.Pending+*s.Lag != 2 {
		t.Errorf("2 of 3 messages are committed to be left, stats are %+v, %v", s, err)
	}
}
