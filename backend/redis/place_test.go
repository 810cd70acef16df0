package redis_test

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// source are the messages of a source from the at-th on.
func source(at, n int) (msgs []backend.Message) {
	for i := range n {
		msgs = append(msgs, backend.Message{Data: fmt.Append(nil, at+i), Headers: map[string]string{"part": fmt.Sprint(at)}})
	}
	return msgs
}

func TestASourceIsStoredOnceHoweverItIsCut(t *testing.T) {
	for _, version := range redistest.Versions() {
		t.Run(version, func(t *testing.T) {
			s := redistest.Start(t, redistest.Options{Version: version})
			b := open(t, s.Addr(), "stream=jobs")
			for _, c := range []struct {
				at, n, next int
				known       bool
			}{
				{0, 500, 500, false},
				{0, 500, 500, true},   // a repeat
				{0, 7, 500, true},     // a shorter one
				{300, 400, 500, true}, // one that goes further, too
				{500, 1, 501, false},
				{501, 2000, 2501, false},
				{2600, 1, 2601, false}, // the server had lost some: what comes is stored
			} {
				placed, err := b.AppendAt(t.Context(), "file", uint64(c.at), source(c.at, c.n))
				if err != nil || placed.Next != uint64(c.next) || placed.Known != c.known || placed.LastID == "" {
					t.Errorf("%d messages from %d on: %+v, %v; want next %d, known %v", c.n, c.at, placed, err, c.next, c.known)
				}
			}
			if _, err := b.AppendAt(t.Context(), "other", 0, source(0, 1)); err != nil {
				t.Error(err)
			}
			entries, err := s.Client().XRange(t.Context(), "jobs", "-", "+").Result()
			if err != nil || len(entries) != 2503 {
				t.Fatalf("%d entries, %v; want 2501, the one behind the gap and the other source's", len(entries), err)
			}
			for i, e := range entries[:2501] {
				if e.Values["data"] != fmt.Sprint(i) || e.Values["part"] == nil {
					t.Fatalf("entry %d is %v", i, e.Values)
				}
			}
		})
	}
}

// A write that fails in the middle of its script stores nothing.
func TestASourceThatCannotBeStoredLeavesNoPlace(t *testing.T) {
	s := redistest.Start(t, redistest.Options{})
	b := open(t, s.Addr(), "stream=jobs")
	client := s.Client()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1mb").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.AppendAt(t.Context(), "file", 0, source(0, 500)); err == nil {
		t.Fatal("stored on a server without memory")
	}
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := client.XLen(t.Context(), "jobs").Val(); n != 0 {
		t.Errorf("%d entries of a write that failed", n)
	}
	placed, err := b.AppendAt(t.Context(), "file", 0, source(0, 500))
	if err != nil || placed.Known || placed.Next != 500 {
		t.Errorf("the repeat: %+v, %v", placed, err)
	}
}

// A message with more fields than a script can pass on is refused before anything of its source is
// stored.
func TestASourceWithAVeryWideMessageStoresAllOrNothing(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		wide := backend.Message{Data: []byte("x"), Headers: map[string]string{}}
		for i := range 4500 {
			wide.Headers[fmt.Sprint("h", i)] = "v"
		}
		_, err := b.AppendAt(t.Context(), "lines", 0, []backend.Message{{Data: []byte("first")}, wide})
		if n := s.Client().XLen(t.Context(), "jobs").Val(); err == nil && n != 2 || err != nil && n != 0 {
			t.Errorf("%d entries, %v", n, err)
		}
	})
}
