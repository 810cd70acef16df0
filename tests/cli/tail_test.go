package cli

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

func TestTailFollowsOverKillsAndRestartsWithoutAGapOrARepeat(t *testing.T) {
	lines := accessLog(t)
	srv := weirtest.Start(t, weirtest.Options{})
	url := srv.URL + "/log"
	put(t, srv, "log", `{"type":"log"}`)
	tail := run(t, "tail", url, "--from", "0")
	load := run(t, "publish", "--guard", "off", "--batch", "1", url, "testdata/access.log")
	printed := func() int { return strings.Count(tail.Stdout.String(), "\n") }
	back := func() int { return strings.Count(tail.Stderr.String(), "the server is back") }
	for round := range 3 {
		more := printed() + 50
		// What it prints may be from before: only when it is back can it lose the server again.
		eventually(t, "tail goes on", func() bool { return printed() >= min(more, len(lines)) && back() >= round })
		if round == 1 {
			srv.Stop()
		} else {
			srv.Kill()
		}
		restartInPlace(srv)
	}
	load.Succeed()
	eventually(t, "tail has printed everything and is back", func() bool {
		return printed() >= len(lines) && back() >= 3
	})
	tail.Signal(syscall.SIGINT)
	if got := tail.Succeed(); got != strings.Join(lines, "\n")+"\n" {
		t.Errorf("tail printed %d lines that differ from the %d published", strings.Count(got, "\n"), len(lines))
	}
	told := tail.Stderr.String()
	if away := strings.Count(told, "waiting for the server"); away != 3 || back() != 3 || strings.Count(told, "\n") != 6 {
		t.Errorf("tail told of 3 restarts:\n%s", told)
	}
}

func TestTailEndsWithItsTopic(t *testing.T) {
	srv := weirtest.Start(t, weirtest.Options{})
	url := srv.URL + "/log"
	must(t, "publish", "--type", "log", url, writeLines(t, []string{"only"}))
	tail := run(t, "tail", url, "--from", "0")
	eventually(t, "tail has printed", func() bool { return tail.Stdout.String() == "only\n" })
	if !request(t, http.MethodDelete, srv.URL+"/v0/topics/log", "", new(struct{})) {
		t.Fatal("the topic could not be deleted")
	}
	if code := tail.Wait(); code != 1 || !strings.Contains(tail.Stderr.String(), `topic "log" was deleted`) {
		t.Errorf("code %d: %s", code, tail.Stderr.String())
	}
}

func TestAnUnknownLogFormatEndsTheStart(t *testing.T) {
	_, stderr, code := weirtest.Run(t, []string{"WEIR_LOG_FORMAT=xml", "WEIR_DATA_DIR=" + t.TempDir()}, "serve", "--port", "0")
	if code != 1 || !strings.Contains(stderr, `WEIR_LOG_FORMAT="xml": want text or json`) {
		t.Errorf("code %d: %s", code, stderr)
	}
}
