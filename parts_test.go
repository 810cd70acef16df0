package weir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A test that no part of make test runs is one that nobody misses when it fails.
func TestEveryPackageWithTestsIsInAPartOfMakeTest(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("scripts/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^test: .*\n\t@scripts/test\.sh (.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("Makefile: the parts of make test are not where this test looks for them")
	}
	// What runs the tests it is given: go test, and functions that do nothing else.
	runs := `go test`
	for _, f := range regexp.MustCompile(`(?m)^(\w+)\(\) \{ (.*) "\$@"; \}$`).FindAllSubmatch(script, -1) {
		if regexp.MustCompile(`^(` + runs + `)\b`).Match(f[2]) {
			runs += `|` + string(f[1])
		}
	}
	runner := regexp.MustCompile(`\b(` + runs + `)\b`)
	in := map[string]bool{} // folders, or folders and all below with /...
	for _, part := range strings.Fields(string(list[1])) {
		if part == "beside" || part == "then" {
			continue // how the parts are run
		}
		body := regexp.MustCompile(`(?ms)^` + part + `\(\) \{(.*?)\}$`).FindString(string(script))
		for line := range strings.Lines(body) {
			if !runner.MatchString(line) {
				continue
			}
			base := "."
			if cd := regexp.MustCompile(`cd (\S+) &&`).FindStringSubmatch(line); cd != nil {
				base = cd[1]
				in[base] = true
			}
			for _, word := range strings.Fields(line) {
				if word = strings.Trim(word, ";)}"); strings.HasPrefix(word, ".") {
					in[filepath.Join(base, word)] = true
				}
			}
		}
	}
	covered := func(dir string) bool {
		if in[dir] || in["..."] {
			return true
		}
		for d := dir; d != "."; d = filepath.Dir(d) {
			if in[d+"/..."] {
				return true
			}
		}
		return false
	}
	err = filepath.WalkDir(".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); path != "." && err == nil || e.Name() == "testdata" {
			return fs.SkipDir // a module of its own
		}
		if tests, _ := filepath.Glob(filepath.Join(path, "*_test.go")); len(tests) > 0 && !covered(path) {
			t.Errorf("no part of make test runs the tests of ./%s", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
