package queue

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Pages hold what a map would, for numbers next to each other and far apart.
func TestPagesHoldWhatAMapDoes(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) uint64 {
		return rapid.SampledFrom([]uint64{0, 60, 4000, 1 << 40, ^uint64(0) - 200}).Draw(t, "base") +
			rapid.OneOf(rapid.Uint64Range(0, 200), rapid.SampledFrom([]uint64{pageSeqs - 1, pageSeqs, 2 * pageSeqs})).Draw(t, "seq")
	})
	rapid.Check(t, func(t *rapid.T) {
		p, want := newPages(), map[uint64]*job{}
		within := func(from, to uint64) (seqs []uint64) {
			for _, seq := range slices.Sorted(maps.Keys(want)) {
				if seq >= from && seq <= to {
					seqs = append(seqs, seq)
				}
			}
			return seqs
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				j := &job{seq: number.Draw(t, "seq")}
				p.put(j)
				want[j.seq] = j
			},
			"remove": func(t *rapid.T) {
				seqs := append(within(0, ^uint64(0)), 0)
				if seq := rapid.SampledFrom(seqs).Draw(t, "seq"); want[seq] != nil {
					p.remove(want[seq])
					delete(want, seq)
				}
			},
			"remove all of a range": func(t *rapid.T) {
				from, to := number.Draw(t, "from"), number.Draw(t, "to")
				var got []uint64
				for j := range p.in(from, to) {
					got = append(got, j.seq)
					p.remove(j)
				}
				slices.Sort(got)
				if !slices.Equal(got, within(from, to)) {
					t.Fatalf("%d…%d has %v, want %v", from, to, got, within(from, to))
				}
				maps.DeleteFunc(want, func(seq uint64, _ *job) bool { return seq >= from && seq <= to })
			},
			"": func(t *rapid.T) {
				if seq := number.Draw(t, "seq"); p.get(seq) != want[seq] {
					t.Fatalf("%d is %v, want %v", seq, p.get(seq), want[seq])
				}
				const last = ^uint64(0) - pageSeqs // the last page is out of the reach of its loop, and of any head
				from := number.Draw(t, "from")
				if has := within(from, from+200); want[from] == nil && len(has) > 0 && has[0] <= last {
					for _, to := range []uint64{has[0] - 1, has[0], has[0] + 1} {
						if got := p.absentTo(from, to); got != has[0]-1 {
							t.Fatalf("%d…%d has no entry up to %d, want %d", from, to, got, has[0]-1)
						}
					}
				}
				got := map[uint64]*job{}
				for j := range p.all() {
					got[j.seq] = j
				}
				if !maps.Equal(got, want) || p.n != len(want) {
					t.Fatalf("%d entries %v, want %v", p.n, got, want)
				}
			},
		})
	})
}

// Nothing is left of the entries that are gone.
func TestPagesThatAreEmptyAreLetGo(t *testing.T) {
	p := newPages()
	for seq := range uint64(10_000) {
		p.put(&job{seq: seq})
	}
	for j := range p.in(0, 9_998) {
		p.remove(j)
	}
	if len(p.byNumber) != 1 || p.n != 1 {
		t.Fatalf("%d pages for %d entry", len(p.byNumber), p.n)
	}
}
