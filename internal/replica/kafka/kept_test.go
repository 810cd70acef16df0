package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/internal/replica/kafka"
	"github.com/weirmq/weir/tests/kafkatest"
)

// leaderLooks is one that appends nothing while somebody deletes records in front of its last one, and that one.
// Its offsets go on, so it does.
func leaderLooks(t *testing.T, b *kafkatest.Broker) {
	address := b.URL() + "/looks"
	l := open(t, address)
	if err := l.Kept(t.Context(), 1); err != nil {
		t.Errorf("who does not lead: %v", err)
	}
	lead(t, l)
	for _, data := range []string{"a", "b", "c"} {
		if o := await(t, start(t, l, data)); o.err != nil {
			t.Fatal(o.err)
		}
	}
	look := func(begin int64, from uint64, gone bool) {
		t.Helper()
		if err := l.Kept(t.Context(), from); errors.Is(err, replica.ErrDamaged) != gone || !gone && err != nil {
			t.Errorf("behind position %d of a topic that begins with offset %d: %v", from, begin, err)
		}
	}
	look(0, 1, false)
	deleteBefore(t, b, "looks", 2)
	look(2, 0, false)
	look(2, 2, true)
	look(2, 3, false)
	deleteBefore(t, b, "looks", 4)
	look(4, 0, true)
	if o := await(t, start(t, l, "d")); o.err != nil {
		t.Error(o.err)
	}
	look(4, 5, false)
}

func deleteBefore(t *testing.T, b *kafkatest.Broker, topic string, offset int64) {
	t.Helper()
	to := kadm.Offsets{}
	to.AddOffset(topic, 0, offset, -1)
	done, err := kadm.NewClient(b.Client()).DeleteRecords(t.Context(), to)
	if err = errors.Join(err, done.Error()); err != nil {
		t.Fatal(err)
	}
}

// madeAnew is a topic that is deleted beneath its leader, and made again: the leader is told that the log is
// gone, if it looks or goes on, and does not try for ever.
func madeAnew(t *testing.T, b *kafkatest.Broker) {
	admin := kadm.NewClient(b.Client())
	for how, err := range map[string]func(*kafka.Log) error{
		"looks":   func(l *kafka.Log) error { return l.Kept(t.Context(), 0) },
		"appends": func(l *kafka.Log) error { return await(t, start(t, l, "b")).err },
	} {
		topic := "anew-" + how
		l := open(t, b.URL()+"/"+topic)
		lead(t, l)
		if o := await(t, start(t, l, "a")); o.err != nil {
			t.Fatal(o.err)
		}
		if _, err := admin.DeleteTopic(t.Context(), topic); err != nil {
			t.Fatal(err)
		}
		open(t, b.URL()+"/"+topic)
		if err := err(l); !errors.Is(err, replica.ErrLost) {
			t.Errorf("who %s is told %v", how, err)
		}
	}
}

// emptied is a topic whose records are all deleted, as by a retention that somebody has set: who looks for the
// newest term does not wait for one, and who leads goes on behind them. Who knew the term still does.
func emptied(t *testing.T, b *kafkatest.Broker) {
	address := b.URL() + "/emptied"
	l, walker := open(t, address), open(t, address)
	lead(t, l)
	o := await(t, start(t, l, "a"))
	if _, err := walker.Newest(t.Context()); o.err != nil || err != nil {
		t.Fatal(o.err, err)
	}
	deleteBefore(t, b, "emptied", int64(o.pos))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next := open(t, address)
	for who, want := range map[*kafka.Log]uint64{next: 0, walker: 1} {
		if term, err := who.Newest(ctx); err != nil || term.Number != want {
			t.Fatalf("the newest term is %+v, %v, want %d", term, err, want)
		}
	}
	led, err := next.Lead(ctx, "node")
	if err != nil || led.End <= o.pos {
		t.Fatalf("who leads behind position %d has %+v, %v", o.pos, led, err)
	}
	if o := await(t, start(t, next, "b")); o.err != nil {
		t.Error(o.err)
	}
	if e, err := walker.Read(ctx, led.End); err != nil || string(e.Data) != "b" {
		t.Errorf("behind the new term there is %q, %v", e.Data, err)
	}
}
