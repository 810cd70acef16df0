package site

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// out is where the site of all tests is, built by the first that asks for it.
var out struct {
	sync.Once
	dir string
	err error
}

// built returns the folder of the site.
func built(t *testing.T) string {
	t.Helper()
	binary := weirtest.Binary(t)
	out.Do(func() {
		if out.dir, out.err = os.MkdirTemp("", "weir-site-"); out.err == nil {
			out.err = build(binary, out.dir)
		}
	})
	if out.err != nil {
		t.Fatal(out.err)
	}
	return out.dir
}

// build runs what make site runs.
func build(binary, dir string, env ...string) error {
	cmd := exec.Command("../scripts/site.sh", dir)
	cmd.Env = append(os.Environ(), append(env, "WEIR="+binary)...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("scripts/site.sh: %w\n%s", err, said)
	}
	return nil
}

func TestALinkThatLeadsNowhereFailsTheBuild(t *testing.T) {
	t.Parallel()
	docs := filepath.Join(t.TempDir(), "docs")
	if err := os.CopyFS(docs, os.DirFS("../docs")); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(docs, "guides", "workers.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	broken := []string{"../GONE.html", "../API.md#no-such-section", "../../gone/main.go"}
	for _, link := range broken {
		text = fmt.Appendf(text, "\nSee [this](%s).\n", link)
	}
	if err := os.WriteFile(page, text, 0o600); err != nil {
		t.Fatal(err)
	}
	err = build(weirtest.Binary(t), t.TempDir(), "SITE_DOCS="+docs)
	if err == nil {
		t.Fatal("the build succeeds")
	}
	for _, link := range broken {
		if !strings.Contains(err.Error(), link) {
			t.Errorf("the build does not name %s: %v", link, err)
		}
	}
}

// Every page is there, and of the commands each with its help.
func TestTheSiteHasEveryPageAndEveryCommand(t *testing.T) {
	t.Parallel()
	dir := built(t)
	err := filepath.WalkDir("../docs", func(path string, _ os.DirEntry, err error) error {
		if name, is := strings.CutSuffix(path, ".md"); is && err == nil {
			name = strings.TrimPrefix(name, "../docs/")
			if _, err := os.Stat(filepath.Join(dir, strings.Replace(name, "README", "index", 1)+".html")); err != nil {
				t.Errorf("%s has no page: %v", path, err)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	page := read(t, filepath.Join(dir, "COMMANDS.html"))
	_, list, _ := strings.Cut(weirtest.Must(t, "help"), "Available Commands:")
	commands := regexp.MustCompile(`(?m)^  ([a-z]+) `).FindAllStringSubmatch(list, -1)
	if len(commands) < 20 {
		t.Fatalf("weir help lists %d commands", len(commands))
	}
	for _, c := range append(commands, []string{"", "topic truncate"}, []string{"", "bench overload"}) {
		if !strings.Contains(page, `id="weir-`+strings.ReplaceAll(c[1], " ", "-")+`"`) && c[1] != "help" {
			t.Errorf("the page of commands lacks weir %s", c[1])
		}
	}
	if !strings.Contains(page, "--max-inflight-per-key") {
		t.Error("the page of commands lacks flags of serve")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
