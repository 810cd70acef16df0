package backendtest

import (
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) tallyCases() []testCase {
	_, tallies := s.offered.(backend.Tallier)
	_, signals := s.offered.(backend.Signaler)
	cases := only(tallies, testCase{"what several producers count is added up", tallied})
	cases = append(cases, only(tallies && s.h.OpenGroup != nil, testCase{"each group has its own counters", talliedByGroup})...)
	return append(cases, only(signals, testCase{"the signal counts what is finished", finished})...)
}

func (f *fixture) tally(b backend.Backend, add, sums []uint32) {
	f.Helper()
	got, _, err := b.(backend.Tallier).Tally(f.ctx(), add)
	if err != nil || !slices.Equal(got, sums) {
		f.Errorf("%v added: %v, %v, want %v", add, got, err, sums)
	}
}

func tallied(f *fixture) {
	one, two := f.open(), f.open()
	f.tally(one, []uint32{0, 0, 0}, []uint32{0, 0, 0})
	f.tally(one, []uint32{5, 0, 0}, []uint32{5, 0, 0})
	f.tally(two, []uint32{0, 0, 1 << 31}, []uint32{5, 0, 1 << 31})
	f.tally(one, []uint32{1, 0, 1<<31 + 2}, []uint32{6, 0, 2}) // counters wrap
	f.tally(two, []uint32{0, 0, 0}, []uint32{6, 0, 2})
}

func talliedByGroup(f *fixture) {
	f.tally(f.open(), []uint32{1, 2}, []uint32{1, 2})
	f.tally(f.suite.h.OpenGroup(f, f.stream, "other"), []uint32{3, 0}, []uint32{3, 0})
	f.tally(f.open(), []uint32{0, 0}, []uint32{1, 2})
}

// finished holds for a backend that counts.
func finished(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 10)...)
	got := f.claim(b, "a", 4)
	count := func() *int64 {
		f.Helper()
		for start := time.Now(); ; {
			sig, err := b.(backend.Signaler).Signal(f.ctx(), 100)
			if err == nil {
				return sig.Finished
			}
			if !backend.Retryable(err) || time.Since(start) > patience { // a broker may stall
				f.Fatal(err)
			}
		}
	}
	before := count()
	f.ack(b, got[:3]...)
	if after := count(); before != nil && (after == nil || *after != *before+3) {
		f.Errorf("finished %v, then %v after three acks", before, after)
	}
}
