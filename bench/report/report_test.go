package report_test

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/bench/report"
)

func TestMedianOfOddEvenAndNone(t *testing.T) {
	for want, of := range map[float64][]float64{0: nil, 2: {3, 1, 2}, 2.5: {4, 1, 2, 3}} {
		if got := report.Median(of); got != want {
			t.Errorf("median of %v is %v, want %v", of, got, want)
		}
	}
}

// A goal is met at exactly its value, from above for ratios and from below for
// figures; a row with an error never is, and the table says which.
func TestRowsAreJudgedAtTheirGoal(t *testing.T) {
	ratio := func(weir float64, err string) report.Ratio {
		r := report.Ratio{Weir: report.Side{Rate: weir}, Peer: report.Side{Rate: 100}, Goal: 0.5, Error: err}
		r.Judge()
		return r
	}
	figure := func(value float64) report.Figure {
		f := report.Figure{Value: value, Goal: 10}
		f.Judge()
		return f
	}
	r := report.Report{
		Ratios:  []report.Ratio{ratio(50, ""), ratio(49, ""), ratio(0, "peer is missing")},
		Figures: []report.Figure{figure(10), figure(10.1)},
	}
	if missed, failed := r.Misses(); missed != 2 || failed != 1 {
		t.Fatalf("%d missed and %d failed, want 2 and 1", missed, failed)
	}
	var out strings.Builder
	table := report.Table{W: &out, Judged: true}
	for i := range r.Ratios {
		table.Ratio(&r.Ratios[i])
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"pass", "MISS", "not measured: peer is missing"} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("line %q does not say %q", lines[i], want)
		}
	}
}
