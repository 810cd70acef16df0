package kafka_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
)

// scene is one topic and a group of its own on it.
type scene struct {
	*testing.T
	broker *kafkatest.Broker
	topic  string
	kind   string // of its group; empty: what the broker offers
	client *kgo.Client
	admin  *kadm.Client
	worker backend.Backend // of the group; nil: none has been there
	held   []*backend.Delivery
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) group() string { return "g-" + s.topic }

func (s *scene) url(group string) string {
	url := fmt.Sprintf("%s/%s?group=%s", s.broker.URL(), s.topic, group)
	if s.kind != "" {
		url += "&group_type=" + s.kind
	}
	return url
}

func (s *scene) create(partitions int32, configs ...string) {
	s.Helper()
	_, err := s.admin.CreateTopic(s.Context(), partitions, 1, settingsOf(configs), s.topic)
	s.must(err)
	s.there(int(partitions))
}

// there waits until the broker knows of the topic's partitions.
func (s *scene) there(partitions int) {
	s.Helper()
	await(s.T, "the partitions", func() bool {
		topics, err := s.admin.ListTopics(s.Context(), s.topic)
		return err == nil && len(topics[s.topic].Partitions) == partitions
	})
}

// put appends n records to a partition, published some time ago.
func (s *scene) put(partition int32, n int, ago time.Duration) {
	s.Helper()
	s.record(partition, n, "", time.Now().Add(-ago))
}

func (s *scene) record(partition int32, n int, key string, at time.Time) {
	s.Helper()
	for range n {
		r := &kgo.Record{Topic: s.topic, Partition: partition, Value: []byte("x"), Timestamp: at}
		if key != "" {
			r.Key = []byte(key)
		}
		s.must(s.client.ProduceSync(s.Context(), r).FirstErr())
	}
}

// trim removes what is before an offset.
func (s *scene) trim(partition int32, offset int64) {
	s.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: s.topic, Partition: partition, At: offset})
	answers, err := s.admin.DeleteRecords(s.Context(), offsets)
	s.must(err)
	s.must(answers.Error())
}

// claim makes the worker hold n messages more.
func (s *scene) claim(n int) {
	s.Helper()
	if s.worker == nil {
		b := open(s, s.url(s.group()))
		s.Cleanup(func() { b.Close() })
		s.worker = b
	}
	for want := len(s.held) + n; len(s.held) < want; {
		got, err := s.worker.Claim(s.Context(), claim(want-len(s.held)))
		s.must(err)
		s.held = append(s.held, got.Deliveries...)
	}
	slices.SortFunc(s.held, func(a, b *backend.Delivery) int { return strings.Compare(a.ID, b.ID) })
}

// ack finishes what the worker holds at some places, by default all.
func (s *scene) ack(places ...int) {
	s.Helper()
	var leases []backend.Lease
	for i, d := range s.held {
		if len(places) == 0 || slices.Contains(places, i) {
			leases = append(leases, d.Lease)
		}
	}
	lost, err := s.worker.Ack(s.Context(), leases)
	s.must(err)
	if len(lost) > 0 {
		s.Fatalf("lost %v", lost)
	}
	s.held = slices.DeleteFunc(s.held, func(d *backend.Delivery) bool {
		return slices.ContainsFunc(leases, func(l backend.Lease) bool { return l.ID == d.ID })
	})
}

// work finishes n messages.
func (s *scene) work(n int) {
	s.Helper()
	s.claim(n)
	s.ack()
}

// known waits until others know how much the worker holds, so that its end need not say it.
func (s *scene) known() {
	s.Helper()
	b := open(s, s.url(s.group()))
	defer b.Close()
	await(s.T, "what the worker holds is known to others", func() bool {
		is, err := b.Stats(s.Context())
		return err == nil && is.Pending == int64(len(s.held))
	})
}

// gone ends the worker, which gives back what it holds.
func (s *scene) gone() {
	s.Helper()
	s.must(s.worker.Close())
}

// transact appends n records in a transaction, which leaves a marker behind them.
func (s *scene) transact(n int, end kgo.TransactionEndTry) {
	s.Helper()
	client := s.broker.Client(kgo.TransactionalID(s.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	s.must(client.BeginTransaction())
	for range n {
		s.must(client.ProduceSync(s.Context(), &kgo.Record{Topic: s.topic, Value: []byte("x")}).FirstErr())
	}
	s.must(client.EndTransaction(s.Context(), end))
	await(s.T, "the marker", func() bool {
		ends, err := s.admin.ListEndOffsets(s.Context(), s.topic)
		s.must(err)
		stable, err := s.admin.ListCommittedOffsets(s.Context(), s.topic)
		s.must(err)
		at, _ := ends.Lookup(s.topic, 0)
		upTo, _ := stable.Lookup(s.topic, 0)
		return at.Offset == upTo.Offset
	})
}

// compacted waits until the broker has removed what is not the last of its key.
func (s *scene) compacted(partition int32, left int) {
	s.Helper()
	await(s.T, "the cleaner", func() bool {
		s.record(partition, 1, "tick", time.Now()) // a segment ends with the next record
		return s.count(partition) <= left
	})
}

// count reads how many records a partition has, but for those that end segments.
func (s *scene) count(partition int32) int {
	ends, err := s.admin.ListEndOffsets(s.Context(), s.topic)
	s.must(err)
	end, _ := ends.Lookup(s.topic, partition)
	reader := s.broker.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {partition: kgo.NewOffset().AtStart()}}))
	defer reader.Close()
	n := 0
	for last := int64(-1); last+1 < end.Offset; {
		for _, r := range reader.PollFetches(s.Context()).Records() {
			if last = r.Offset; string(r.Key) != "tick" {
				n++
			}
		}
	}
	return n
}

// truth is what a sample has to say, counted by hand.
type truth struct {
	xlen, pending, lag int64
	source             backend.AgeSource
	age                time.Duration // of the oldest unfinished message
	at                 time.Time     // when it was published, instead
	letters            int64
	unknown            bool  // the lag
	missing            error // what is not there yet
	refused            error // why there is no reading
}

const (
	none    = backend.AgeNone
	backlog = backend.AgeBacklog
	held    = backend.AgePending
)

var states = map[string]struct {
	make func(*scene)
	is   truth
}{
	"no topic":             {func(*scene) {}, truth{refused: backend.ErrStreamNotFound}},
	"an empty topic":       {func(s *scene) { s.create(1) }, truth{missing: backend.ErrGroupNotFound, source: none}},
	"nobody has been here": {func(s *scene) { s.create(1); s.put(0, 5, time.Minute) }, truth{missing: backend.ErrGroupNotFound, xlen: 5, lag: 5, source: backlog, age: time.Minute}},
	"an empty topic, a worker waits": {func(s *scene) {
		s.create(2)
		s.idle()
	}, truth{source: none}},
	"all read, then emptied, a worker waits": {func(s *scene) {
		s.create(1)
		s.put(0, 4, time.Hour)
		s.work(4)
		s.trim(0, 4)
	}, truth{source: none}},
	"nothing read but joined": {func(s *scene) {
		s.create(1)
		s.idle()
		s.gone()
		s.put(0, 5, time.Minute)
	}, truth{xlen: 5, lag: 5, source: backlog, age: time.Minute}},
	"some held": {func(s *scene) {
		s.create(1)
		s.put(0, 6, time.Minute)
		s.claim(2)
	}, truth{xlen: 6, pending: 2, lag: 4, source: held, age: time.Minute}},
	"all held": {func(s *scene) {
		s.create(1)
		s.put(0, 3, time.Minute)
		s.claim(3)
	}, truth{xlen: 3, pending: 3, source: held, age: time.Minute}},
	"finished out of order": {func(s *scene) {
		s.create(1)
		s.put(0, 1, time.Hour)
		s.put(0, 7, time.Minute)
		s.claim(6)
		s.ack(1, 3, 4)
	}, truth{xlen: 8, pending: 3, lag: 2, source: held, age: time.Hour}},
	"all finished": {func(s *scene) {
		s.create(1)
		s.put(0, 5, time.Minute)
		s.work(5)
	}, truth{xlen: 5, source: none}},
	"all finished, more came": {func(s *scene) {
		s.create(1)
		s.put(0, 5, time.Hour)
		s.work(5)
		s.gone()
		s.put(0, 2, time.Minute)
	}, truth{xlen: 7, lag: 2, source: backlog, age: time.Minute}},
	"given back": {func(s *scene) {
		s.create(1)
		s.put(0, 5, time.Minute)
		s.claim(3)
		s.gone()
	}, truth{xlen: 5, lag: 5, source: backlog, age: time.Minute}},
	"trimmed below the first unfinished": {func(s *scene) {
		s.create(1)
		s.put(0, 6, time.Hour)
		s.put(0, 4, time.Minute)
		s.work(6)
		s.gone()
		s.trim(0, 3)
	}, truth{xlen: 7, lag: 4, source: backlog, age: time.Minute}},
	"trimmed at the first unfinished": {func(s *scene) {
		s.create(1)
		s.put(0, 6, time.Hour)
		s.put(0, 4, time.Minute)
		s.work(6)
		s.gone()
		s.trim(0, 6)
	}, truth{xlen: 4, lag: 4, source: backlog, age: time.Minute}},
	"trimmed above the first unfinished": {func(s *scene) {
		s.create(1)
		s.put(0, 8, time.Hour)
		s.put(0, 2, time.Minute)
		s.work(6)
		s.gone()
		s.trim(0, 8)
	}, truth{xlen: 2, lag: 2, source: backlog, age: time.Minute}},
	"trimmed to nothing": {func(s *scene) {
		s.create(1)
		s.idle()
		s.gone()
		s.put(0, 5, time.Minute)
		s.trim(0, 5)
	}, truth{source: none}},
	"trimmed to nothing, more came": {func(s *scene) {
		s.create(1)
		s.idle()
		s.gone()
		s.put(0, 5, time.Hour)
		s.trim(0, 5)
		s.put(0, 3, time.Minute)
	}, truth{xlen: 3, lag: 3, source: backlog, age: time.Minute}},
	"trimmed while held": {func(s *scene) {
		s.create(1)
		s.put(0, 5, time.Hour)
		s.put(0, 2, time.Minute)
		s.claim(4)
		s.trim(0, 5)
		s.gone()
	}, truth{xlen: 2, lag: 2, source: backlog, age: time.Minute}},
	"two groups, this one behind": {func(s *scene) {
		s.create(1)
		s.put(0, 6, time.Minute)
		s.other(6)
		s.claim(2)
	}, truth{xlen: 6, pending: 2, lag: 4, source: held, age: time.Minute}},
	"two groups, this one ahead": {func(s *scene) {
		s.create(1)
		s.put(0, 6, time.Minute)
		s.other(2)
		s.work(6)
	}, truth{xlen: 6, source: none}},
	"a group that began at the end": {func(s *scene) {
		s.create(1)
		s.put(0, 5, time.Hour)
		s.reset("latest")
		s.idle()
		s.gone()
		s.put(0, 2, time.Minute)
	}, truth{xlen: 7, unknown: true, source: backlog, age: time.Hour}}, // where it begins is where the end is by then
	"set back by hand": {func(s *scene) {
		s.create(1)
		s.put(0, 2, time.Hour)
		s.put(0, 4, time.Minute)
		s.work(6)
		s.gone()
		s.moveTo(2)
	}, truth{xlen: 6, lag: 4, source: backlog, age: time.Minute}},
	"partitions, one without a record": {func(s *scene) {
		s.create(3)
		s.put(0, 2, time.Minute)
		s.put(2, 3, time.Minute)
		s.work(5)
		s.gone()
		s.put(2, 1, time.Minute)
	}, truth{xlen: 6, lag: 1, source: backlog, age: time.Minute}},
	"partitions, the last has the oldest": {func(s *scene) {
		s.create(4)
		s.idle()
		s.gone()
		for p := range int32(4) {
			s.put(p, 2, time.Duration(p+1)*time.Minute)
		}
	}, truth{xlen: 8, lag: 8, source: backlog, age: 4 * time.Minute}},
	"partitions, the oldest record is larger than what is read of several at once": {func(s *scene) {
		s.create(3)
		s.idle()
		s.gone()
		s.put(0, 2, time.Minute)
		s.put(1, 2, time.Minute)
		r := &kgo.Record{Topic: s.topic, Partition: 2, Value: make([]byte, 20_000), Timestamp: time.Now().Add(-time.Hour)}
		rand.Read(r.Value)
		s.must(s.client.ProduceSync(s.Context(), r).FirstErr())
	}, truth{xlen: 5, lag: 5, source: backlog, age: time.Hour}},
	"partitions added, records in them": {func(s *scene) {
		s.create(1)
		s.put(0, 3, time.Minute)
		s.work(3)
		s.gone()
		s.add(2)
		s.put(1, 4, time.Minute)
	}, truth{xlen: 7, lag: 4, source: backlog, age: time.Minute}},
	"deleted and made again": {func(s *scene) {
		s.create(1)
		s.put(0, 6, time.Hour)
		s.work(4)
		s.gone()
		s.remake()
		s.put(0, 3, time.Minute)
	}, truth{xlen: 3, lag: 3, source: backlog, age: time.Minute}},
	"the oldest given back, others finished, the worker gone": {func(s *scene) {
		s.create(1)
		s.put(0, 1, time.Hour)
		s.put(0, 5, time.Minute)
		s.claim(6)
		s.ack(1, 2, 3, 4, 5)
		s.known()
		s.gone()
	}, truth{xlen: 6, lag: 1, source: backlog, age: time.Hour}},
	"a hand-written worker finished some": {func(s *scene) {
		s.create(1)
		s.put(0, 5, time.Minute)
		s.byHand(3)
	}, truth{xlen: 5, lag: 2, source: backlog, age: time.Minute}},
	"dead letters": {func(s *scene) {
		s.create(1)
		s.put(0, 4, time.Minute)
		s.claim(2)
		await(s.T, "a dead letter, whose topic is new", func() bool {
			return s.worker.DeadLetter(s.Context(), s.held[0], "", backend.Cause{Reason: backend.ReasonPoison}) == nil
		})
		s.held = s.held[1:]
	}, truth{xlen: 4, pending: 1, lag: 2, source: held, age: time.Minute, letters: 1}},
	"published in the future": {func(s *scene) {
		s.create(1)
		s.idle()
		s.gone()
		s.put(0, 2, -time.Hour)
	}, truth{xlen: 2, lag: 2, source: backlog}},
	"published in 1970": {func(s *scene) {
		s.create(1, "retention.ms=-1")
		s.idle()
		s.gone()
		s.record(0, 2, "", time.UnixMilli(1))
	}, truth{xlen: 2, lag: 2, source: backlog, at: time.UnixMilli(1)}},
	"published at no time": {func(s *scene) {
		s.create(1)
		s.idle()
		s.gone()
		s.record(0, 2, "", time.UnixMilli(-1))
	}, truth{xlen: 2, lag: 2, source: backend.AgeUnknown}},
	"the broker's time": {func(s *scene) {
		s.create(1, "message.timestamp.type=LogAppendTime")
		s.idle()
		s.gone()
		s.put(0, 2, time.Hour)
	}, truth{xlen: 2, lag: 2, source: backlog}},
	"a transaction, all finished": {func(s *scene) {
		s.create(1)
		s.transact(3, kgo.TryCommit)
		s.work(3)
		s.idle()
	}, truth{xlen: 4, source: none}},
	"a transaction's marker came last": {func(s *scene) {
		s.create(1)
		s.put(0, 1, time.Hour)
		s.work(1)
		s.gone()
		s.transact(0, kgo.TryCommit)
		s.transact(2, kgo.TryCommit)
	}, truth{xlen: 4, lag: 3, source: backlog}}, // two, and the marker
	"compacted, holes": {func(s *scene) {
		s.create(1, "cleanup.policy=compact", "segment.ms=1", "min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=1")
		s.idle()
		s.gone()
		for range 5 {
			s.record(0, 1, "a", time.Now().Add(-time.Hour))
			s.record(0, 1, "b", time.Now().Add(-time.Minute))
		}
		s.compacted(0, 2)
	}, truth{xlen: -1, lag: -1, source: backlog, age: time.Hour}},
	"compacted, all finished": {func(s *scene) {
		s.create(1, "cleanup.policy=compact", "segment.ms=1", "min.cleanable.dirty.ratio=0.01", "max.compaction.lag.ms=1")
		for range 5 {
			s.record(0, 1, "a", time.Now().Add(-time.Hour))
			s.record(0, 1, "b", time.Now().Add(-time.Minute))
		}
		s.compacted(0, 2)
		s.drain()
	}, truth{xlen: -1, source: none}},
}

// idle makes the worker join and claim what there is, which is nothing.
func (s *scene) idle() {
	s.Helper()
	s.claim(0)
	req := claim(1)
	got, err := s.worker.Claim(s.Context(), req)
	if err != nil || len(got.Deliveries) > 0 {
		s.Fatalf("a claim of nothing: %v, %v", got.Deliveries, err)
	}
}

// byHand finishes n messages without weir.
func (s *scene) byHand(n int) {
	s.Helper()
	s.reset("earliest")
	c := s.broker.Client(kgo.ConsumeTopics(s.topic), kgo.ShareGroup(s.group()))
	for n > 0 {
		for _, r := range c.PollRecords(s.Context(), n).Records() {
			r.Ack(kgo.AckAccept)
			n--
		}
		s.must(c.FlushAcks(s.Context()))
	}
	c.Close()
}

// drain finishes what there is.
func (s *scene) drain() {
	s.Helper()
	s.claim(0)
	await(s.T, "the end of the work", func() bool {
		got, err := s.worker.Claim(s.Context(), claim(100))
		s.must(err)
		s.held = got.Deliveries
		s.ack()
		stats, err := s.worker.Stats(s.Context())
		return err == nil && stats.Lag != nil && *stats.Lag == 0
	})
}

// other makes another group finish n messages.
func (s *scene) other(n int) {
	s.Helper()
	b := open(s, s.url("other-"+s.topic))
	defer b.Close()
	for n > 0 {
		got, err := b.Claim(s.Context(), claim(n))
		s.must(err)
		var leases []backend.Lease
		for _, d := range got.Deliveries {
			leases = append(leases, d.Lease)
		}
		_, err = b.Ack(s.Context(), leases)
		s.must(err)
		n -= len(leases)
	}
}

// reset says where the group begins.
func (s *scene) reset(where string) {
	s.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, s.group()
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &where
	resource.Configs = append(resource.Configs, config)
	req.Resources = append(req.Resources, resource)
	resp, err := req.RequestWith(s.Context(), s.client)
	s.must(err)
	s.must(kerr.ErrorForCode(resp.Resources[0].ErrorCode))
}

func (s *scene) moveTo(offset int64) {
	s.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: s.topic, At: offset})
	await(s.T, "the group to be empty", func() bool {
		answers, err := s.admin.AlterShareGroupOffsets(s.Context(), s.group(), offsets)
		return err == nil && answers.Error() == nil
	})
}

func (s *scene) add(partitions int) {
	s.Helper()
	_, err := s.admin.UpdatePartitions(s.Context(), partitions, s.topic)
	s.must(err)
	s.there(partitions)
	s.client = s.broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func (s *scene) remake() {
	s.Helper()
	_, err := s.admin.DeleteTopics(s.Context(), s.topic)
	s.must(err)
	await(s.T, "the topic to be created again", func() bool {
		_, err := s.admin.CreateTopic(s.Context(), 1, 1, nil, s.topic)
		return err == nil
	})
	s.there(1)
	s.client = s.broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

// TestSamplesOfOddStatesAreTrue compares readings with what was counted by hand: once as a
// stranger, once with what the first reading left behind.
func TestSamplesOfOddStatesAreTrue(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{
		"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "50", "log.cleaner.dedupe.buffer.size": strconv.Itoa(4 << 20), "log.cleaner.threads": "1",
		"group.share.record.lock.duration.ms": "60000", // what is held stays held though this machine stands still
	}})
	todo := make(chan string)
	var workers sync.WaitGroup
	var number atomic.Int64
	for range 8 { // they wait for most of the time
		workers.Go(func() {
			for name := range todo {
				t.Run(name, func(t *testing.T) {
					client := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
					s := &scene{T: t, broker: broker, topic: fmt.Sprintf("s%d", number.Add(1)), client: client, admin: kadm.NewClient(client)}
					states[name].make(s)
					b := open(t, s.url(s.group()))
					defer b.Close()
					for _, reading := range []string{"a first reading", "a second"} {
						s.compare(reading, b, states[name].is)
					}
				})
			}
		})
	}
	for name := range states {
		todo <- name
	}
	close(todo)
	workers.Wait()
}

// patience is how long a reading may be late on a busy machine.
const patience = 20 * time.Second

// compare reads until the reading is true, or could not be late any more.
func (s *scene) compare(reading string, b backend.Backend, is truth) {
	s.Helper()
	var wrong string
	for start := time.Now(); time.Since(start) < patience; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
		p, err := weir.New(b).Pressure(ctx)
		cancel()
		if wrong = is.differs(p, err); wrong == "" {
			return
		}
	}
	s.Errorf("%s: %s", reading, wrong)
}

func (is *truth) differs(p weir.Pressure, err error) string {
	if err != nil || is.refused != nil {
		if errors.Is(err, is.refused) {
			return ""
		}
		return fmt.Sprintf("error %v, want %v", err, is.refused)
	}
	if !errors.Is(p.Missing, is.missing) {
		return fmt.Sprintf("missing %v, want %v", p.Missing, is.missing)
	}
	line, _ := p.MarshalJSON()
	said := fmt.Sprintf("%s letters %s workers %s", line, shown(p.DeadLetters), shown(p.Workers))
	holes := is.xlen < 0 // then the counts are bounds
	late, age := 10*time.Minute, is.age
	if !is.at.IsZero() {
		age = time.Since(is.at)
	}
	switch {
	case is.unknown != (p.Lag == nil):
		return said + ": whether the lag is known"
	case !holes && p.XLen != is.xlen, p.Lag != nil && is.lag >= 0 && *p.Lag != is.lag, p.Pending != is.pending:
		return fmt.Sprintf("%s: want %d stored, %d pending, %d lag", said, is.xlen, is.pending, is.lag)
	case p.OldestSource != is.source, p.OldestAge < age-time.Second, p.OldestAge > age+late:
		return fmt.Sprintf("%s: want an age of %s from %s", said, age, is.source)
	case p.Approx != (is.source != none):
		return said + ": whether it is an estimate"
	case p.DeadLetters == nil || *p.DeadLetters != is.letters:
		return fmt.Sprintf("%s: want %d dead letters", said, is.letters)
	}
	return ""
}

func shown(n *int64) string {
	if n == nil {
		return "null"
	}
	return strconv.FormatInt(*n, 10)
}
