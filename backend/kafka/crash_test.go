package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
)

// crash ends a handle on a classic group so that nothing is left but what it had written down.
func (f *fake) crash(b *kafka.Backend) {
	f.Helper()
	if _, err := b.Stats(f.Context()); err != nil { // all that was said is in a commit
		f.Fatal(err)
	}
	admin := kadm.NewClient(f.client())
	last, err := admin.FetchOffsets(f.Context(), "g")
	if err != nil {
		f.Fatal(err)
	}
	if err := b.Close(); err != nil {
		f.Fatal(err)
	}
	if err := admin.CommitAllOffsets(f.Context(), "g", last.Offsets()); err != nil {
		f.Fatal(err)
	}
}

// releases gives deliveries back.
func releases(t *testing.T, b backend.Backend, list []*backend.Delivery) {
	t.Helper()
	var returns []backend.Return
	for _, d := range list {
		returns = append(returns, backend.Return{Lease: d.Lease})
	}
	if lost, err := b.Nack(t.Context(), returns); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
}

// TestABrokerThatTakesLittleWithACommit: all that was unfinished comes again after a crash, and of the finished no more
// than what could not be written down.
func TestABrokerThatTakesLittleWithACommit(t *testing.T) {
	t.Parallel()
	const all = 400
	for room, most := range map[int]int{4096: 0, 500: all/2 - 1, 0: all / 2} { // of the finished ones
		f := newFake(t)
		f.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			f.KeepControl()
			commit := req.(*kmsg.OffsetCommitRequest)
			resp := commit.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, topic := range commit.Topics {
				said := kmsg.NewOffsetCommitResponseTopic()
				said.Topic, said.TopicID = topic.Topic, topic.TopicID
				for _, p := range topic.Partitions {
					if p.Metadata == nil || len(*p.Metadata) <= room {
						return nil, nil, false
					}
					refused := kmsg.NewOffsetCommitResponseTopicPartition()
					refused.Partition, refused.ErrorCode = p.Partition, kerr.OffsetMetadataTooLarge.Code
					said.Partitions = append(said.Partitions, refused)
				}
				resp.Topics = append(resp.Topics, said)
			}
			return resp, nil, true
		})
		b := f.open(groupClassic)
		f.publish(b, 0, all)
		finished, wanted := map[string]bool{}, map[string]bool{}
		var done []*backend.Delivery
		for i, d := range gather(t, b, all) {
			if i%2 == 1 {
				done, finished[d.ID] = append(done, d), true
			} else {
				wanted[d.ID] = true
			}
		}
		settled(t, b, done)
		f.crash(b)
		next, again := f.open(groupClassic), 0
		await(t, "what was unfinished", func() bool {
			got, err := next.Claim(t.Context(), claim(all))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range got.Deliveries {
				if finished[d.ID] {
					again++
				}
				delete(wanted, d.ID)
			}
			return len(wanted) == 0
		})
		if again > most {
			t.Errorf("with room for %d bytes %d of %d finished messages come again, more than %d", room, again, all/2, most)
		}
	}
}

// TestWhatDiedTogetherComesOneByOne, if one more delivery is the last: who ends its process takes no other one along.
func TestWhatDiedTogetherComesOneByOne(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 3)
	releases(t, b, gather(t, b, 3))
	gather(t, b, 3)
	f.crash(b)
	next := f.open(groupClassic)
	req := claim(10)
	req.MaxDeliveries = 3
	for range 3 {
		var out []*backend.Delivery
		await(t, "the next one", func() bool {
			got, err := next.Claim(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			out = got.Deliveries
			return len(out) > 0
		})
		more, err := next.Claim(t.Context(), req)
		if out = append(out, more.Deliveries...); len(out) > 1 || out[0].Attempt != 3 || err != nil {
			t.Errorf("%d are out at once, for the %d. time, %v", len(out), out[0].Attempt, err)
		}
		if settled(t, next, out); t.Failed() {
			break
		}
	}
}

// TestWhatNoHandlerHadIsNotCounted: of what has failed once, a crash counts what was with a handler and what was ready
// for the next claim.
func TestWhatNoHandlerHadIsNotCounted(t *testing.T) {
	t.Parallel()
	const all = 10
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, all)
	var list []*backend.Delivery
	for range all { // the last claim says how many are made ready
		list = append(list, gather(t, b, 1)...)
	}
	releases(t, b, list)
	gather(t, b, 1)
	f.crash(b)
	next, counted := f.open(groupClassic), 0
	for range all {
		d := gather(t, next, 1)[0]
		if d.Attempt > 2 {
			counted++
		}
		settled(t, next, []*backend.Delivery{d})
	}
	if counted > 2 {
		t.Errorf("one was with a handler, and one claim is ready, %d are counted", counted)
	}
}

// TestAWorkerThatEndsWhileItsGroupIsDividedAnew, as in a rolling restart: brokers take no commits for a moment. What it has
// finished does not come again, and what no handler began does not count.
func TestAWorkerThatEndsWhileItsGroupIsDividedAnew(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 2)
	list := gather(t, b, 2)
	await(t, "the commit", func() bool { return left(t, b) == 2 })
	f.Fault(trouble{key: kmsg.OffsetCommit, err: kerr.RebalanceInProgress}.fault(5))
	settled(t, b, list[:1])
	if lost, err := b.Nack(t.Context(), []backend.Return{{Lease: list[1].Lease, NotStarted: true}}); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next := gather(t, f.open(groupClassic), 1)
	if next[0].ID != list[1].ID || next[0].Attempt != 1 {
		t.Errorf("of one that was finished and one that was not begun %s comes, for the %d. time", next[0].ID, next[0].Attempt)
	}
}
