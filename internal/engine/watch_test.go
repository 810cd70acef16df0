package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
)

// event is one frame as a client reads it.
type event struct {
	kind string
	ids  map[string]uint64
	data struct {
		Topic   string `json:"topic"`
		From    uint64 `json:"from_seq"`
		To      uint64 `json:"to_seq"`
		Head    uint64 `json:"head_seq"`
		GapFrom uint64 `json:"gap_from"`
		GapTo   uint64 `json:"gap_to"`
		Reason  string `json:"reason"`
		Records []struct {
			Seq uint64 `json:"$seq"`
		} `json:"records"`
	}
}

func (v event) String() string {
	switch v.kind {
	case "record":
		first, last := uint64(0), uint64(0)
		if n := len(v.data.Records); n > 0 {
			first, last = v.data.Records[0].Seq, v.data.Records[n-1].Seq
		}
		return fmt.Sprintf("%s %d-%d", v.data.Topic, first, last)
	case "tombstone":
		return fmt.Sprintf("%s gap %d-%d %s", v.data.Topic, v.data.GapFrom, v.data.GapTo, v.data.Reason)
	}
	return v.data.Topic + " " + v.kind
}

func parseEvents(t testing.TB, b []byte) (all []event) {
	t.Helper()
	for _, block := range strings.Split(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		var v event
		for _, line := range strings.Split(block, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "event":
				v.kind = value
			case "id":
				v.ids, _ = push.ParseID(value)
			case "data":
				if err := json.Unmarshal([]byte(value), &v.data); err != nil {
					t.Fatalf("%v in %q", err, value)
				}
			}
		}
		all = append(all, v)
	}
	return all
}

func watchOptions() api.WatchOptions {
	return api.WatchOptions{Limit: 256, MaxBatchBytes: 256 << 10, HeartbeatMS: 15000, IncludeMeta: true, IncludeData: true}
}

func newSession(t testing.TB, e *Engine, topics ...api.WatchTopic) string {
	t.Helper()
	res, err := e.OpenSession(&api.WatchRequest{Topics: topics, WatchOptions: watchOptions()}, Owner{})
	if err != nil {
		t.Fatal(err)
	}
	return res.WID
}

func openStream(t testing.TB, e *Engine, wid, last string) *Stream {
	t.Helper()
	s, err := e.OpenStream(wid, last)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// leftover is what a stream sent beyond what a test has asked for so far.
var leftover sync.Map // *Stream → []event

// events returns the next n events of the stream.
func events(t testing.TB, s *Stream, n int) []event {
	t.Helper()
	ctx, cancel := context.WithTimeout(bg, 30*time.Second)
	defer cancel()
	var all []event
	if had, ok := leftover.LoadAndDelete(s); ok {
		all = had.([]event)
	}
	for len(all) < n {
		b, err := s.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			s.Sent()
			all = append(all, parseEvents(t, b)...)
			continue
		}
		select {
		case <-s.Ready():
		case <-ctx.Done():
			t.Fatalf("%d events instead of %d: %v", len(all), n, all)
		}
	}
	if len(all) > n {
		leftover.Store(s, all[n:])
	}
	return all[:n]
}

// follow reads until the record seq has come.
func follow(t testing.TB, s *Stream, seq uint64) {
	t.Helper()
	for last := uint64(0); last < seq; {
		for _, v := range events(t, s, 1) {
			if k := len(v.data.Records); k > 0 {
				last = v.data.Records[k-1].Seq
			}
		}
	}
}

func expect(t testing.TB, s *Stream, want ...string) []event {
	t.Helper()
	got := events(t, s, len(want))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	return got
}

func TestAStreamSendsWhatLiesBehindAndThenWhatComes(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1", "2")
	s := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: "a"}), "")
	expect(t, s, "a 1-2", "a caught-up")
	tryWrite(e, "a", "3")
	got := expect(t, s, "a 3-3", "a caught-up")
	if got[0].ids["a"] != 3 || got[0].data.From != 2 || got[0].data.To != 3 {
		t.Fatalf("%+v", got[0])
	}
	e.DeleteTopic(bg, "a", false)
	expect(t, s, "a topic-deleted")
	if !s.Ended() {
		t.Fatal("the stream goes on without topics")
	}
}

func TestASessionGoesOnWhereItsLastStreamHadWritten(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	put(t, e, "b", configOf(api.Disk))
	tryWrite(e, "a", "1", "2")
	wid := newSession(t, e, api.WatchTopic{Topic: "a"}, api.WatchTopic{Topic: "b"})
	s := openStream(t, e, wid, "")
	expect(t, s, "a 1-2", "a caught-up", "b caught-up")
	s.Close()
	tryWrite(e, "a", "3")
	s = openStream(t, e, wid, "")
	expect(t, s, "a 3-3", "a caught-up", "b caught-up")
	// What was read but not written to the socket comes again.
	tryWrite(e, "b", "1")
	for {
		b, err := s.Next(bg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			break
		}
		<-s.Ready()
	}
	s.Close()
	s = openStream(t, e, wid, "")
	expect(t, s, "a caught-up", "b 1-1", "b caught-up")
	s.Close()
	s = openStream(t, e, wid, idOf("a", 1))
	expect(t, s, "a 2-3", "a caught-up", "b caught-up")
}

// unsent takes what is due without telling that it was written.
func unsent(t testing.TB, s *Stream) []event {
	t.Helper()
	for {
		b, err := s.Next(bg, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 {
			return parseEvents(t, b)
		}
		<-s.Ready()
	}
}

func idOf(topic string, seq uint64) string {
	id, _ := push.AppendID(nil, nil, 1, func(int) (string, uint64) { return topic, seq })
	return string(id)
}

// The client may have read a frame, and be back, before the write of it has
// returned here.
func TestAClientIsBelievedWhatItsSessionWasHanded(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1", "2", "3")
	wid := newSession(t, e, api.WatchTopic{Topic: "a"})
	s := openStream(t, e, wid, "")
	unsent(t, s)
	for range 2 {
		expect(t, openStream(t, e, wid, idOf("a", 3)), "a caught-up")
	}
	expect(t, openStream(t, e, wid, idOf("a", 1)), "a 2-3", "a caught-up")
	expect(t, openStream(t, e, wid, idOf("a", 9)), "a caught-up") // what it never was handed moves nothing
	expect(t, openStream(t, e, wid, ""), "a caught-up")
}

// superseded is a session whose older stream was sent a record after a newer one had begun
// at lastID, of which its client has nothing.
func superseded(t *testing.T, lastID string) (e *Engine, wid string) {
	t.Helper()
	e = openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1")
	wid = newSession(t, e, api.WatchTopic{Topic: "a"})
	older := openStream(t, e, wid, "")
	expect(t, older, "a 1-1", "a caught-up")
	newer := openStream(t, e, wid, lastID)
	tryWrite(e, "a", "2")
	expect(t, older, "a 2-2", "a caught-up")
	newer.Close()
	return e, wid
}

func TestAnOlderStreamOfTheSessionIsBelievedToo(t *testing.T) {
	e, wid := superseded(t, idOf("a", 0))
	expect(t, openStream(t, e, wid, idOf("a", 2)), "a caught-up")
	expect(t, openStream(t, e, wid, idOf("a", 1)), "a 2-2", "a caught-up")
}

// What is still written to a connection that its client has given up is lost with it.
func TestAnOlderStreamDoesNotMoveTheSession(t *testing.T) {
	e, wid := superseded(t, "")
	expect(t, openStream(t, e, wid, ""), "a 2-2", "a caught-up")
}

// A number says nothing of the life it belongs to: until a client names one that the former
// life cannot have given it, the announcement is made again.
func TestAnAnnouncementThatMayBeLostIsMadeAgain(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1", "2")
	wid := newSession(t, e, api.WatchTopic{Topic: "a"})
	s := openStream(t, e, wid, "")
	expect(t, s, "a 1-2", "a caught-up")
	e.DeleteTopic(bg, "a", false)
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1", "2", "3")
	s = openStream(t, e, wid, idOf("a", 2))
	if got := unsent(t, s); got[0].data.Reason != "recreated" {
		t.Fatalf("got %v", got)
	}
	// It is lost while it is made, and once more when it was written.
	for range 2 {
		expect(t, openStream(t, e, wid, idOf("a", 2)), "a gap 1-3 recreated", "a 1-3", "a caught-up")
	}
	expect(t, openStream(t, e, wid, idOf("a", 1)), "a 2-3", "a caught-up")
	expect(t, openStream(t, e, wid, idOf("a", 2)), "a 3-3", "a caught-up")
}

// What was written to a connection is lost with it: the announcement that a topic lives again,
// and the first records of that life, which has more than the client has of the former one.
func TestAClientThatMissedAnotherLifeIsToldOfIt(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1", "2")
	wid := newSession(t, e, api.WatchTopic{Topic: "a"})
	s := openStream(t, e, wid, "")
	expect(t, s, "a 1-2", "a caught-up")
	for _, had := range []uint64{2, 9} { // in front of the new life's head and behind it
		for range 2 {
			e.DeleteTopic(bg, "a", false)
			put(t, e, "a", configOf(api.Disk))
			tryWrite(e, "a", "1", "2", "3", "4")
			expect(t, openStream(t, e, wid, ""), "a gap 1-4 recreated", "a 1-4", "a caught-up")
		}
		expect(t, openStream(t, e, wid, idOf("a", had)), "a gap 1-4 recreated", "a 1-4", "a caught-up")
		expect(t, openStream(t, e, wid, idOf("a", 3)), "a 4-4", "a caught-up")
	}
}

func TestALaggedStreamReadsOnWithoutAGap(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Memory))
	stalled := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: "a"}), "")
	live := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: "a"}), "")
	expect(t, stalled, "a caught-up")
	expect(t, live, "a caught-up")
	const n = 3000
	for i := range n {
		tryWrite(e, "a", fmt.Sprint(i))
		follow(t, live, uint64(i+1))
	}
	if e.Metrics().Push.LaggedTotal != 1 {
		t.Fatalf("%d streams lagged", e.Metrics().Push.LaggedTotal)
	}
	next := uint64(1)
	for next <= n {
		for _, v := range events(t, stalled, 1) {
			for _, r := range v.data.Records {
				if r.Seq != next {
					t.Fatalf("record %d instead of %d", r.Seq, next)
				}
				next++
			}
		}
	}
	expect(t, stalled, "a caught-up")
	if e.Metrics().Push.Lagged != 0 {
		t.Fatal("still lagged")
	}
}

func TestALaggedStreamOfACappedTopicSeesOneGap(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Memory, func(c *api.Config) { c.CapRecords = 100 }))
	s := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: "a"}), "")
	live := openStream(t, e, newSession(t, e, api.WatchTopic{Topic: "a"}), "")
	expect(t, s, "a caught-up")
	expect(t, live, "a caught-up")
	for i := range 3000 {
		tryWrite(e, "a", fmt.Sprint(i))
		follow(t, live, uint64(i+1))
	}
	gaps, next := 0, uint64(1)
	for next <= 3000 {
		for _, v := range events(t, s, 1) {
			if v.kind == "tombstone" {
				if gaps++; v.data.GapFrom != next || v.data.Reason != "cap" {
					t.Fatalf("%+v", v)
				}
				next = v.data.GapTo + 1
			}
			for _, r := range v.data.Records {
				if r.Seq != next {
					t.Fatalf("record %d instead of %d", r.Seq, next)
				}
				next++
			}
		}
	}
	if gaps != 1 {
		t.Fatalf("%d tombstones", gaps)
	}
}

func TestARecreatedTopicIsToldAtTheNextConnect(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "b")
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1")
	wid := newSession(t, e, api.WatchTopic{Topic: "a"})
	s := openStream(t, e, wid, "")
	expect(t, s, "a 1-1", "a caught-up")
	s.Close()
	e.DeleteTopic(bg, "a", false)
	put(t, e, "a", configOf(api.Disk))
	tryWrite(e, "a", "1", "2")
	s = openStream(t, e, wid, "")
	got := expect(t, s, "a gap 1-2 recreated", "a 1-2", "a caught-up")
	if got[0].ids["a"] != 0 {
		t.Fatalf("resuming from the announcement would skip %d records", got[0].ids["a"])
	}
}
