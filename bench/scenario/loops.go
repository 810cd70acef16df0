package scenario

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/weirmq/weir/bench/report"
)

// loopFigures are Go benchmarks of single functions.
var loopFigures = []figure{
	{rows: []report.Figure{
		{Name: "mark-again", Title: "marking a topic that is dirty already", Unit: "ns", Goal: 20},
	}, measure: goBenchmark("./internal/engine/sched", "BenchmarkMarkDirtyAgain", 1)},
	{rows: []report.Figure{
		{Name: "governor-sample", Title: "a sample of the governor", Unit: "µs", Goal: 50},
	}, measure: goBenchmark("./internal/engine/governor", "BenchmarkGovernorSample", 1e-3)},
}

// goBenchmark runs one benchmark of a package and scales its nanoseconds.
func goBenchmark(pkg, name string, scale float64) func(context.Context, *session) ([]value, error) {
	return func(ctx context.Context, s *session) ([]value, error) {
		test := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^"+strings.ReplaceAll(name, "/", "$/^")+"$",
			"-benchmem", "-benchtime", s.Sample.String(), pkg)
		test.Dir = s.Root
		text, err := test.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w: %.500s", name, pkg, err, text)
		}
		nanos, allocs, err := parseBenchmark(text, name)
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w", name, pkg, err)
		}
		return []value{{amount: nanos * scale, note: allocs + " allocations"}}, nil
	}
}

// parseBenchmark finds the line of a benchmark in the output of go test.
func parseBenchmark(text []byte, name string) (nanos float64, allocs string, err error) {
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 8 || strings.SplitN(fields[0], "-", 2)[0] != name || fields[3] != "ns/op" {
			continue
		}
		nanos, err := strconv.ParseFloat(fields[2], 64)
		return nanos, fields[len(fields)-2], err
	}
	return 0, "", fmt.Errorf("no result in %.200q", text)
}
