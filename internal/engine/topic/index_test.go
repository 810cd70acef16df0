package topic

import (
	"fmt"
	"testing"
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
