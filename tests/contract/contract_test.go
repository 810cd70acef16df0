package contract

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// inScope returns the sections of docs/CONTRACT.md that must have cases: all
// those that are not divided any further.
func inScope(t *testing.T) (numbers []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/CONTRACT.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (\d+(?:\.\d+)?)\.? `).FindAllStringSubmatch(string(text), -1) {
		if last := len(numbers) - 1; last >= 0 && strings.HasPrefix(m[1], numbers[last]+".") {
			numbers = numbers[:last]
		}
		numbers = append(numbers, m[1])
	}
	return numbers
}

// minCases guards against files that silently stop being read.
const minCases = 1900

func readCases(t *testing.T) (cases []*Case, files int) {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		c, err := ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, c...)
	}
	return cases, len(paths)
}

func stamp() string { return "c" + fmt.Sprintf("%x", time.Now().UnixMilli()&0xffffff) }

func TestContract(t *testing.T) {
	cases, files := readCases(t)
	base := os.Getenv("WEIR_CONTRACT_URL")
	started := &servers{t: t, all: map[string]*own{}}
	runner := NewRunner(stamp())
	runner.Record(t)
	t.Cleanup(runner.Close)
	ran, left := 0, 0
	for _, c := range cases {
		if base != "" && c.NeedsOwn() {
			left++
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(c.File, ".txt")+"/"+c.Name, func(t *testing.T) {
			if base != "" {
				runner.Run(t, c, foreign(base))
				return
			}
			runner.Run(t, c, started.get(c.Env))
		})
	}
	if left > 0 {
		t.Logf("%d cases need a server of their own and were left out", left)
	}
	fmt.Printf("contract: %d cases in %d files, sections %s\n", ran, files, strings.Join(sections(cases), " "))
}

// sections are the main sections that the cases cover, in order.
func sections(cases []*Case) []string {
	seen := map[string]bool{}
	for _, c := range cases {
		for _, s := range c.Sections {
			main, _, _ := strings.Cut(s, ".")
			seen[main] = true
		}
	}
	var list []string
	for n := range 20 {
		if s := fmt.Sprint(n); seen[s] {
			list = append(list, s)
		}
	}
	return list
}

func TestEverySectionOfTheContractHasACase(t *testing.T) {
	inScope := inScope(t)
	cases, _ := readCases(t)
	count := map[string]int{}
	for _, c := range cases {
		for _, s := range c.Sections {
			if !slices.Contains(inScope, s) {
				t.Errorf("%s:%d: §%s is not a section in scope", c.File, c.Line, s)
			}
			count[s]++
		}
	}
	for _, s := range inScope {
		if count[s] == 0 {
			t.Errorf("§%s has no case", s)
		}
	}
	if len(cases) < minCases {
		t.Errorf("%d cases, want at least %d", len(cases), minCases)
	}
}

func TestCaseNamesAreUnique(t *testing.T) {
	cases, _ := readCases(t)
	seen := map[string]int{}
	for _, c := range cases {
		key := c.File + " " + c.Name
		if line := seen[key]; line > 0 {
			t.Errorf("%s:%d: the same name as line %d: %s", c.File, c.Line, line, c.Name)
		}
		seen[key] = c.Line
	}
}

var exampleBlock = regexp.MustCompile("(?ms)^```http\n(.*?)^```$")

// TestExamplesOfTheReference executes the examples of docs/API.md from top to
// bottom on one fresh server.
func TestExamplesOfTheReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/API.md")
	if err != nil {
		t.Fatal(err)
	}
	target := (&servers{t: t, all: map[string]*own{}}).get(nil)
	runner := NewRunner("doc")
	runner.Record(t)
	t.Cleanup(runner.Close)
	blocks := exampleBlock.FindAllSubmatchIndex(text, -1)
	if len(blocks) < 10 {
		t.Errorf("%d examples, want at least 10", len(blocks))
	}
	for _, b := range blocks {
		line := strings.Count(string(text[:b[2]]), "\n") + 1
		c, err := ParseBlock("docs/API.md", line, string(text[b[2]:b[3]]))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) { runner.Run(t, c, target) })
	}
}
