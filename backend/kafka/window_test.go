package kafka

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestAWindowGoesOnAfterAnyCrash: whatever has happened, an owner that goes on from any
// commit gets each record that was not finished by then, no other one, and knows how often
// each may have been handed out; also if the log has lost its end, and others have these numbers.
func TestAWindowGoesOnAfterAnyCrash(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		var log []*kgo.Record // with gaps, as of a compacted topic
		for at := int64(random.IntN(3)); len(log) < 300; at += 1 + int64(random.IntN(3)/2) {
			log = append(log, &kgo.Record{Offset: at})
		}
		state := map[int64]string{} // offset → what an owner has to know
		last := commit{offset: -1, epoch: -1}
		for owner := range 6 {
			if wrong := own(random, log, state, &last); wrong != "" {
				t.Fatalf("seed %d, owner %d: %s", seed, owner, wrong)
			}
			if cut := random.IntN(2 * len(log)); cut < len(log) {
				for i, r := range log[cut:] {
					log[cut+i] = &kgo.Record{Offset: r.Offset, LeaderEpoch: int32(owner) + 1}
					delete(state, r.Offset)
				}
				last.from = min(last.offset, log[cut].Offset)
			}
		}
	}
}

// commit is the last one, and where the client goes on with it, which finds out what the log has lost.
type commit struct {
	offset, from int64
	epoch        int32
	metadata     string
}

// own lets a random owner work; state is what its last commit says.
func own(random *rand.Rand, log []*kgo.Record, state map[int64]string, last *commit) string {
	w := newWindow(0, last.offset, last.epoch, last.metadata)
	now := map[int64]string{}
	for at, s := range state {
		now[at] = s
	}
	var out []*held
	fetched := 0
	for fetched < len(log) && log[fetched].Offset < last.from {
		fetched++
	}
	for range random.IntN(400) {
		switch n := random.IntN(10); {
		case n < 3 && fetched < len(log):
			r := log[fetched]
			at := r.Offset
			fetched++
			if w.rewritten(r) {
				w = w.upTo(at)
			}
			had := len(w.live)
			w.add(r)
			if got := len(w.live) > had; got != (now[at] != "done") {
				return fmt.Sprintf("record %d is %q, and given is %v", at, now[at], got)
			}
			if len(w.live) > had {
				if got, want := fmt.Sprint(w.live[len(w.live)-1].attempt), cmp.Or(now[at], "0"); got != want {
					return fmt.Sprintf("record %d was handed out %s times, it is taken for %s", at, want, got)
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
			*last = commit{base, base, w.epoch, formatSpans(base, w.open, w.spans(), 4096)}
			clear(state)
			for at, s := range now {
				state[at] = s
			}
		}
	}
	for at := range state {
		if at < last.offset && state[at] != "done" {
			return fmt.Sprintf("committed %d, and record %d is %s", last.offset, at, state[at])
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
	for _, foreign := range []string{"", "consumer-1-abc", "weir2:", "weir2:!!", "weir2:BwA", "weir1:", "weir1:AA", "weir2:CAQAAAE"} {
		if _, list, _ := parseSpans(7, foreign); len(list) > 0 {
			t.Errorf("metadata %q is read as %v", foreign, list)
		}
	}
	for _, ours := range []string{"weir1:BAAAAQ", "weir2:BwQAAAE"} { // as older versions write it, and this one
		if open, list, ok := parseSpans(7, ours); !ok || open != 11 || !slices.Equal(list, []span{{7, 8, 1}}) {
			t.Errorf("metadata %q is read as %v before %d", ours, list, open)
		}
	}
}
