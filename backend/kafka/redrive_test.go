package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

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

// TestALetterGoesBackFromAHandleThatWasIdleForLong, as that of a dashboard: the brokers have forgotten its
// producer, after a week unless they are set otherwise.
func TestALetterGoesBackFromAHandleThatWasIdleForLong(t *testing.T) {
	t.Parallel()
	const id = "weir-redrive.idle.dlq"
	broker := kafkatest.Start(t, kafkatest.Options{ShareVersion: kafkatest.Without, Settings: map[string]string{
		"transactional.id.expiration.ms": "1000", "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
	}})
	b := open(t, broker.URL()+"/idle?partitions=1")
	defer b.Close()
	if _, err := b.Append(t.Context(), messages("a", "b")); err != nil {
		t.Fatal(err)
	}
	for _, d := range gather(t, b, 2) {
		if err := b.DeadLetter(t.Context(), d, "", poison); err != nil {
			t.Fatal(err)
		}
	}
	admin := kadm.NewClient(broker.Client())
	for _, letter := range listed(t, b) {
		if err := b.Redrive(t.Context(), "", letter); err != nil {
			t.Errorf("letter %s: %v", letter.ID, err)
		}
		await(t, "the end of the producer", func() bool {
			all, err := admin.DescribeTransactions(t.Context(), id)
			return err == nil && errors.Is(all[id].Err, kerr.TransactionalIDNotFound)
		})
	}
	if n := len(listed(t, b)); n > 0 {
		t.Errorf("%d letters are left", n)
	}
}

// TestALetterGoesBackThroughTroubleThatPasses: what a transaction meets that the next try does not is no error, and
// the message is there once.
func TestALetterGoesBackThroughTroubleThatPasses(t *testing.T) {
	t.Parallel()
	at := newCases()
	defer at.running.Wait()
	for key, list := range map[kmsg.Key][]*kerr.Error{
		kmsg.FindCoordinator: {kerr.CoordinatorNotAvailable},
		kmsg.InitProducerID:  {kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.ConcurrentTransactions, kerr.UnknownServerError},
		kmsg.Produce: {
			kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut, kerr.UnknownTopicID,
			kerr.InvalidTxnState, kerr.InvalidProducerEpoch, kerr.UnknownProducerID, kerr.OutOfOrderSequenceNumber, kerr.TransactionAbortable,
		},
		kmsg.EndTxn: {
			kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.ConcurrentTransactions, kerr.UnknownServerError, kerr.InvalidProducerEpoch,
			kerr.TransactionAbortable,
		},
	} {
		for _, err := range list {
			at.once(func() {
				w := trouble{key: key, err: err, whole: key == kmsg.InitProducerID || key == kmsg.EndTxn}
				t.Run(w.String(), func(t *testing.T) { goesBackThrough(newFake(t), w) })
			})
		}
	}
}

func goesBackThrough(f *fake, w trouble) {
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	if err := b.DeadLetter(f.Context(), gather(f, b, 1)[0], "", poison); err != nil {
		f.Fatal(err)
	}
	letter := listed(f.T, b)[0]
	once := w.fault(1)
	if w.key == kmsg.Produce {
		once.Topic = "jobs" // not the ledger
	}
	fault := f.Fault(once)
	began := time.Now()
	err := b.Redrive(f.Context(), "", letter)
	for try := 0; try < 5 && backend.Retryable(err) && time.Since(began) > 4*time.Second; try++ { // this machine was too slow for an answer
		began = time.Now()
		if err = b.Redrive(f.Context(), "", letter); errors.Is(err, backend.ErrNotFound) {
			err = nil // the one before has sent it
		}
	}
	if err != nil || fault.Hits() == 0 {
		f.Errorf("%v, after %d of it", err, fault.Hits())
	}
	if n := len(listed(f.T, b)); n > 0 {
		f.Errorf("%d letters are left", n)
	}
	f.take(b, 1)
	f.soon(func() string {
		s, err := b.Stats(f.Context())
		if err == nil && s.Pending == 0 && s.Lag != nil && *s.Lag == 0 {
			return ""
		}
		return fmt.Sprintf("more has come back: %+v, %v", s, err)
	})
}

// TestALetterOfATopicThatIsGone stays where it is, and the error names that topic, not the one that is open.
func TestALetterOfATopicThatIsGone(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	gather(t, b, 1)
	client := f.client()
	if err := f.CreateTopic("all.dlq", 1, nil); err != nil {
		t.Fatal(err)
	}
	header := kgo.RecordHeader{Key: backend.HeaderDeadStream, Value: []byte("orders")}
	letter := &kgo.Record{Topic: "all.dlq", Key: []byte("a"), Value: []byte("x"), Headers: []kgo.RecordHeader{header}}
	if err := client.ProduceSync(t.Context(), letter).FirstErr(); err != nil {
		t.Fatal(err)
	}
	err := b.Redrive(t.Context(), "all.dlq", backend.DeadLetter{ID: "0:0"})
	if !errors.Is(err, backend.ErrStreamNotFound) || !strings.Contains(err.Error(), `topic "orders"`) || strings.Contains(err.Error(), `"jobs"`) {
		t.Errorf("redrive: %v", err)
	}
	if list, err := b.List(t.Context(), "all.dlq", "", 9); err != nil || len(list) != 1 {
		t.Errorf("%d letters are left, %v", len(list), err)
	}
	next := &kgo.Record{Topic: "all.dlq", Key: []byte("b"), Value: []byte("y")}
	if err := client.ProduceSync(t.Context(), next).FirstErr(); err != nil {
		t.Fatal(err)
	}
	watch := stopwatch()
	await(t, "the letter that was stored next", func() bool {
		list, err := b.List(t.Context(), "all.dlq", "", 9)
		return err == nil && len(list) == 2
	})
	if took := watch(); took > 5*time.Second {
		t.Errorf("it is seen after %s: what was begun was not given up", took)
	}
}

// TestLettersAfterATopicWasMadeAgain go back, or are removed, also by a handle that has done so before: whether the stream's
// topic is another one or that of the letters.
func TestLettersAfterATopicWasMadeAgain(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"jobs", "jobs.dlq"} {
		f := newFake(t, kfake.SeedTopics(1, "jobs.dlq"))
		b := f.open(groupClassic)
		for range 2 {
			client := f.client()
			for _, key := range []string{"goes back", "is removed"} {
				if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs.dlq", Key: []byte(key), Value: []byte("x")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			list := listed(t, b)
			if err := b.Redrive(t.Context(), "", list[0]); err != nil {
				t.Errorf("%s is another one: a letter does not go back: %v", topic, err)
			}
			if n, err := b.Purge(t.Context(), "", []string{list[1].ID}); n != 1 || err != nil {
				t.Errorf("%s is another one: of one letter %d are removed: %v", topic, n, err)
			}
			if n := len(listed(t, b)); n > 0 {
				t.Errorf("%s is another one: %d letters are left", topic, n)
			}
			if err := f.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			if err := f.CreateTopic(topic, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestARedriveIsDoneThoughItsContextEndsBehindIt, while it waits until the letter cannot be read any more.
func TestARedriveIsDoneThoughItsContextEndsBehindIt(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	if err := b.DeadLetter(t.Context(), gather(t, b, 1)[0], "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		t.Fatal(err)
	}
	letters, err := b.List(t.Context(), "", "", 1)
	if err != nil || len(letters) != 1 {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	committed := false
	f.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		committed = true
		return nil, nil, false
	})
	shelf := f.TopicInfo("jobs.dlq").TopicID
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if topics := req.(*kmsg.FetchRequest).Topics; committed && len(topics) > 0 && topics[0].TopicID == shelf {
			f.DropControl()
			f.SleepControl(cancel)
		}
		return nil, nil, false
	})
	if err := b.Redrive(ctx, "", letters[0]); err != nil || ctx.Err() == nil {
		t.Errorf("%v, and the context: %v", err, ctx.Err())
	}
}
