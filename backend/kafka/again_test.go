package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
)

// again deletes a topic and makes it again.
func (g *ground) again(topic string, configs ...string) {
	g.Helper()
	g.remove(topic)
	await(g, "the topic to be made again", func() bool {
		_, err := g.admin.CreateTopic(g.Context(), 1, 1, settingsOf(configs), topic)
		return err == nil
	})
}

// stores appends until n messages are stored, whatever fails meanwhile.
func (g *ground) stores(b *kafka.Backend, n int) {
	g.Helper()
	await(g, "messages to be stored", func() bool {
		ctx, cancel := context.WithTimeout(g.Context(), 5*time.Second)
		defer cancel()
		if _, err := b.Append(ctx, messages("new")); err == nil {
			n--
		}
		return n == 0
	})
}

// aProducerGoesOnWithATopicMadeAgain.
func aProducerGoesOnWithATopicMadeAgain(t *testing.T, g *ground) {
	g.create("again")
	b := g.open("again")
	g.stores(b, 5)
	g.again("again")
	g.stores(b, 5)
}

// workersGoOnWithATopicMadeAgain.
func workersGoOnWithATopicMadeAgain(t *testing.T, g *ground) {
	for _, kind := range groupTypes {
		topic := "again-" + kind
		g.create(topic)
		worker := g.open(topic + "?group=g-" + topic + "&group_type=" + kind)
		g.stores(worker, 10)
		g.comes(worker, 10, time.Minute)
		g.again(topic)
		g.stores(worker, 5)
		g.comes(worker, 5, time.Minute)
	}
}

// anAckSaysNothingOfATopicMadeAgain: what was claimed of the first topic, and is accepted
// when there is another, leaves the messages of that to the next worker.
func anAckSaysNothingOfATopicMadeAgain(t *testing.T, g *ground) {
	for _, kind := range groupTypes {
		topic := "across-" + kind
		url := topic + "?group=g-" + topic + "&group_type=" + kind
		g.create(topic)
		worker := g.open(url)
		g.stores(worker, 10)
		list := gather(t, worker, 10)
		g.again(topic)
		g.stores(g.open(url), 5)
		time.Sleep(11 * time.Second) // the worker's layout of the topic is older than it may be
		lost, err := worker.Ack(t.Context(), leasesOf(list))
		t.Log(lost, err) // it may be told or not
		time.Sleep(time.Second)
		g.must(worker.Close())
		g.comes(g.open(url), 5, 30*time.Second)
	}
}

// theCountOfTheFinishedGoesOnWithATopicMadeAgain: guards take from it how fast workers are.
func theCountOfTheFinishedGoesOnWithATopicMadeAgain(t *testing.T, g *ground) {
	g.create("counted")
	b := g.open("counted")
	finished := func() int64 {
		s, err := b.Signal(t.Context(), 1)
		if err != nil || s.Finished == nil {
			return -1
		}
		return *s.Finished
	}
	g.stores(b, 10)
	g.comes(b, 10, time.Minute)
	await(t, "10 to be finished", func() bool { return finished() == 10 })
	g.again("counted")
	g.stores(b, 3)
	g.comes(b, 3, time.Minute)
	await(t, "13 to be finished", func() bool { return finished() >= 13 })
	if n := finished(); n != 13 {
		t.Errorf("13 messages were finished, the count is %d", n)
	}
}

// lettersOfATopicMadeAgain, as by somebody who empties it, are counted and go back as those of the first were.
func lettersOfATopicMadeAgain(t *testing.T, g *ground) {
	for before, after := range map[int]int{3: 2, 2: 5} {
		topic := []string{"", "", "longer", "shorter"}[before]
		b := g.open(topic + "?partitions=1")
		bury := func(n int) {
			g.stores(b, n)
			for _, d := range gather(t, b, n) {
				await(t, "a letter", func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					defer cancel()
					return b.DeadLetter(ctx, d, "", poison) == nil
				})
			}
		}
		counted := func(n int64) {
			t.Helper()
			var s backend.Stats
			var err error
			for try := 0; try < 100; try++ {
				if s, err = b.Stats(t.Context()); err == nil && s.DeadLetters != nil && *s.DeadLetters == n {
					return
				}
			}
			t.Errorf("%s: there are %d letters; counted: %s, %v", topic, n, shown(s.DeadLetters), err)
		}
		bury(before)
		counted(int64(before))
		g.remove(topic + ".dlq")
		bury(after)
		counted(int64(after))
		for _, l := range g.letters(b) {
			if err := b.Redrive(t.Context(), "", l); err != nil {
				t.Errorf("%s: letter %s is not sent back: %v", topic, l.ID, err)
			}
		}
		counted(0)
	}
}

// aTopicMadeAgainWithOtherTerms takes what it says now.
func aTopicMadeAgainWithOtherTerms(t *testing.T, g *ground) {
	g.create("terms")
	b := g.open("terms")
	large := []backend.Message{{Data: make([]byte, 2_000_000)}}
	if _, err := rand.Read(large[0].Data); err != nil { // what compresses fits
		t.Fatal(err)
	}
	if _, err := b.Append(t.Context(), large); !errors.Is(err, backend.ErrTooLarge) {
		t.Errorf("2 MB to a topic that takes 1: %v", err)
	}
	g.again("terms", "max.message.bytes=3000000", "unclean.leader.election.enable=true")
	g.stores(b, 1)
	await(t, "an append of what the new topic takes", func() bool { _, err := b.Append(t.Context(), large); return err == nil })
	if got := b.Info().Durability; got != "memory" {
		t.Errorf("durability of a topic with unclean elections: %s; want memory", got)
	}
}

// theRoomInALedgerMadeAgain is shared as before.
func theRoomInALedgerMadeAgain(t *testing.T, g *ground) {
	b := g.open("roomy?partitions=1")
	req := backend.RoomRequest{Limit: 100, Pause: -1, Need: 1, Want: 1, Lifetime: time.Minute}
	for range 100 {
		asks(t, b, req)
	}
	g.remove("roomy.weir")
	unread := 0
	await(t, "room to be shared again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, room, err := b.Share(ctx, req)
		if room.Err != nil && strings.Contains(room.Err.Error(), "cannot be read") {
			unread++
		}
		return err == nil && room.Err == nil || unread > 3
	})
	if unread > 3 {
		t.Errorf("%d entries in the new ledger could not be read", unread)
	}
}

// aTransactionThatWasGivenUp leaves nothing to do, and so no load for the guards.
func aTransactionThatWasGivenUp(t *testing.T, g *ground) {
	for _, kind := range groupTypes {
		t.Run(kind, func(t *testing.T) {
			topic := "aborted-" + kind
			g.create(topic)
			b := g.open(topic + "?group=g-" + topic + "&group_type=" + kind)
			g.stores(b, 1)
			g.comes(b, 1, time.Minute)
			client := g.broker.Client(kgo.TransactionalID(topic))
			g.must(client.BeginTransaction())
			for range 10 {
				g.must(client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr())
			}
			g.must(client.EndTransaction(t.Context(), kgo.TryAbort))
			var left backend.Signal
			for end := time.Now().Add(15 * time.Second); time.Now().Before(end); {
				if _, err := b.Claim(t.Context(), claim(1)); err != nil {
					t.Fatal(err)
				}
				var err error
				if left, err = b.Signal(t.Context(), 100); err == nil && left.Lag != nil && *left.Lag+left.Pending == 0 {
					return
				}
			}
			t.Errorf("all that can be handled is, and the lag is %s, %d are pending", shown(left.Lag), left.Pending)
		})
	}
}

// aCommitThatAMirrorCopies, as MirrorMaker does: the offset is that of the mirrored topic, which is not the
// source's, and the metadata is the same.
func aCommitThatAMirrorCopies(t *testing.T, g *ground) {
	g.create("source")
	g.create("mirrored")
	for i := range 10 {
		g.put(&kgo.Record{Topic: "source", Value: fmt.Append(nil, i)})
		if i >= 2 { // what retention had not removed when the mirror began
			g.put(&kgo.Record{Topic: "mirrored", Value: fmt.Append(nil, i)})
		}
	}
	b := g.open("source?group=g-source&group_type=classic")
	settled(t, b, slices.DeleteFunc(gather(t, b, 10), func(d *backend.Delivery) bool { return string(d.Data) == "4" }))
	await(t, "the commit", func() bool { return left(t, b) == 1 })
	g.must(b.Close())
	offsets, err := g.admin.FetchOffsets(t.Context(), "g-source")
	g.must(err)
	commit, _ := offsets.Lookup("source", 0)
	copied := kadm.Offsets{}
	copied.Add(kadm.Offset{Topic: "mirrored", At: 1, LeaderEpoch: -1, Metadata: commit.Metadata})
	g.must(g.admin.CommitAllOffsets(t.Context(), "g-mirrored", copied))
	expect(t, g.open("mirrored?group=g-mirrored&group_type=classic"), "3", "4", "5", "6", "7", "8", "9")
}
