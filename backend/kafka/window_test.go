package kafka

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestAWindowGoesOnAfterAnyCrash: whatever has happened, an owner that goes on from any
// commit gets each record that was not finished by then, no other one, and knows how often
// each may have been handed out.
func TestAWindowGoesOnAfterAnyCrash(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var offsets []int64 // with gaps, as of a compacted topic
		for at := int64(random.IntN(3)); len(offsets) < 300; at += 1 + int64(random.IntN(3)/2) {
			offsets = append(offsets, at)
		}
		state := map[int64]string{} // offset → what an owner has to know
		committed, metadata := int64(-1), ""
		for owner := range 6 {
			if wrong := own(random, offsets, newWindow(0, committed, metadata), state, &committed, &metadata); wrong != "" {
				t.Fatalf("seed %d, owner %d: %s", seed, owner, wrong)
			}
		}
	}
}

// own lets a random owner work; state is what its last commit says.
func own(random *rand.Rand, offsets []int64, w *window, state map[int64]string, committed *int64, metadata *string) string {
	now := map[int64]string{}
	for at, s := range state {
		now[at] = s
	}
	var out []*held
	fetched := 0
	for fetched < len(offsets) && offsets[fetched] < *committed {
		fetched++
	}
	for range random.IntN(400) {
		switch n := random.IntN(10); {
		case n < 3 && fetched < len(offsets):
			at := offsets[fetched]
			fetched++
			had := len(w.live)
			w.add(&kgo.Record{Offset: at})
			if got := len(w.live) > had; got != (now[at] != "done") {
				return fmt.Sprintf("record %d is %q, and given is %v", at, now[at], got)
			}
			if len(w.live) > had && now[at] != "" {
				if got := fmt.Sprint(w.live[len(w.live)-1].attempt); got != now[at] {
					return fmt.Sprintf("record %d was handed out %s times, it is taken for %s", at, now[at], got)
				}
			}
		case n < 5:
			for range random.IntN(5) {
				w.promise()
			}
			for _, h := range w.promised {
				now[h.record.Offset] = fmt.Sprint(h.attempt)
			}
			out, w.promised = append(out, w.promised...), nil
		case n < 9 && len(out) > 0:
			i := random.IntN(len(out))
			h := out[i]
			out = append(out[:i], out[i+1:]...)
			if counts := random.IntN(2) == 0; random.IntN(3) == 0 {
				w.giveBack(h, counts)
				now[h.record.Offset] = fmt.Sprint(h.attempt)
			} else {
				w.done(h)
				now[h.record.Offset] = "done"
			}
		default:
			base := w.base()
			if base < 0 {
				continue
			}
			*committed, *metadata = base, formatSpans(base, w.open, w.spans(), 4096)
			clear(state)
			for at, s := range now {
				state[at] = s
			}
		}
	}
	for at := range state {
		if at < *committed && state[at] != "done" {
			return fmt.Sprintf("committed %d, and record %d is %s", *committed, at, state[at])
		}
	}
	return ""
}

// TestMetadataStaysBelowItsLimit, and what does not fit is unfinished.
func TestMetadataStaysBelowItsLimit(t *testing.T) {
	var list []span
	for i := range int64(3000) {
		list = append(list, span{i * 50, i*50 + 1, 1 + int(i%3)})
	}
	open := int64(3000 * 50)
	text := formatSpans(0, open, list, 4096)
	if len(text) > 4096 || len(text) < 3500 {
		t.Errorf("%d spans take %d bytes", len(list), len(text))
	}
	gotOpen, got, ok := parseSpans(0, text)
	if !ok || gotOpen != open {
		t.Fatalf("open %d, %v", gotOpen, ok)
	}
	last := got[len(got)-1]
	for i, s := range got[:len(got)-1] {
		if s != list[i] {
			t.Fatalf("span %d is %v, was %v", i, s, list[i])
		}
	}
	if last.from != list[len(got)-1].from || last.to != open || last.attempts != 1 {
		t.Errorf("the rest is %v", last)
	}
	most := make([]span, windowRecords) // every second record unfinished
	for i := range most {
		most[i] = span{int64(2 * i), int64(2*i + 1), 1 + i%2}
	}
	if text := formatSpans(0, 2*windowRecords, most, 4096); len(text) > 4096 {
		t.Errorf("a full window takes %d bytes", len(text))
	} else if _, got, _ := parseSpans(0, text); len(got) != windowRecords {
		t.Errorf("of a full window %d spans are left", len(got))
	}
	for _, foreign := range []string{"", "consumer-1-abc", "weir1:", "weir1:!!", "weir1:AA", "weir2:AQA"} {
		if _, list, _ := parseSpans(7, foreign); len(list) > 0 {
			t.Errorf("metadata %q is read as %v", foreign, list)
		}
	}
}
