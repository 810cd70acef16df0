package queue

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weirmq/weir/internal/op"
)

// A job that is with a worker or delayed takes little memory, whatever the claim wanted that found
// it and whatever became of the other jobs of that claim.
func TestAJobTakesLittleMemoryWhateverItsClaim(t *testing.T) {
	for name, c := range map[string]struct {
		flow    op.Flow
		found   int // by each claim for two thousand
		kept    int // of these, acknowledged late
		delayed bool
		apart   bool  // every second one has gone before they were claimed again
		most    int64 // bytes for each job that is kept
	}{
		"found alone":               {found: 1, kept: 1, most: 512},
		"found alone of a key":      {flow: op.Flow{Key: "k"}, found: 1, kept: 1, most: 512},
		"one of a few":              {found: 10, kept: 10, most: 256},
		"the last of many":          {found: 1000, kept: 1, most: 7 << 10},
		"the last, and delayed":     {found: 1000, kept: 1, delayed: true, most: 7 << 10},
		"the last, far from others": {found: 2000, kept: 1, apart: true, most: 7 << 10},
		"one of many of its key":    {flow: op.Flow{Key: "k"}, found: 1000, kept: 1000, most: 256},
	} {
		t.Run(name, func(t *testing.T) {
			q, w, live := New(), &backlog{}, 0
			claims := 2000 / c.kept
			before := inUse()
			for range claims {
				live += c.found
				claim := func() []Pick {
					picks, _ := q.Claim(nil, nil, &Claim{Node: "w", Max: 2000, Deadline: 1 << 40, FirstID: 1, Head: w.head, Live: uint64(live), Records: w})
					return picks
				}
				for range c.found {
					w.head++
					if !c.flow.Plain() {
						q.Add([]op.Span{{Range: op.Range{From: w.head, To: w.head}, Flow: c.flow}}, w.head, w)
					}
				}
				picks := claim()
				if len(picks) != c.found {
					t.Fatalf("%d jobs are claimed of %d", len(picks), c.found)
				}
				if c.apart {
					for i, p := range picks {
						if i%2 == 0 {
							q.Nack(p.Seq, 0, 0, false)
						} else {
							q.Forget(p.Seq)
							live--
						}
					}
					picks = claim()
				}
				for i, p := range picks {
					if i >= c.kept {
						q.Forget(p.Seq)
						live--
					} else if c.delayed {
						q.Nack(p.Seq, 0, 1<<40, false)
					}
				}
			}
			if each := (inUse() - before) / int64(claims*c.kept); each > c.most {
				t.Errorf("a job takes %d B, want %d at most", each, c.most)
			}
			if kept := claims * c.kept; !c.delayed && q.InFlight() != uint64(kept) {
				t.Errorf("%d jobs are in flight, want %d", q.InFlight(), kept)
			}
			if q.Expire(1<<40 + 1); q.InFlight() > 0 || q.Delayed() > 0 {
				t.Errorf("after the deadline %d jobs are in flight and %d delayed", q.InFlight(), q.Delayed())
			}
		})
	}
}

// inUse returns the bytes in use after all garbage is gone.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkClaim is a claim and the end of its jobs; an operation is one job.
func BenchmarkClaim(b *testing.B) {
	for _, f := range []op.Flow{{}, {Key: "k"}} {
		for _, n := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%d,key=%s", n, f.Key), func(b *testing.B) {
				q, w := New(), &backlog{}
				b.ReportAllocs()
				for left := b.N; left > 0; left -= n {
					if w.head < w.last+uint64(n) {
						r := op.Range{From: w.head + 1, To: w.head + 100_000}
						w.head = r.To
						if !f.Plain() {
							q.Add([]op.Span{{Range: r, Flow: f}}, 100_000, w)
						}
					}
					picks, _ := q.Claim(nil, nil, &Claim{Node: "w", Max: n, Deadline: 1 << 40, FirstID: 1, Head: w.head, Live: w.head - w.last, Records: w})
					for _, p := range picks {
						q.Forget(p.Seq)
					}
					w.last += uint64(n)
				}
			})
		}
	}
}

// backlog is a topic of which nothing but the jobs up to last has gone.
type backlog struct{ head, last uint64 }

func (w *backlog) Free(seq uint64) bool         { return seq > w.last && seq <= w.head }
func (w *backlog) NextFree(above uint64) uint64 { return max(above, w.last) + 1 }
func (w *backlog) FreeRange(pos, end uint64) (from, to uint64) {
	return w.NextFree(pos), min(end, w.head)
}
func (w *backlog) NextLive(above uint64) uint64 { return w.NextFree(above) }
