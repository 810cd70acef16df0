package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandsOf returns the words of each call of weir in the boxes of a page.
func commandsOf(page string) (all [][]string) {
	box := regexp.MustCompile("(?ms)^```sh\n.*?^```$|^\n(?: {4}\\S[^\n]*\n)+")
	word := regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"|&;<>()])+|[|&;<>()]`)
	for _, b := range box.FindAllString(page, -1) {
		for line := range strings.Lines(strings.ReplaceAll(b, "\\\n", " ")) {
			var call []string // nil while no weir is called
			end := func() {
				if len(call) > 0 {
					all = append(all, call)
				}
				call = nil
			}
			for _, w := range word.FindAllString(line, -1) {
				switch {
				case len(w) == 1 && strings.Contains("|&;<>()", w):
					end()
				case call == nil && (w == "weir" || w == "bin/weir"):
					call = []string{}
				case call != nil:
					call = append(call, strings.Trim(w, `'"`))
				}
			}
			end()
		}
	}
	return all
}

// What a page says to type is a command with flags, values and arguments that it takes.
func TestCommandsOfThePagesAreUnderstood(t *testing.T) {
	t.Setenv("WEIR_URL", "http://127.0.0.1:1")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if res := runWeir(t, "", "context", "set", "prod", "http://127.0.0.1:1"); res.err != nil { // a name of the pages
		t.Fatal(res.err)
	}
	calls := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/guides/*.md", "../../clients/*/*.md"} {
		pages, err := filepath.Glob(pattern)
		if err != nil || len(pages) == 0 {
			t.Fatal(pattern, err)
		}
		for _, page := range pages {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range commandsOf(string(text)) {
				calls++
				for i, w := range call {
					if w == "URL" || w == "URL…" {
						call[i] = "http://127.0.0.1:1/x"
					}
				}
				cmd, rest, err := newRoot().Find(call)
				if err == nil {
					cmd.SetContext(t.Context())
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err != nil || !cmd.Runnable() {
					t.Errorf("%s: weir %s: %v", filepath.Base(page), strings.Join(call, " "), err)
				}
			}
		}
	}
	if calls < 80 {
		t.Fatalf("the pages have %d calls of weir: the search misses them", calls)
	}
}
