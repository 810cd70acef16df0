package kafka_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/kafka"
	"github.com/weirmq/weir/tests/capture"
	"github.com/weirmq/weir/tests/kafkatest"
)

// What retention removes before a group has finished it is counted and told once, to
// whichever pool looks first; what was finished is no loss.
func TestWhatRetentionRemovesUnfinishedIsTold(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{Settings: map[string]string{
		"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "100", "log.segment.delete.delay.ms": "0",
	}})
	client := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	scenery := func(t *testing.T, topic string, configs ...string) *scene {
		s := &scene{T: t, broker: broker, topic: topic, client: client, admin: kadm.NewClient(client)}
		s.create(1, configs...)
		return s
	}
	var all sync.WaitGroup
	defer all.Wait()
	at := func(name string, do func(*testing.T)) { all.Go(func() { t.Run(name, do) }) } // they wait for most of the time
	for _, kind := range []string{"share", "classic"} {
		at("in a "+kind+" group", func(t *testing.T) {
			s := scenery(t, kind)
			s.kind = kind
			s.tellsOnce()
			s = scenery(t, "finished-"+kind)
			s.kind = kind
			s.tellsWhatWasNotFinished()
		})
	}
	at("beside two workers", func(t *testing.T) {
		s := scenery(t, "two")
		s.put(0, 10, time.Minute)
		s.claim(4)
		second := open(t, s.url(s.group()))
		defer second.Close()
		got := gather(t, second, 1)
		s.loses(s.worker, 0)
		s.loses(second, 0)
		s.trim(0, 9)
		await(t, "what the other holds to be known", func() bool {
			stats, err := s.worker.Stats(t.Context())
			return err == nil && *stats.Workers == 2
		})
		n := s.missed(s.worker) + s.missed(second)
		if n < 3 || n > 4 {
			t.Errorf("5 of 9 are held (%s the last), %d are told to be lost", got[0].ID, n)
		}
	})
	at("by time", func(t *testing.T) {
		s := scenery(t, "time", "retention.ms=20000", "segment.ms=500")
		s.idle()
		s.put(0, 3, 14*time.Second)
		await(t, "the warning", func() bool {
			got, err := s.worker.(backend.Retainer).Retained(t.Context(), true)
			s.must(err)
			return got.Limit == "retention.ms=20000" && time.Until(got.Due) < 5*time.Second
		})
		s.finds("warning retention_near")
		missed := int64(0)
		await(t, "the loss", func() bool {
			missed += s.missed(s.worker)
			s.record(0, 1, "", time.Now()) // a segment ends with the next record
			return missed >= 3
		})
	})
	at("by size", func(t *testing.T) {
		s := scenery(t, "size", "retention.bytes=2000000", "segment.bytes=1048576")
		s.idle()
		fill := func(n int) {
			for range n {
				r := &kgo.Record{Topic: s.topic, Value: make([]byte, 90_000)}
				rand.Read(r.Value) // it is compressed
				s.must(client.ProduceSync(t.Context(), r).FirstErr())
			}
		}
		fill(20)
		await(t, "the warning", func() bool {
			got, err := s.worker.(backend.Retainer).Retained(t.Context(), true)
			s.must(err)
			return got.Limit == "retention.bytes=2000000"
		})
		fill(30)
		await(t, "the loss", func() bool { return s.missed(s.worker) > 0 })
	})
	at("of a topic that weir makes", func(t *testing.T) {
		b := open(t, broker.URL()+"/made?partitions=1&retention=2h")
		defer b.Close()
		if _, err := b.Append(t.Context(), messages("x")); err != nil {
			t.Fatal(err)
		}
		configs, err := kadm.NewClient(client).DescribeTopicConfigs(t.Context(), "made")
		if err != nil {
			t.Fatal(err)
		}
		of, err := configs.On("made", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range of.Configs {
			if c.Key == "retention.ms" && c.MaybeValue() != "7200000" {
				t.Errorf("retention=2h made a topic with retention.ms=%s", c.MaybeValue())
			}
		}
	})
}

func (s *scene) tellsOnce() {
	s.Helper()
	s.put(0, 10, time.Minute)
	s.work(4)
	s.gone()
	s.trim(0, 7)
	s.finds("error trimmed_unread")
	log, stats, stop := s.pool()
	await(s.T, "the rest of the work", func() bool { return stats().Acked == 3 })
	await(s.T, "the loss", func() bool { return stats().Lost == 3 })
	stop()
	if said := log.String(); strings.Count(said, "messages lost") != 1 || !strings.Contains(said, "messages=3 from=0:4 to=0:6") {
		s.Errorf("the log says\n%s", said)
	}
	again := open(s, s.url(s.group()))
	defer again.Close()
	_, err := again.Claim(s.Context(), claim(1))
	s.must(err)
	s.loses(again, 0)
	s.finds("error trimmed_unread")
}

func (s *scene) tellsWhatWasNotFinished() {
	s.Helper()
	s.put(0, 10, time.Minute)
	s.work(6)
	s.trim(0, 6)
	s.loses(s.worker, 0)
	s.trim(0, 8)
	lost := int64(2)
	if s.kind == "classic" {
		lost = 0 // it has them already
	}
	s.loses(s.worker, lost)
	s.loses(s.worker, 0)
	s.put(0, 5, time.Minute)
	s.work(int(9 - lost)) // and what was left
	s.trim(0, 15)
	s.loses(s.worker, 0)
}

func (s *scene) missed(b backend.Backend) (n int64) {
	s.Helper()
	got, err := b.(backend.Retainer).Retained(s.Context(), true)
	s.must(err)
	for _, gap := range got.Gaps {
		n += *gap.Missed
	}
	return n
}

func (s *scene) loses(b backend.Backend, want int64) {
	s.Helper()
	if n := s.missed(b); n != want {
		s.Errorf("%d are told to be lost, want %d", n, want)
	}
}

// finds checks what the doctor says about loss.
func (s *scene) finds(want string) {
	s.Helper()
	b := open(s, s.url(s.group()))
	defer b.Close()
	found, err := b.Examine(s.Context())
	s.must(err)
	for _, f := range found {
		if f.Concern == backend.OfLoss && f.Severity+" "+f.Code == want {
			return
		}
	}
	s.Errorf("the doctor finds %+v, not %q", found, want)
}

// pool runs a pool in the group.
func (s *scene) pool() (*capture.Buffer, func() weir.PoolStats, func()) {
	s.Helper()
	var log capture.Buffer
	stream := weir.New(open(s, s.url(s.group())))
	pool, err := weir.NewPool(stream, func(context.Context, *weir.Delivery) error { return nil },
		weir.PoolConfig{Workers: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	s.must(err)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = pool.Run(ctx)
	}()
	return &log, pool.Stats, func() {
		cancel()
		<-ended
		stream.Close()
	}
}

// TestALossIsToldThoughItsNoteHasNoAnswer, or is refused: what is lost is written down first, so that one of the
// group tells it. If whoever tries does not learn in time that it has, it does with its next look.
func TestALossIsToldThoughItsNoteHasNoAnswer(t *testing.T) {
	t.Parallel()
	for _, w := range []trouble{
		{key: kmsg.Produce, err: kerr.RequestTimedOut}, // it is stored
		{key: kmsg.Produce, err: kerr.PolicyViolation}, // it is not
		{key: kmsg.Fetch, err: kerr.KafkaStorageError},
	} {
		f := newFake(t)
		worker := f.open(groupClassic)
		f.publish(worker, 0, 10)
		f.take(worker, 3)
		if err := worker.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.DeleteRecords("jobs", 0, 7); err != nil {
			t.Fatal(err)
		}
		var written atomic.Bool
		f.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			written.Store(true)
			return nil, nil, false
		})
		fault := f.Fault(kfake.Fault{
			Keys: []kmsg.Key{w.key}, Topic: "jobs.weir", Err: w.err, Count: -1,
			When: func(kmsg.Request) bool { return written.Load() },
		})
		b := f.open(groupClassic)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if got, err := b.Retained(ctx, true); err == nil || len(got.Gaps) > 0 {
			t.Errorf("%s: %+v, %v", w, got, err)
		}
		cancel()
		fault.Remove()
		told := int64(0)
		for range 3 {
			got, err := b.Retained(t.Context(), true)
			if err != nil {
				t.Fatal(err)
			}
			for _, gap := range got.Gaps {
				told += *gap.Missed
			}
		}
		if told != 4 {
			t.Errorf("%s: 4 messages are lost, %d are told", w, told)
		}
	}
}

func gapsOf(got backend.Retained) (text string) {
	for _, gap := range got.Gaps {
		text += fmt.Sprintf("%d from %s to %s", *gap.Missed, gap.From, gap.To)
	}
	return text
}

// TestALossOfWhatAWorkerGaveBack: who has looked all the time knows as exactly as who comes later what a worker
// has had and not finished.
func TestALossOfWhatAWorkerGaveBack(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	worker, observer := f.open(groupClassic), f.open(groupClassic)
	f.publish(worker, 0, 10)
	looks := func(start int64, want string) {
		t.Helper()
		if err := f.DeleteRecords("jobs", 0, start); err != nil {
			t.Fatal(err)
		}
		got, err := observer.Retained(t.Context(), false)
		text := gapsOf(got)
		if err != nil || text != want {
			t.Errorf("lost before %d are %q, %v, want %q", start, text, err, want)
		}
	}
	list := gather(t, worker, 8)
	settled(t, worker, []*backend.Delivery{list[0], list[1], list[4]})
	looks(0, "")
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	looks(1, "")
	looks(4, "2 from 0:2 to 0:3")
	looks(4, "")
	looks(7, "2 from 0:4 to 0:6")
	looks(10, "3 from 0:7 to 0:9")
}

// TestALossAmongTheFinished: a worker has left messages behind the last that it finished, and retention removes
// some of both. The unfinished ones are lost, and those that are left wait.
func TestALossAmongTheFinished(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	client := f.client()
	for i := range 10 {
		at := time.Now().Add(-time.Hour)
		if i >= 7 {
			at = time.Now().Add(-time.Minute)
		}
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs", Value: []byte("x"), Timestamp: at}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	worker := f.open(groupClassic)
	list := gather(t, worker, 10)
	settled(t, worker, slices.DeleteFunc(list, func(d *backend.Delivery) bool { return d.ID == "0:1" || d.ID == "0:2" || d.ID == "0:7" }))
	await(t, "the commit", func() bool { return left(t, worker) == 3 })
	looks := func(lost int64) {
		t.Helper()
		b := f.open(groupClassic)
		got, err := b.Retained(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		told := int64(0)
		for _, gap := range got.Gaps {
			told += *gap.Missed
		}
		if told != lost {
			t.Errorf("%d are told to be lost, want %d", told, lost)
		}
		s, err := b.Stats(t.Context())
		if err != nil || s.Lag == nil || *s.Lag != 1 || s.OldestAge < time.Minute || s.OldestAge > 30*time.Minute {
			t.Errorf("one is left, a minute old: %+v, %v", s, err)
		}
	}
	if err := f.DeleteRecords("jobs", 0, 2); err != nil {
		t.Fatal(err)
	}
	beside := f.open(groupClassic)
	await(t, "what the worker holds to be known", func() bool {
		s, err := beside.Stats(t.Context())
		return err == nil && s.Pending == 2 // 0:1 is stored no more
	})
	if got, err := beside.Retained(t.Context(), true); err != nil || len(got.Gaps) > 0 {
		t.Errorf("the worker has 0:1, which is told to be lost: %+v, %v", got.Gaps, err)
	}
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	b := f.open(groupClassic)
	if got, err := b.Retained(t.Context(), true); err != nil || len(got.Gaps) != 1 || *got.Gaps[0].Missed != 1 || got.Gaps[0].From != "0:1" || got.Gaps[0].To != "0:1" {
		t.Errorf("0:1 is lost: %+v, %v", got.Gaps, err)
	}
	if err := f.DeleteRecords("jobs", 0, 5); err != nil {
		t.Fatal(err)
	}
	looks(1) // 0:2
	looks(0)
}

// TestTheDoctorForgetsALossAfterADay, however long the brokers keep the note of it, or a dashboard is open: what
// is lost then is told with its own number.
func TestTheDoctorForgetsALossAfterADay(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	if err := f.CreateTopic("jobs.weir", 1, nil); err != nil { // with the times of its producers
		t.Fatal(err)
	}
	worker := f.open(groupClassic)
	f.publish(worker, 0, 10)
	f.take(worker, 3)
	if err := worker.Close(); err != nil {
		t.Fatal(err)
	}
	client := f.client()
	says := func(want string) {
		t.Helper()
		found, err := f.open(groupClassic).Examine(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, finding := range found {
			if finding.Code == "trimmed_unread" {
				got = finding.Problem
			}
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) {
			t.Errorf("the doctor says %q, want %q", got, want)
		}
	}
	note := func(to int, age time.Duration) {
		t.Helper()
		text := fmt.Appendf(nil, `{"v":1,"gap":{"from":%d,"to":%d,"count":1,"total":%[2]d,"by":"x"}}`, to-1, to)
		r := &kgo.Record{Topic: "jobs.weir", Key: []byte("gap/g/0"), Value: text, Timestamp: time.Now().Add(-age)}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	note(2, 23*time.Hour)
	says("2 messages were removed")
	note(3, 25*time.Hour)
	says("")
	if err := f.DeleteRecords("jobs", 0, 7); err != nil {
		t.Fatal(err)
	}
	says("4 messages were removed")
}

// TestALossOfATopicMadeAgain: offsets that the group has had, or lost, of the first topic say nothing of the second.
func TestALossOfATopicMadeAgain(t *testing.T) {
	t.Parallel()
	for _, kind := range groupTypes {
		f := newFake(t)
		worker, observer := f.open(kind), f.open(kind)
		loses := func(b *kafka.Backend, at int64, want string) {
			t.Helper()
			if err := f.DeleteRecords("jobs", 0, at); err != nil {
				t.Fatal(err)
			}
			got, err := b.Retained(t.Context(), true)
			text := gapsOf(got)
			if err != nil || text != want {
				t.Errorf("%s group: lost are %q, %v, want %q", kind, text, err, want)
			}
		}
		f.publish(worker, 0, 20)
		f.take(worker, 20)
		await(t, "the commit", func() bool { return left(t, worker) == 0 })
		if err := worker.Close(); err != nil {
			t.Fatal(err)
		}
		loses(observer, 20, "")
		f.publish(observer, 20, 30)
		loses(observer, 30, "10 from 0:20 to 0:29")

		if err := f.DeleteTopic("jobs"); err != nil {
			t.Fatal(err)
		}
		if err := f.CreateTopic("jobs", 1, nil); err != nil {
			t.Fatal(err)
		}
		await(t, "the new topic to be known", func() bool { _, err := observer.Append(t.Context(), messages("0")); return err == nil })
		next := f.open(kind)
		f.publish(next, 1, 10)
		f.take(next, 2)
		if err := next.Close(); err != nil {
			t.Fatal(err)
		}
		loses(observer, 0, "")
		loses(observer, 7, "5 from 0:2 to 0:6")
	}
}

var _ backend.Retainer = (*kafka.Backend)(nil)
