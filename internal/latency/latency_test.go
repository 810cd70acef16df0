package latency_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/latency"
)

// A quantile is no less than the true one, and at most a 32nd more. What was counted apart and
// merged is as if it had been counted together.
func TestQuantilesAreTrue(t *testing.T) {
	var far []time.Duration
	for d := time.Nanosecond; d > 0; d *= 2 {
		far = append(far, d-1, d, d+1)
	}
	var near []time.Duration
	for n := range 1000 {
		near = append(near, time.Duration(n+1)*time.Millisecond)
	}
	for name, all := range map[string][]time.Duration{
		"one": {time.Second}, "far apart": append(far, math.MaxInt64), "near": near, "below 0": {-time.Second, 0, 0, 1},
	} {
		var whole, merged, part latency.Histogram
		for i, d := range all {
			whole.Add(d)
			if i%3 == 0 {
				part.Add(d)
			} else {
				merged.Add(d)
			}
		}
		merged.Merge(&part)
		if merged != whole || whole.Count() != int64(len(all)) {
			t.Errorf("%s: merged is another histogram, of %d durations, want %d", name, merged.Count(), len(all))
		}
		slices.Sort(all)
		if whole.Max() != all[len(all)-1] {
			t.Errorf("%s: the longest is %v", name, whole.Max())
		}
		for _, q := range []float64{0, 0.001, 0.25, 0.5, 0.9, 0.99, 1} {
			want := max(all[min(int(q*float64(len(all))), len(all)-1)], 0)
			if got := whole.Quantile(q); got < want || got-want > want/32 {
				t.Errorf("%s: the share %v is up to %v, want %v", name, q, got, want)
			}
		}
	}
	if none := new(latency.Histogram); none.Quantile(0.5) != 0 || none.Max() != 0 {
		t.Errorf("of nothing: %v, %v", none.Quantile(0.5), none.Max())
	}
}
