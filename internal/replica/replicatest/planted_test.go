package replicatest

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// plantedVar names the flaw that a run of this test binary carries.
const plantedVar = "REPLICATEST_PLANTED"

// flaws are what a log or files can do wrong, and the cases that have to find it.
var flaws = map[flaw]string{
	"success is told before it is stored":         "entries_come_back",
	"a term is given twice":                       "each_term_is_above",
	"the oldest term is called the newest":        "the_newest_term",
	"a term begins with something in it":          "entries_come_back",
	"old terms are accepted":                      "an_old_leader_is_fenced",
	"a new leader does not fence until it writes": "an_old_leader_is_fenced",
	"the fenced are told nothing":                 "three_leaders",
	"a leader drops the last entry":               "nothing_is_added_in_front|three_leaders",
	"entries overtake each other":                 "stored_is_called_in_order|entries_behind_a_hole",
	"the newest entry cannot be read":             "entries_come_back",
	"the end stays the end":                       "the_end_is_an_end",
	"positions are off by one":                    "positions_told",
	"an entry is kept":                            "an_entry_is_not_kept",
	"empty entries vanish":                        "empty_entries_and_large",
	"large entries are cut":                       "empty_entries_and_large",
	"anybody may append":                          "an_append_without_a_lead",
	"contexts are not looked at":                  "a_context_that_has_ended",
	"closing does nothing":                        "a_closed_log",
	"an entry is there twice":                     "once_when_its_answer_is_lost",
	"a lost call is called done":                  "once_when_the_call_is_lost",
	"a lost answer is an error":                   "once_when_its_answer_is_lost",
	"a busy store is an error":                    "once_when_the_store_is_busy",
	"there is no window":                          "no_more_than_the_window",
	"a leader goes on behind an error":            "nothing_counts_behind_an_error",
	"trim removes nothing":                        "trim_removes_what_is_in_front",
	"trim removes one too many":                   "trim_removes_what_is_in_front",
	"what was trimmed is skipped":                 "trim_removes_what_is_in_front",
	"positions begin again after a trim":          "trimming_too_much",
	"the end is behind the last entry":            "the_end_is_an_end",
	"what was trimmed is no end":                  "trimming_too_much",
	"a torn file is there":                        "a_torn_upload",
	"a file of the wrong size is taken":           "a_torn_upload",
	"files are not replaced":                      "a_file_is_replaced",
	"a missing file is empty":                     "a_file_that_is_not_there",
	"lists have no prefix":                        "files_are_listed",
	"lists are out of order":                      "files_are_listed",
	"deleting twice is an error":                  "deleting_twice",
	"deleting does nothing":                       "deleting_twice",
}

func TestMemoryPassesTheSuite(t *testing.T) {
	var mu sync.Mutex
	copies := map[string]*Memory{}
	open := func(name string) *Handle {
		mu.Lock()
		defer mu.Unlock()
		if copies[name] == nil {
			copies[name] = NewMemory()
		}
		return copies[name].open(flaw(os.Getenv(plantedVar)))
	}
	Run(t, Harness{
		Log:    func(_ testing.TB, name string) replica.Log { return open(name) },
		Faulty: func(_ testing.TB, name string) (replica.Log, Inject) { h := open(name); return h, h.Inject },
		Files:  func(_ testing.TB, name string) replica.Files { return open(name).Files() },
		Large:  1 << 20,
	})
}

func TestSuiteFindsPlantedFlaws(t *testing.T) {
	if os.Getenv(plantedVar) != "" {
		t.Fatal("a planted run must be of one case")
	}
	if len(flaws) < 25 {
		t.Errorf("only %d flaws are planted", len(flaws))
	}
	for _, name := range slices.Sorted(maps.Keys(flaws)) {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			run := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestMemoryPassesTheSuite$/"+flaws[name])
			run.Env = append(os.Environ(), plantedVar+"="+string(name))
			out, err := run.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "--- FAIL") || strings.Contains(string(out), "panic:") {
				t.Errorf("the cases %s did not find it: %v\n%s", flaws[name], err, out)
			}
		})
	}
}
