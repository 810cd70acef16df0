package weir_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// texts returns the text files of the repository whose names end in one of the
// endings, by their path from the root.
func texts(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."),
			d.IsDir() && (d.Name() == "node_modules" || name == "bin" || name == "weir-data" || name == filepath.Join("bench", "out")):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		for _, ending := range endings {
			if strings.HasSuffix(name, ending) {
				text, err := os.ReadFile(name)
				all[filepath.ToSlash(name)] = string(text)
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no file ends in %v: the walk misses the repository", endings)
	}
	return all
}

// numbered returns what a page can be cited by: its sections, the rows of its
// tables and the items of its lists that have a number.
func numbered(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	known, section := map[string]bool{}, ""
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`^#+ (\d+(?:\.\d+)*)\.? `).FindStringSubmatch(line); m != nil {
			section = m[1]
			known[section] = true
		} else if m := regexp.MustCompile(`^(\d+)\. `).FindStringSubmatch(line); m != nil {
			known[section+"."+m[1]] = true
		} else if m := regexp.MustCompile(`^\| (\d+(?:\.\d+)+) \|`).FindStringSubmatch(line); m != nil {
			known[m[1]] = true
		}
	}
	if len(known) < 20 {
		t.Fatalf("%s has the numbers %v", page, known)
	}
	return known
}

// What a comment or a page refers to can be read by whoever has the repository.
func TestCitationsLeadSomewhere(t *testing.T) {
	pages := map[string]map[string]bool{
		"contract":  numbered(t, "docs/CONTRACT.md"),
		"scheduler": numbered(t, "docs/SCHEDULER.md"),
	}
	cited := regexp.MustCompile(`\b(contract|scheduler) (\d+(?:\.\d+)*)\b`)
	homeless := regexp.MustCompile(`(?i)// .*\bsections? \d|\bdocument \d`)
	paper := regexp.MustCompile(`[\w./-]*\w\.md\b`)
	markdown := texts(t, ".md")
	all := texts(t, ".go", ".md", ".sh", ".yml", "Makefile")
	delete(all, "docs_test.go")
	for name, text := range all {
		at := 0
		for line := range strings.Lines(text) {
			at++
			lower := strings.ToLower(line) // few lines need the expressions, which are slow
			if !slices.ContainsFunc([]string{"contract ", "scheduler ", "section", "document ", ".md"}, func(s string) bool { return strings.Contains(lower, s) }) {
				continue
			}
			where := fmt.Sprintf("%s:%d", name, at)
			for _, m := range cited.FindAllStringSubmatch(line, -1) {
				if !pages[m[1]][m[2]] {
					t.Errorf("%s: docs/%s.md has no %s", where, strings.ToUpper(m[1]), m[2])
				}
			}
			if m := homeless.FindString(line); m != "" {
				t.Errorf("%s: %q of what? Write contract N or scheduler N, or say what it says", where, m)
			}
			for _, m := range paper.FindAllString(line, -1) {
				m = strings.TrimPrefix(m, "//github.com/weirmq/weir/blob/main/")
				if !endsIn(markdown, m) {
					t.Errorf("%s: there is no %s in the repository", where, m)
				}
			}
		}
	}
}

// endsIn reports whether one of the paths is name or ends in it.
func endsIn(paths map[string]string, name string) bool {
	name = strings.TrimLeft(name, "./")
	for p := range paths {
		if p == name || strings.HasSuffix(p, "/"+name) {
			return true
		}
	}
	return false
}

// A page that names a test as its proof names one that there is; … stands for
// the end of a name.
func TestTheTestsThatPagesNameExist(t *testing.T) {
	known := []string{}
	for _, text := range texts(t, "_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(text, -1) {
			known = append(known, m[1])
		}
	}
	for name, text := range texts(t, ".md") {
		for _, m := range regexp.MustCompile(`\b(Test[A-Z]\w+)(…?)`).FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(known, func(k string) bool { return k == m[1] || m[2] != "" && strings.HasPrefix(k, m[1]) }) {
				t.Errorf("%s names %s, which is gone", name, m[0])
			}
		}
	}
}

// A test is named for what it shows, not after a list that it was taken from.
func TestTestsAreNamedForWhatTheyShow(t *testing.T) {
	coded := regexp.MustCompile(`(?m)^func (Test[A-Z]?\d{1,2}[A-Z_]\w*)`)
	for name, text := range texts(t, "_test.go") {
		for _, m := range coded.FindAllStringSubmatch(text, -1) {
			t.Errorf("%s: %s: say what it shows", name, m[1])
		}
	}
}

// Of a queue the alerts tell that nobody works on it, and of dead letters nobody does.
func TestNoPageMakesAQueueOfDeadLetters(t *testing.T) {
	queue := regexp.MustCompile(`topic create .*--type queue.*/[\w.-]+\.dlq\b`)
	for name, text := range texts(t, ".md") {
		for line := range strings.Lines(text) {
			if queue.MatchString(line) {
				t.Errorf("%s: %s", name, line)
			}
		}
	}
}

// A code of weir doctor is stable, for scripts: the page has a place for each, and for no other.
func TestThePageHasEveryFindingOfTheDoctor(t *testing.T) {
	page := texts(t, ".md")["docs/OPERATIONS.md"]
	_, table, _ := strings.Cut(page, "\n| | findings |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	said := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z]+(?:_[a-z]+)*)`").FindAllStringSubmatch(table, -1) {
		said[m[1]] = true
	}
	found := map[string]bool{}
	for name, text := range texts(t, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`\bCode: +"([a-z_]+)", Severity:|(?m)^\t"([a-z_]+)": +\{backend\.Of|\bd\.add\(backend\.Of\w+, "([a-z_]+)"`).FindAllStringSubmatch(text, -1) {
			found[m[1]+m[2]+m[3]] = true
		}
	}
	if len(found) < 40 {
		t.Fatalf("the sources have %d findings: the search misses them", len(found))
	}
	for code := range found {
		if !said[code] {
			t.Errorf("docs/OPERATIONS.md does not say what the finding %s is", code)
		}
	}
	for code := range said {
		if !found[code] {
			t.Errorf("docs/OPERATIONS.md has the finding %s, which nothing reports", code)
		}
	}
}

// Whoever guards a service finds each status that HTTPStatus may make of an error.
func TestTheGuideHasEveryStatus(t *testing.T) {
	statuses := func(text, row string) (all []string) {
		for _, m := range regexp.MustCompile(row).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	want := statuses(texts(t, "status.go")["status.go"], `(?m)^//\t.+ (\d{3})\b`)
	got := statuses(texts(t, ".md")["docs/guides/web-service.md"], `(?m)^\| [^|]+ \| (\d{3}) \|`)
	if len(want) < 5 || !slices.Equal(got, want) {
		t.Errorf("docs/guides/web-service.md has the statuses %v, HTTPStatus makes %v", got, want)
	}
}

// What a page says to type can be pasted into any shell. To zsh, a comment behind a command is more
// arguments, and an address with a question mark in it a pattern that no file matches.
func TestCommandsOfPagesCanBePasted(t *testing.T) {
	box := regexp.MustCompile("(?ms)^```sh\n.*?^```$|^\n(?: {4}\\S[^\n]*\n)+")
	command := regexp.MustCompile(`^ *(?:[A-Z_]+=\S+ )*(?:bin/weir|weir|curl|make|git|go|cd|cat|cp|source|export|time|pip|python3|seq|printf|echo|umask|mkdir)\b`)
	quoted := regexp.MustCompile(`'[^']*'|"[^"]*"|\$\?`)
	commands := 0
	for name, text := range texts(t, ".md") {
		for _, b := range box.FindAllString(text, -1) {
			for line := range strings.Lines(b) {
				if !command.MatchString(line) {
					continue
				}
				commands++
				if bare := quoted.ReplaceAllString(line, ""); strings.Contains(bare, " #") || strings.ContainsAny(bare, "?") {
					t.Errorf("%s: %s", name, line)
				}
			}
		}
	}
	if commands < 100 {
		t.Fatalf("the pages have %d commands: the search misses them", commands)
	}
}
