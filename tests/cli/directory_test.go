package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// Whoever finds a file of weir's, in its data directory or in a copy, finds its name in the page's
// table, which says what it is and what may be done with it.
func TestThePagesNameEveryFileOfADirectoryAndOfACopy(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_REPLICA=file://" + at, "WEIR_REPLICA_BASE=1s", "WEIR_WEBHOOKS=on"}})
	send(t, "POST", s.URL+"/v0/topics/jobs", `{"records":[{"data":1,"delay_ms":3600000}],"config":{"type":"queue"}}`)
	send(t, "POST", s.URL+"/v0/tokens", `{"topics":["jobs"]}`)
	send(t, "PUT", s.URL+"/v0/webhooks/hook", `{"topic":"jobs","url":"https://example.com/"}`)
	send(t, "POST", s.URL+"/admin/backup", "") // has its place in the directory made
	named := func(where, page, heading string) {
		t.Helper()
		table := section(t, page, heading)
		entries, err := os.ReadDir(where)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !slices.ContainsFunc(table, func(name string) bool { return name == e.Name() || strings.HasPrefix(name, e.Name()+"/") }) {
				t.Errorf("%q of %s does not name %s", heading, page, e.Name())
			}
		}
	}
	weirtest.Eventually(t, "the copy to have a base", func() bool {
		bases, err := os.ReadDir(filepath.Join(at, "base"))
		return err == nil && len(bases) > 0
	})
	named(s.Dir, "OPERATIONS.md", "## The data directory")
	named(at, "REPLICA.md", "## What is in it")
	s.Stop()
	named(s.Dir, "OPERATIONS.md", "## The data directory")
}

// section returns the names in the first column of the tables below a heading.
func section(t *testing.T, page, heading string) (names []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, below, found := strings.Cut(string(text), heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", page, heading)
	}
	below, _, _ = strings.Cut(below, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(below, -1) {
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			names = append(names, name[1])
		}
	}
	return names
}
