package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// A server takes a new log level from its file while it runs, names what needs a restart, and
// stays as it is if the file is wrong.
func TestAServerReadsItsFileAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log_level: warn\nmax_limit: 500\nmax_body_bytes: 1MiB\nworkers: 3 # of another command\n")
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_CONFIG=" + path, "WEIR_LAG_WRAN=1", "WEIR_SERVICE_HOST=10.0.0.1"}})
	reload := func(said string) {
		t.Helper()
		if err := srv.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the log says "+said, func() bool { return strings.Contains(srv.Stderr(), said) })
	}
	if text := srv.Stderr(); strings.Contains(text, "level=INFO") || strings.Count(text, "level=WARN") != 1 ||
		!strings.Contains(text, `msg="unknown environment variable WEIR_LAG_WRAN, did you mean WEIR_LAG_WARN?"`) {
		t.Errorf("at the level warn the log is\n%s", text)
	}
	if a := ask(t, "POST", srv.URL+"/v0/topics/t", `{"records":[{"data":"`+strings.Repeat("x", 1<<20)+`"}]}`); a.status != 413 {
		t.Errorf("a body above max_body_bytes: %d", a.status)
	}
	write("log_level: loud\n")
	reload(`line 1, key log_level: \"loud\" is not debug, info, warn or error`)
	write("log_level: info\nmax_limit: 400\nmax_body_bytes: 1MiB\n")
	reload(`msg="these settings have changed and need a restart" keys=[max_limit]`)
	eventually(t, "the new level is in effect", func() bool { return strings.Contains(srv.Stderr(), `level=INFO msg="settings reloaded"`) })
	if code := srv.Stop(); code != 0 || !strings.Contains(srv.Stderr(), "level=INFO msg=stopped") {
		t.Errorf("the server ends with %d:\n%s", code, srv.Stderr())
	}
}

// A flag beats the environment, which beats the file, in every command that reads one; an
// error names the line.
func TestAWrongFileEndsACommandWithItsLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte("# settings\nport: 0\nqueue_max_depth: many\nworkers: none\nmax_topics: 1.5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"serve":                                  `, line 5, key max_topics: "1.5" is not a whole number from 0 to`,
		"publish http://127.0.0.1:1/x":           `, line 3, key queue_max_depth: "many" is not a whole number from 1 to`,
		"work http://127.0.0.1:1/x -- true":      `, line 4, key workers: "none" is not a whole number from 1 to 10000`,
		"publish --config /gone http://h:1/x":    "config file: open /gone",
		"publish --queue-max-depth=1 http://h:1": `, line 3, key queue_max_depth`, // a file has to be right even where it is beaten
	} {
		args := strings.Fields(line)
		_, stderr, code := weirtest.Run(t, []string{"WEIR_CONFIG=" + path, "WEIR_DATA_DIR=" + t.TempDir()}, args...)
		if code != 2 || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || !strings.HasSuffix(stderr, "; see `weir "+args[0]+" --help`\n") {
			t.Errorf("weir %s: exit code %d, %s", line, code, stderr)
		}
	}
}

// The lag card of a server goes by the limits of the file that producers have theirs from.
func TestTheDashboardOfAServerHasTheLimitsOfItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("lag_warn: 3\nlag_pause: 7\n")
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_CONFIG=" + path}})
	p := &page{t: t, url: srv.URL}
	limits := func(text string) {
		t.Helper()
		p.live(text, func(now string) bool { return strings.Contains(now, text) })
	}
	limits(`"lag_warn":3,"lag_pause":7,`)
	write("lag_warn: 30\nlag_pause: off\n")
	if err := srv.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	limits(`"lag_warn":30,"lag_pause":-1,`)
}
