// Package report holds what a benchmark run found: ratios to a peer measured
// in the same run, and figures with a bound. It prints them as a table and
// writes them as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Report is one run of the benchmark.
type Report struct {
	Started time.Time `json:"started"`
	Seconds float64   `json:"seconds"` // how long the whole run took
	Quick   bool      `json:"quick"`   // tiny sizes: the goals do not apply
	Machine Machine   `json:"machine"`
	Ratios  []Ratio   `json:"ratios"`
	Figures []Figure  `json:"figures"`
}

// Ratio compares a rate of weir with the rate of a peer.
type Ratio struct {
	Name  string  `json:"name"`
	Title string  `json:"title"`
	Unit  string  `json:"unit"` // what is counted: records, jobs
	Weir  Side    `json:"weir"`
	Peer  Side    `json:"peer"`
	Value float64 `json:"ratio"` // median of weir over median of peer
	Goal  float64 `json:"goal"`  // reached if Value is at least this
	Met   bool    `json:"met"`
	Note  string  `json:"note,omitempty"`
	Error string  `json:"error,omitempty"` // why there is no value
}

// Side is one of the two systems of a Ratio. Rate, CPU and latencies are
// medians over the samples.
type Side struct {
	Name          string    `json:"name"`
	Rates         []float64 `json:"rates"` // units per second, one per sample
	Rate          float64   `json:"rate"`
	CPUPerMillion float64   `json:"cpu_s_per_million"` // CPU-seconds of the server process per million units
	P50us         float64   `json:"p50_us"`
	P99us         float64   `json:"p99_us"`
}

// Figure is one measured value with an upper bound.
type Figure struct {
	Name  string  `json:"name"`
	Title string  `json:"title"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Goal  float64 `json:"goal"` // reached if Value is at most this
	Met   bool    `json:"met"`
	Note  string  `json:"note,omitempty"`
	Error string  `json:"error,omitempty"`
}

// Median returns the middle of v, the mean of the two middles if v has an even
// length, and 0 if it is empty.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Judge sets Value and Met from the two sides.
func (r *Ratio) Judge() {
	if r.Error != "" || r.Peer.Rate <= 0 {
		return
	}
	r.Value = r.Weir.Rate / r.Peer.Rate
	r.Met = r.Value >= r.Goal
}

// Judge sets Met from Value.
func (f *Figure) Judge() { f.Met = f.Error == "" && f.Value <= f.Goal }

// Misses counts the rows whose goal was missed, none in a quick run, and those
// that could not be measured.
func (r *Report) Misses() (missed, failed int) {
	count := func(met bool, err string) {
		switch {
		case err != "":
			failed++
		case !met && !r.Quick:
			missed++
		}
	}
	for i := range r.Ratios {
		count(r.Ratios[i].Met, r.Ratios[i].Error)
	}
	for i := range r.Figures {
		count(r.Figures[i].Met, r.Figures[i].Error)
	}
	return missed, failed
}

// WriteJSON writes the report to path, making its directory.
func (r *Report) WriteJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}
