package topic

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/internal/op"
)

// Whatever order runs are taken in, each is found by its segment and by its
// numbers, and goes with its segment.
func TestRunsAreFoundBySegmentAndByNumber(t *testing.T) {
	const segments = 100
	for _, step := range []uint32{1, 37, 99} { // each has no divisor with 100 in common
		var x Index
		for i := range uint32(segments) {
			s := i * step % segments
			if i%2 == 0 {
				x.AddRun(runOf(s))
			} else {
				x.Seal(2*s, runOf(s))
			}
		}
		for s := uint32(0); s < segments; s += 3 {
			x.Swap(2*s, Run{})
			x.Swap(2*s+1, runOf(s)) // no run is there
		}
		for s := range uint32(segments) {
			gone := s%3 == 0
			if r, ok := x.RunIn(2 * s); ok == gone || ok && r != runOf(s) {
				t.Errorf("step %d: the run in segment %d is %v, %t", step, 2*s, r, ok)
			}
			if _, ok := x.RunIn(2*s + 1); ok {
				t.Errorf("step %d: there is a run in segment %d", step, 2*s+1)
			}
			want := s
			if gone {
				want = s + 1
			}
			_, r, inLog, sealed := x.Find(uint64(s)*10 + 3)
			if got := fmt.Sprint(r, inLog, sealed); want < segments && got != fmt.Sprint(runOf(want), false, true) {
				t.Errorf("step %d: number %d lies in %s", step, s*10+3, got)
			}
		}
	}
}

// runOf is a run of ten numbers in segment 2n.
func runOf(n uint32) Run {
	return Run{Segment: 2 * n, First: uint64(n)*10 + 1, Last: uint64(n)*10 + 10, N: 10, Bytes: 100, Disk: 120}
}

// Of a topic in memory each number that lives can be read, and what is gone takes no memory
// though the first number lives, but for what a router still has to copy.
func TestBatchesInMemoryOfWhichNothingLivesAreForgotten(t *testing.T) {
	const batches, each, hold = 500, 2, 600
	var x Topic
	x.Init()
	for first := uint64(1); first < batches*each; first += each {
		x.Index.Keep(first, []byte{1})
		x.Apply(&op.Part{Kind: op.KindAppend, First: first, N: each, Bytes: each}, Ref{First: first, N: each, Segment: InMemory})
	}
	stays := func(seq uint64) bool { return seq == 1 || seq%50 == 0 }
	check := func(most int) {
		t.Helper()
		if n := len(x.Index.memory.frames); n > most {
			t.Errorf("%d batches are in memory, want %d at most", n, most)
		}
		for seq := uint64(1); seq <= batches*each; seq++ {
			ref, _, inLog, _ := x.Index.Find(seq)
			if (stays(seq) || seq >= hold) && (!inLog || ref.First > seq || ref.Last() < seq || len(x.Index.Frames(ref.First)) == 0) {
				t.Fatalf("number %d is not in memory", seq)
			}
		}
	}
	x.Index.Hold(hold - 1)
	for i := range uint64(batches * each) {
		if seq := 1 + i*389%(batches*each); !stays(seq) {
			x.Apply(&op.Part{Kind: op.KindDelete, N: 1, Bytes: 1, Ranges: []op.Range{{From: seq, To: seq}}}, Ref{})
		}
	}
	check(batches/2 + (batches*each-hold)/each)
	x.Index.Unhold()
	x.Apply(&op.Part{Kind: op.KindDelete, N: sweepFrom * batches}, Ref{}) // as many were deleted again
	if n := len(x.Index.memory.frames); n != 21 {
		t.Errorf("%d batches are in memory, want 21", n)
	}
}
