package contract

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/postgrestest"
	"github.com/weirmq/weir/tests/s3test"
)

// copies are the stores that can hold the copy of a server's log. Each is started and
// returns the URLs of copies by their names.
var copies = []struct {
	store string
	start func(t testing.TB) func(name string) string
}{
	{"file", func(t testing.TB) func(string) string {
		return func(string) string { return "file://" + t.TempDir() }
	}},
	{"s3", func(t testing.TB) func(string) string {
		s := s3test.Start(t)
		return func(name string) string { return s3test.URL(s.Addr, name) }
	}},
	{"postgres", func(t testing.TB) func(string) string {
		s := postgrestest.Start(t, postgrestest.Options{Settings: map[string]string{"max_connections": "300"}})
		return func(name string) string { return s.URL(s.Addr()) + "&log=" + name + bases(t) }
	}},
	{"kafka", func(t testing.TB) func(string) string {
		c := kafkatest.StartCluster(t, kafkatest.Options{ShareVersion: kafkatest.Without})
		return func(name string) string { return c.URL() + "/" + name + "?" + bases(t) }
	}},
}

// bases says where a copy whose log is in another store keeps its bases.
func bases(t testing.TB) string { return "&base=" + url.QueryEscape("file://"+t.TempDir()) }

// aCopyConcerns are the files about what a copy could change: when a write counts and is
// seen, and what a restart keeps.
var aCopyConcerns = []string{"08-durability.txt", "11-idempotency.txt", "19-lifecycle.txt", "21-visibility.txt"}

// TestContractWithACopy runs cases against servers that keep a copy in a directory.
// WEIR_CONTRACT_COPIED=1 runs all that there are, on each store.
func TestContractWithACopy(t *testing.T) {
	all := os.Getenv("WEIR_CONTRACT_COPIED") == "1"
	if all {
		t.Cleanup(s3test.Clean)
	}
	for _, c := range copies {
		if !all && c.store != "file" {
			continue
		}
		t.Run(c.store, func(t *testing.T) {
			address := c.start(t)
			for _, mode := range []string{"async", "sync"} {
				t.Run(mode, func(t *testing.T) { runCopied(t, all, mode, address) })
			}
		})
	}
}

func runCopied(t *testing.T, all bool, mode string, address func(name string) string) {
	cases, _ := readCases(t)
	n, ran := 0, 0
	started := &servers{t: t, all: map[string]*own{}, copied: func() []string {
		n++
		return []string{"WEIR_REPLICA=" + address(fmt.Sprint(mode, n)), "WEIR_REPLICA_SYNC=" + fmt.Sprint(mode == "sync"), "AWS_ACCESS_KEY_ID=weir", "AWS_SECRET_ACCESS_KEY=weir"}
	}}
	runner := NewRunner(stamp())
	runner.Record(t)
	t.Cleanup(runner.Close)
	for _, c := range cases {
		if !all && !slices.Contains(aCopyConcerns, c.File) {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(c.File, ".txt")+"/"+c.Name, func(t *testing.T) { runner.Run(t, c, started.get(c.Env)) })
	}
	if least := 40; ran < least || all && ran < minCases {
		t.Errorf("%d cases were run", ran)
	}
	if all {
		fmt.Printf("contract with a copy, %s: %d cases on %d servers\n", t.Name(), ran, n)
	}
}
