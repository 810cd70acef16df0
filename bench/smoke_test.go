// Package bench_test runs the whole benchmark at a tiny size.
package bench_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/bench/report"
	"github.com/weirmq/weir/bench/scenario"
)

// Every row measures something on both sides, nothing errs, and the report is
// JSON that says so. Speed is not judged here.
func TestEveryRowOfTheBenchmarkRuns(t *testing.T) {
	found, err := scenario.Run(t.Context(), scenario.Config{Quick: true, Table: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "out", "bench.json")
	if err := found.WriteJSON(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var read report.Report
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range read.Ratios {
		names = append(names, r.Name)
		if r.Error != "" || r.Weir.Rate <= 0 || r.Peer.Rate <= 0 || r.Value <= 0 {
			t.Errorf("%s: weir %v/s, peer %v/s, ratio %v, error %q", r.Name, r.Weir.Rate, r.Peer.Rate, r.Value, r.Error)
		}
		timed := !strings.HasPrefix(r.Name, "pool-") // these measure how long a whole work takes
		if r.Weir.CPUPerMillion <= 0 || r.Peer.CPUPerMillion <= 0 || timed && (r.Weir.P50us <= 0 || r.Weir.P99us < r.Weir.P50us) {
			t.Errorf("%s: CPU or latencies are missing: %+v, %+v", r.Name, r.Weir, r.Peer)
		}
	}
	for _, f := range read.Figures {
		names = append(names, f.Name)
		if f.Error != "" || f.Value < 0 || f.Value == 0 && f.Name != "copied-memory" && f.Name != "copied-sync-pressure" {
			t.Errorf("%s: %v %s, error %q", f.Name, f.Value, f.Unit, f.Error)
		}
	}
	if !slices.Equal(names, scenario.Names()) {
		t.Errorf("rows %v, want %v", names, scenario.Names())
	}
}

// A run that is told to end ends, and says why.
func TestACancelledRunEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := scenario.Run(ctx, scenario.Config{Quick: true, Out: t.TempDir()}); err == nil {
		t.Fatal("a cancelled run reported success")
	}
}
