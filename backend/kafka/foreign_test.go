package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// theTimeOfARecordThatHasNone is not known.
func theTimeOfARecordThatHasNone(t *testing.T, g *ground) {
	g.create("timeless")
	g.put(&kgo.Record{Topic: "timeless", Value: []byte("x"), Timestamp: time.UnixMilli(-1)})
	if d := gather(t, g.open("timeless"), 1)[0]; !d.Enqueued.IsZero() {
		t.Errorf("published at %s", d.Enqueued)
	}
}

// lettersKeepTheRecordsOfOthers: their keys, and values that are null.
func lettersKeepTheRecordsOfOthers(t *testing.T, g *ground) {
	g.create("others")
	b := g.open("others")
	for _, value := range [][]byte{nil, []byte("v")} {
		g.put(&kgo.Record{Topic: "others", Key: []byte("customer-7"), Value: value})
		g.must(b.DeadLetter(t.Context(), gather(t, b, 1)[0], "", poison))
		list := g.letters(b)
		if len(list) != 1 {
			t.Fatalf("value %q: one letter, listed are %+v", value, list)
		}
		g.must(b.Redrive(t.Context(), "", list[0]))
		g.comes(b, 1, time.Minute)
	}
	reader := g.broker.Client(kgo.ConsumeTopics("others"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	var values []bool
	for len(values) < 4 {
		for _, r := range reader.PollFetches(t.Context()).Records() {
			if string(r.Key) != "customer-7" {
				t.Errorf("the record at %d has the key %q", r.Offset, r.Key)
			}
			values = append(values, r.Value != nil)
		}
	}
	if values[0] != values[1] || !values[2] || !values[3] {
		t.Errorf("two records are null, these have a value: %v", values)
	}
}

// aLetterWithoutAKey, or with an empty one, which weir has not written, cannot be removed, so it is not sent back.
func aLetterWithoutAKey(t *testing.T, g *ground) {
	g.create("mixed")
	g.create("mixed.dlq")
	g.put(&kgo.Record{Topic: "mixed.dlq", Value: []byte("x")})
	g.put(&kgo.Record{Topic: "mixed.dlq", Key: []byte{}, Value: []byte("x")})
	b := g.open("mixed")
	list := g.letters(b)
	if len(list) != 2 {
		t.Fatalf("two letters, listed are %+v", list)
	}
	for _, letter := range list {
		if err := b.Redrive(t.Context(), "", letter); err == nil || !strings.Contains(err.Error(), "has no key") {
			t.Errorf("redrive: %v", err)
		}
		if n, err := b.Purge(t.Context(), "", []string{letter.ID}); err == nil || n != 0 || !strings.Contains(err.Error(), "has no key") {
			t.Errorf("purge: %d, %v", n, err)
		}
	}
	s, err := b.Stats(t.Context())
	if g.must(err); s.XLen != 0 {
		t.Errorf("%d messages were sent back", s.XLen)
	}
}
