package kafka_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// TestTheAgeOfLargeMessagesLeavesTheLinkToTheWork: each comes with its age, and where that takes long it is not asked
// for at once again.
func TestTheAgeOfLargeMessagesLeavesTheLinkToTheWork(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	large := string(random(100_000))
	for range 3 {
		if _, err := b.Append(t.Context(), messages(large)); err != nil {
			t.Fatal(err)
		}
	}
	var reads atomic.Int64
	id := f.TopicInfo("jobs").TopicID
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if topics := req.(*kmsg.FetchRequest).Topics; len(topics) > 0 && topics[0].TopicID == id {
			reads.Add(1)
			f.SleepControl(func() { <-time.After(1100 * time.Millisecond) })
		}
		return nil, nil, false
	})
	look := func(wantReads int64, source backend.AgeSource) {
		t.Helper()
		s, err := b.Stats(t.Context())
		if err != nil || s.OldestSource != source || reads.Load() != wantReads {
			t.Errorf("the age is %q after %d readings of messages, %v; want %q, %d", s.OldestSource, reads.Load(), err, source, wantReads)
		}
	}
	look(1, backend.AgeBacklog)
	look(1, backend.AgeBacklog) // which is known
	f.take(b, 1)
	look(1, backend.AgeUnknown)
}

// TestALongLedgerIsReadInParts: what a call has read of it before it failed, the next one does not read again.
func TestALongLedgerIsReadInParts(t *testing.T) {
	t.Parallel()
	f := newFake(t, kfake.SeedTopics(1, "jobs.weir"))
	c := f.client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range 3 {
		entry := fmt.Sprintf(`{"v":1,"name":%q}`, strings.Repeat("x", 300_000))
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "jobs.weir", Key: []byte(fmt.Sprint("worker/g/", i)), Value: []byte(entry)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	b := f.open(groupShare)
	var asked []int64
	failing := true
	id := f.TopicInfo("jobs.weir").TopicID
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		fetch := req.(*kmsg.FetchRequest)
		if len(fetch.Topics) == 0 || fetch.Topics[0].TopicID != id {
			return nil, nil, false
		}
		from := fetch.Topics[0].Partitions[0].FetchOffset
		asked = append(asked, from)
		if from == 0 || !failing {
			return nil, nil, false
		}
		failing = false
		resp := fetch.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil, true
	})
	if _, err := b.Stats(t.Context()); err == nil {
		t.Fatal("a reading of which a part failed is one")
	}
	if _, err := b.Stats(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(asked); got != "[0 1 1 2]" {
		t.Errorf("it was read from %s", got)
	}
}

// TestAMemberAsksForWhatASlowLinkBrings in the minute that an answer has.
func TestAMemberAsksForWhatASlowLinkBrings(t *testing.T) {
	t.Parallel()
	const slow, most = 20_000, 55 // bytes a second, seconds
	f := newFake(t, kfake.SeedTopics(8, "jobs"))
	b := f.open(groupClassic)
	var largest atomic.Int64
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if fetch := req.(*kmsg.FetchRequest); fetch.MaxWaitMillis > 0 { // a member's
			largest.Store(max(largest.Load(), int64(fetch.MaxBytes)))
		}
		return nil, nil, false
	})
	f.publish(b, 0, 1)
	f.take(b, 1)
	if n := largest.Load(); n == 0 || n > slow*most {
		t.Errorf("it asks for %d bytes, which take %d s at %d a second", n, n/slow, slow)
	}
}

// TestWhatWasReadBeforeAFailureIsShown: the next read goes on behind it.
func TestWhatWasReadBeforeAFailureIsShown(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	b := f.open(groupShare)
	for range 2 { // each of which is a page
		if _, err := b.Append(t.Context(), messages(string(random(200_000)))); err != nil {
			t.Fatal(err)
		}
	}
	fails := true
	f.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		if topics := req.(*kmsg.FetchRequest).Topics; !fails || len(topics) == 0 || topics[0].Partitions[0].FetchOffset == 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, nil, true
	})
	got, err := b.Read(t.Context(), backend.ReadRequest{After: backend.CursorStart, Max: 10})
	if err != nil || len(got.Records) != 1 {
		t.Fatalf("%d records, %v; want the first", len(got.Records), err)
	}
	if _, err := b.Read(t.Context(), backend.ReadRequest{After: got.Next, Max: 10}); err == nil {
		t.Error("the failure is not told")
	}
	fails = false
	if got, err = b.Read(t.Context(), backend.ReadRequest{After: got.Next, Max: 10}); err != nil || len(got.Records) != 1 || got.Records[0].ID != "0:1" {
		t.Errorf("then %+v, %v", got, err)
	}
}
