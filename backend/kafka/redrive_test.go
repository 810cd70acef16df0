package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
)

// A letter goes back to the group it failed in, once, whatever became of an earlier try.
func TestALetterGoesBackOnceToItsGroup(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, kind := range []string{"share", "classic"} {
		t.Run(kind, func(t *testing.T) {
			client := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
			s := &scene{T: t, broker: broker, topic: "letters-" + kind, kind: kind, client: client, admin: kadm.NewClient(client)}
			s.create(1)
			s.put(0, 2, time.Minute)
			s.other(2)
			s.claim(2)
			for _, d := range s.held {
				s.must(s.worker.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}))
			}
			s.held = nil
			shelf := s.worker.(backend.DeadLetters)
			letters, err := shelf.List(t.Context(), "", "", 10)
			if err != nil || len(letters) != 2 {
				t.Fatalf("%d letters, %v", len(letters), err)
			}

			// One that breaks off before its commit, as if its process were killed.
			broken := broker.Client(kgo.TransactionalID("weir-redrive."+s.topic+".dlq"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			s.must(broken.BeginTransaction())
			s.must(broken.ProduceSync(t.Context(), &kgo.Record{Topic: s.topic, Value: []byte("broken off")}).FirstErr())
			s.must(shelf.Redrive(t.Context(), "", letters[0]))
			if err := broken.EndTransaction(t.Context(), kgo.TryCommit); err == nil {
				t.Error("the one that broke off commits after the other has gone on")
			}
			if err := shelf.Redrive(t.Context(), "", letters[0]); !errors.Is(err, backend.ErrNotFound) {
				t.Errorf("sent back again: %v", err)
			}

			// Another handle takes the right, and this one takes it back.
			second := open(t, s.url(s.group()))
			defer second.Close()
			s.must(second.Redrive(t.Context(), "", letters[1]))
			list, err := shelf.List(t.Context(), "", "", 10)
			if err != nil || len(list) != 0 {
				t.Errorf("%d letters are left, %v", len(list), err)
			}
			got := gather(t, s.worker, 2)
			for _, d := range got {
				if string(d.Data) != "x" || d.Headers[backend.HeaderRedrives] != "1" || len(d.Headers) != 1 {
					t.Errorf("sent back as %q %q", d.Data, d.Headers)
				}
			}
			s.held = got
			s.ack()

			rest := open(t, s.url("other-"+s.topic))
			defer rest.Close()
			await(t, "the other group to pass by", func() bool {
				claimed, err := rest.Claim(t.Context(), claim(10))
				s.must(err)
				if len(claimed.Deliveries) > 0 {
					t.Fatalf("the other group gets %q", claimed.Deliveries[0].Data)
				}
				stats, err := rest.Stats(t.Context())
				return err == nil && *stats.Lag == 0 && stats.Pending == 0
			})

			lone := letters[0]
			lone.Group = "gone"
			if err := shelf.Redrive(t.Context(), "", lone); !errors.Is(err, backend.ErrGroupNotFound) {
				t.Errorf("to a group that is gone: %v", err)
			}
		})
	}
}
