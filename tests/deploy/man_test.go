package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// pages writes the manual pages and returns their files.
func pages(t *testing.T) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "man")
	weirtest.Must(t, "man", dir)
	files, err := filepath.Glob(dir + "/*.1")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d pages: %v", len(files), err)
	}
	return files
}

func TestTheManualPages(t *testing.T) {
	t.Parallel()
	files, again := pages(t), pages(t)
	for i, file := range files {
		text := read(t, file)
		if text != read(t, again[i]) {
			t.Errorf("%s comes out differently each time", filepath.Base(file))
		}
		for _, local := range []string{filepath.Dir(file), weirtest.Binary(t), os.Getenv("HOME") + "/"} {
			if local != "/" && strings.Contains(text, local) {
				t.Errorf("%s names %s", filepath.Base(file), local)
			}
		}
	}
	for _, name := range []string{"weir.1", "weir-topic-rm.1", "weir-bench-load.1"} {
		if !slices.ContainsFunc(files, func(file string) bool { return filepath.Base(file) == name }) {
			t.Errorf("there is no %s", name)
		}
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Fatal("mandoc is missing: make deps installs it")
	}
	// A page has no date, so that it is the same at each build, and its name is one line.
	var wrong []string
	out, _ := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "style"}, files...)...).CombinedOutput() // its code is the worst level
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "missing date, using \"\": TH") && !strings.Contains(line, ":3:") {
			wrong = append(wrong, line)
		}
	}
	if len(wrong) > 0 {
		t.Errorf("mandoc:\n%s", strings.Join(wrong[:min(len(wrong), 20)], ""))
	}
}

// A release makes what its packages hold: the folders are those of make man.
func TestAReleaseHasManualPagesAndCompletions(t *testing.T) {
	t.Parallel()
	doc := documents(t, root+"goreleaser.yaml")[0]
	doc.want(t, "[make man]", "before", "hooks")
	recipe := read(t, "../../Makefile")
	var shells []string
	for _, c := range doc.at("nfpms", 0, "contents").list() {
		src := c.at("src").String()
		switch {
		case src == "bin/man/*.1":
			if !strings.Contains(recipe, "weir man bin/man\n") || c.at("dst").String() != "/usr/share/man/man1/" {
				t.Errorf("make man writes no %s", src)
			}
		case strings.HasPrefix(src, "bin/completions/weir."):
			shells = append(shells, strings.TrimPrefix(filepath.Ext(src), "."))
		}
	}
	if got := strings.Join(shells, " "); got != "bash zsh fish" || !strings.Contains(recipe, "for shell in "+got+";") {
		t.Errorf("completions for %q", got)
	}
	for _, shell := range shells {
		if script := weirtest.Must(t, "completion", shell); !bytes.Contains([]byte(script), []byte("__complete")) {
			t.Errorf("no completion for %s", shell)
		}
	}
	if files := doc.at("archives", 0, "files").String(); !strings.Contains(files, "bin/man/*.1") || !strings.Contains(files, "bin/completions/*") {
		t.Errorf("archives have %s", files)
	}
}
