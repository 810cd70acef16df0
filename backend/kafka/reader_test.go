package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
)

// A reader gets every record of every partition once, wherever it stops and goes on, and is
// told what was removed before it came.
func TestAReaderGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	client := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	s := &scene{T: t, broker: broker, topic: "followed", client: client, admin: kadm.NewClient(client)}
	s.create(3)
	put := func(partition int32, texts ...string) {
		t.Helper()
		for _, text := range texts {
			s.must(client.ProduceSync(t.Context(), &kgo.Record{Topic: s.topic, Partition: partition, Value: []byte(text)}).FirstErr())
		}
	}
	put(0, "a0", "a1", "a2")
	s.transact(2, kgo.TryAbort) // to partition 0, and to be left out
	put(0, "a6")
	put(2, "c0", "c1")
	b := open(t, s.url("none"))
	defer b.Close()
	read := func(after string, most int) (string, backend.Records) {
		t.Helper()
		got, err := b.Read(t.Context(), backend.ReadRequest{After: after, Max: most})
		s.must(err)
		var texts []string
		for _, r := range got.Records {
			texts = append(texts, r.ID+" "+string(r.Data))
		}
		return strings.Join(texts, ", "), got
	}
	all, after := "", backend.CursorStart
	for range 5 {
		texts, got := read(after, 2)
		all, after = all+texts+"; ", got.Next
	}
	if want := "0:0 a0, 0:1 a1; 0:2 a2, 0:6 a6; 2:0 c0, 2:1 c1; ; ; "; all != want || after != "0:6,1:-1,2:1" {
		t.Errorf("from the start, two at a time: %s up to %s; want %s", all, after, want)
	}
	if texts, _ := read("0:1", 9); texts != "0:2 a2, 0:6 a6, 2:0 c0, 2:1 c1" {
		t.Errorf("behind 0:1: %s", texts)
	}
	if texts, got := read("2:0", 9); texts != "2:1 c1" || got.Next != "0:6,1:-1,2:1" {
		t.Errorf("behind 2:0: %s up to %s", texts, got.Next)
	}
	put(1, "b0")
	put(0, "a7")
	if texts, _ := read(after, 9); texts != "0:7 a7, 1:0 b0" {
		t.Errorf("what came meanwhile: %s", texts)
	}

	s.trim(0, 2)
	texts, got := read("0:0,1:0,2:1", 9)
	if g := got.Gap; texts != "" || g == nil || g.From != "0:0" || g.To != "0:1" || g.Reason != "removed" || *g.Missed != 1 || got.Next != "0:1,1:0,2:1" {
		t.Errorf("behind 0:0, and 0:1 is gone: %s, gap %+v, next %s", texts, g, got.Next)
	}
	if texts, got := read(got.Next, 9); texts != "0:2 a2, 0:6 a6, 0:7 a7" || got.Gap != nil {
		t.Errorf("behind the gap: %s, %+v", texts, got.Gap)
	}
	if _, got := read("0:99,1:0,2:1", 9); got.Gap == nil || got.Gap.Reason != "recreated" {
		t.Errorf("behind the end: %+v", got.Gap)
	}
	if _, got := read(backend.CursorStart, 1); got.Gap != nil {
		t.Errorf("at the start nothing is missed: %+v", got.Gap)
	}
	for _, bad := range []string{"x", "1", "0:1,", "1:1;2"} {
		if _, err := b.Read(t.Context(), backend.ReadRequest{After: bad, Max: 1}); err == nil || !strings.Contains(err.Error(), "PARTITION:OFFSET") {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}

	s.add(4) // what comes in a new partition is read from its first record
	client = s.client
	put(3, "d0")
	later := open(t, s.url("none"))
	defer later.Close()
	more, err := later.Read(t.Context(), backend.ReadRequest{After: "0:7,1:0,2:1", Max: 9, Block: 10 * time.Second})
	if err != nil || len(more.Records) != 1 || more.Records[0].ID != "3:0" || more.Next != "0:7,1:0,2:1,3:0" {
		t.Errorf("in a partition that was added: %+v, %v", more, err)
	}
}

// TestAReaderStopsAtAnOpenTransaction, as any consumer of what is committed does, and has what it holds up, once, when
// that has ended.
func TestAReaderStopsAtAnOpenTransaction(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 1)
	client := f.client(kgo.TransactionalID("open"), kgo.DefaultProduceTopic("jobs"))
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), kgo.StringRecord("held up")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	f.publish(b, 1, 2)
	after := backend.CursorStart
	reads := func(want string) {
		t.Helper()
		got, err := b.Read(t.Context(), backend.ReadRequest{After: after, Max: 9})
		if err != nil || got.Gap != nil {
			t.Fatalf("%+v, %v", got.Gap, err)
		}
		var texts []string
		for _, r := range got.Records {
			texts = append(texts, string(r.Data))
		}
		if text := strings.Join(texts, ", "); text != want {
			t.Errorf("behind %s: %q, want %q", after, text, want)
		}
		after = got.Next
	}
	reads("0")
	reads("")
	if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	reads("held up, 1")
}

// TestAReaderOfATopicMadeAgain, whose new records end just before the last that it has seen: it is told, and gets
// them all.
func TestAReaderOfATopicMadeAgain(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 3)
	got, err := b.Read(t.Context(), backend.ReadRequest{After: "0:3", Max: 9})
	if err != nil || got.Gap == nil || got.Gap.Reason != "recreated" {
		t.Fatalf("0:3 was seen, 0:2 is the last: %+v, %v", got, err)
	}
	if got, err = b.Read(t.Context(), backend.ReadRequest{After: got.Next, Max: 9}); err != nil || len(got.Records) != 3 {
		t.Errorf("of three records %d are read, %v", len(got.Records), err)
	}
}

// TestAReaderOfATopicMadeAgainThatHasGrown beyond the place up to which it had read the first one, and has other
// partitions: it is told once, and gets every record of the new one.
func TestAReaderOfATopicMadeAgainThatHasGrown(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 3)
	reads := func(after string, want int) (next string, gaps int) {
		t.Helper()
		n := 0
		for end := time.Now().Add(20 * time.Second); n < want; {
			got, err := b.Read(t.Context(), backend.ReadRequest{After: after, Max: 4, Block: time.Second})
			if err != nil && !backend.Retryable(err) || time.Now().After(end) {
				t.Fatalf("%d of %d records are read, then %v", n, want, err)
			}
			if err != nil {
				continue
			}
			if n, after = n+len(got.Records), got.Next; got.Gap != nil {
				if gaps++; got.Gap.Reason != "recreated" || got.Gap.From != "0:2" {
					t.Errorf("gap %+v", got.Gap)
				}
			}
		}
		return after, gaps
	}
	after, gaps := reads(backend.CursorStart, 3)
	if gaps != 0 {
		t.Errorf("%d gaps before anything is missing", gaps)
	}
	if err := f.DeleteTopic("jobs"); err != nil {
		t.Fatal(err)
	}
	if err := f.CreateTopic("jobs", 2, nil); err != nil {
		t.Fatal(err)
	}
	other := f.open(groupClassic)
	f.publish(other, 0, 40)
	if _, gaps := reads(after, 40); gaps != 1 {
		t.Errorf("the topic was made again, and that is told %d times, want once", gaps)
	}
}

// TestAReaderIsToldWhatIsRemovedWhileItReads, between its look at where the log begins and its fetch of the next page.
func TestAReaderIsToldWhatIsRemovedWhileItReads(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupClassic)
	f.publish(b, 0, 9)
	admin := kadm.NewClient(f.client())
	f.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		f.DropControl()
		f.SleepControl(func() {
			var to kadm.Offsets
			to.AddOffset("jobs", 0, 6, -1)
			if _, err := admin.DeleteRecords(t.Context(), to); err != nil {
				t.Error(err)
			}
		})
		return nil, nil, false
	})
	var told []string
	for after := "0:1"; ; {
		got, err := b.Read(t.Context(), backend.ReadRequest{After: after, Max: 9, Block: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if got.Gap == nil && len(got.Records) == 0 {
			break
		}
		if g := got.Gap; g != nil {
			told = append(told, g.From+"-"+g.To+" "+g.Reason)
		}
		for _, r := range got.Records {
			told = append(told, r.ID)
		}
		after = got.Next
	}
	if text := strings.Join(told, ", "); text != "0:1-0:5 removed, 0:6, 0:7, 0:8" {
		t.Errorf("behind 0:1, of 9 records of which 6 were removed meanwhile, it has %s", text)
	}
}
