package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// Who types what the guide says has the topics that its bridge relies on, and a file that is sent
// twice is stored once.
func TestWhatTheGuideForOtherBrokersSaysWorks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/from-topics.md")
	if err != nil {
		t.Fatal(err)
	}
	s := weirtest.Start(t, weirtest.Options{})
	script := "set -eu\nPATH=\"$BIN:$PATH\"\n"
	for _, box := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		script += strings.ReplaceAll(box[1], "http://127.0.0.1:4000", s.URL)
		if strings.Contains(box[1], "--resume") {
			script += strings.ReplaceAll(box[1], "http://127.0.0.1:4000", s.URL) // started again
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "orders.ndjson"), []byte("{\"id\":1}\n{\"id\":2}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(weirtest.Binary(t), filepath.Join(dir, "weir")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "BIN="+dir, "XDG_CONFIG_HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	for _, topic := range []string{"orders", "billing"} {
		if got := send(t, "GET", s.URL+"/v0/topics/"+topic, ""); !strings.Contains(got, `"count":2,`) {
			t.Errorf("two lines that were sent twice: %s", got)
		}
	}
	// The bridge writes to orders, so the keys that it repeats are remembered there.
	if got := send(t, "GET", s.URL+"/v0/topics/orders", ""); strings.Contains(got, `"idempotency_window_ms":120000,`) {
		t.Errorf("a bridge that was away for longer than two minutes stores again what it repeats: %s", got)
	}
}

// The line that loads the completions is another one in each shell; the page has that of its help.
func TestThePageLoadsTheCompletionsOfEachShell(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		m := regexp.MustCompile(`current shell session:\s+(.+)\n`).FindStringSubmatch(must(t, "completion", shell, "--help"))
		if m == nil || !strings.Contains(string(page), "\n    "+m[1]) {
			t.Errorf("%s: docs/OPERATIONS.md has no line like %q", shell, m)
		}
	}
}
