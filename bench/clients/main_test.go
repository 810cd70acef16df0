package main

import (
	"regexp"
	"testing"
)

// Every row measures something on both sides. Speed is not judged here.
func TestEveryRowOfTheClientsRuns(t *testing.T) {
	found, err := run(t.Context(), config{only: regexp.MustCompile("."), rounds: 1, records: 40, table: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != len(rows) {
		t.Errorf("%d rows, want %d", len(found), len(rows))
	}
	for _, r := range found {
		if len(r.ratios) != 1 || r.ratios[0] <= 0 || len(r.cpu) != 1 || r.cpu[0] <= 0 {
			t.Errorf("%s: ratios %v, of CPU %v", r.name(), r.ratios, r.cpu)
		}
	}
}
