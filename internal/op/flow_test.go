package op

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirmq/weir/internal/api"
)

var someTier = rapid.Custom(func(t *rapid.T) api.Tier {
	tier, _ := api.TierOf(rapid.IntRange(0, api.Tiers-1).Draw(t, "rank"))
	return tier
})

// The spans of frames are those of the records in them, and come back as they
// were stored.
func TestSpansAreThoseOfTheFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var frames []byte
		var want []Span
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		for i := range rapid.Uint64Range(1, 30).Draw(t, "n") {
			r := api.Record{Data: []byte("1"), Tier: someTier.Draw(t, "tier"), FairKey: []byte(rapid.SampledFrom([]string{"", "", "a", "bb"}).Draw(t, "key"))}
			if rapid.Bool().Draw(t, "more") {
				r.Hops, r.Tag, r.HasTag, r.Meta = 3, []byte("t"), true, []byte(`{"k":1}`)
			}
			if rapid.Bool().Draw(t, "plain") {
				r.Tier, r.FairKey = 0, nil
			}
			want = AppendSpan(want, first+i, &r)
			at := len(frames)
			frames = AppendFrame(frames, &r)
			var back api.Record
			if rest, err := ReadFrame(frames[at:], &back); err != nil || len(rest) > 0 || FlowOf(&back) != FlowOf(&r) || string(back.Tag) != string(r.Tag) {
				t.Fatalf("%+v comes back as %+v, %v", r, back, err)
			}
		}
		got, err := FrameSpans(first, frames)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("the spans are %v %v, want %v", got, err, want)
		}
		var back []Span
		if err := DecodeSpans(EncodeSpans(nil, want), func(s Span) { back = append(back, s) }); err != nil || !reflect.DeepEqual(back, want) {
			t.Fatalf("the spans come back as %v %v, want %v", back, err, want)
		}
	})
}

// Damaged spans are an error or other spans, never a panic, and always
// ascending.
func TestDamagedSpansAreNotTaken(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := EncodeSpans(nil, []Span{{Range{1, 3}, Flow{2, "a"}}, {Range{4, 4}, Flow{-3, ""}}, {Range{9, 300}, Flow{2, "a"}}})
		if rapid.Bool().Draw(t, "cut") {
			b = b[:rapid.IntRange(0, len(b)).Draw(t, "at")]
		} else {
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		last := uint64(0)
		DecodeSpans(b, func(s Span) {
			if s.From <= last || s.To < s.From || s.Plain() {
				t.Fatalf("span %v behind %d", s, last)
			}
			last = s.To
		})
	})
}
