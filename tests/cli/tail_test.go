package cli

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

func TestTailFollowsOverKillsAndRestartsWithoutAGapOrARepeat(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
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
		srv.Restart()
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

// Who follows with a key is not concerned by what else that key may do.
func TestTailGoesOnWhenItsKeyGetsOtherRights(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys.json")
	key := func(name, scopes string) string {
		return "://:" + strings.TrimSpace(must(t, "key", "new", name, "--keys-file", keys, "--scopes", scopes)) + "@"
	}
	reader, writer := key("reader", "read"), key("writer", "write,admin")
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_KEYS_FILE=" + keys}})
	url := srv.URL + "/log"
	publish := func(line string) {
		must(t, "publish", "--guard=off", "--type=log", strings.Replace(url, "://", writer, 1), writeLines(t, []string{line}))
	}
	publish("first")
	tail := run(t, "tail", strings.Replace(url, "://", reader, 1), "--from", "0")
	eventually(t, "the first line", func() bool { return tail.Stdout.String() == "first\n" })
	text, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	more := strings.Replace(string(text), `"read"`, `"read", "delete"`, 1)
	if err := errors.Join(os.WriteFile(keys+".new", []byte(more), 0o600), os.Rename(keys+".new", keys)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { return strings.Contains(tail.Stderr.String(), "the server is back") || !tail.Running() })
	publish("second")
	eventually(t, "the second line", func() bool { return tail.Stdout.String() == "first\nsecond\n" || !tail.Running() })
	must(t, "key", "revoke", "reader", "--keys-file", keys)
	tail.Wait()
	if got := tail.Stdout.String(); got != "first\nsecond\n" || !strings.Contains(tail.Stderr.String(), "the key is not known to this server") {
		t.Errorf("it printed %q and told:\n%s", got, tail.Stderr.String())
	}
}

// A name that is misspelt is no empty stream.
func TestTailOfAStreamThatIsNotThere(t *testing.T) {
	t.Parallel()
	url := redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir")
	for _, args := range [][]string{nil, {"--from=0"}, {"--last=3"}} {
		out, stderr, code := weirtest.Run(t, nil, append([]string{"tail", "--no-follow", url}, args...)...)
		if code != 1 || out != "" || stderr != "weir: stream \"jobs\" does not exist\n" {
			t.Errorf("%v: exit code %d, %s%s", args, code, out, stderr)
		}
	}
	p := run(t, "tail", url)
	eventually(t, "it says so", func() bool { return strings.Contains(p.Stderr.String(), `stream "jobs" does not exist; waiting`) })
	must(t, "publish", url, writeLines(t, []string{"first"}))
	eventually(t, "the first message", func() bool { return p.Stdout.String() == "first\n" })
	must(t, "work", url, "--until-empty=10ms", "--", "true")
	if out := must(t, "tail", "--no-follow", url); out != "" {
		t.Errorf("behind the end: %q", out)
	}
}

func TestTailEndsWithItsTopic(t *testing.T) {
	t.Parallel()
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

// A number behind the head is most often mistyped, or of an older topic of the
// name: tail says where the topic ends instead of telling of a loss, prints
// nothing again, and goes on with what comes.
func TestTailFromBeyondTheHeadSaysWhereTheHeadIs(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	dir := "file://" + t.TempDir() + "?topic=log"
	for name, url := range map[string]string{"server": srv.URL + "/log", "directory": dir} {
		must(t, "publish", url, writeLines(t, []string{"one", "two"}))
		end := run(t, "tail", url, "--from", "99", "--no-follow")
		if code := end.Wait(); code != 1 || end.Stdout.String() != "" {
			t.Errorf("%s: code %d, printed %q", name, code, end.Stdout.String())
		}
		for _, part := range []string{"--from 99", "head", "2", "--from 0"} {
			if told := end.Stderr.String(); !strings.Contains(told, part) || strings.Contains(told, "recreated") || strings.Contains(told, "again") {
				t.Errorf("%s: tail said %q, without %q", name, told, part)
			}
		}
		atHead := run(t, "tail", url, "--from", "2", "--no-follow")
		if code := atHead.Wait(); code != 0 || atHead.Stdout.String() != "" || atHead.Stderr.String() != "" {
			t.Errorf("%s: at the head: code %d: %s", name, code, atHead.Stderr.String())
		}
	}

	redis := redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir")
	must(t, "publish", redis, writeLines(t, []string{"one", "two"}))
	const future = "99999999999999-0"
	end := run(t, "tail", redis, "--from", future, "--no-follow")
	if code, told := end.Wait(), end.Stderr.String(); code != 1 || end.Stdout.String() != "" || !strings.Contains(told, "--from "+future+" is beyond") || strings.Contains(told, "recreated") {
		t.Errorf("redis: code %d, printed %q, said %q", code, end.Stdout.String(), told)
	}
	onRedis := run(t, "tail", redis, "--from", future, "--count", "1")
	eventually(t, "tail has said that it waits", func() bool { return strings.Contains(onRedis.Stderr.String(), "waiting for the next") })
	must(t, "publish", redis, writeLines(t, []string{"three"}))
	if code := onRedis.Wait(); code != 0 || onRedis.Stdout.String() != "three\n" {
		t.Errorf("redis: code %d, printed %q and %q", code, onRedis.Stdout.String(), onRedis.Stderr.String())
	}

	url := srv.URL + "/log"
	tail := run(t, "tail", url, "--from", "99", "--count", "1")
	eventually(t, "tail has said that it waits", func() bool { return strings.Contains(tail.Stderr.String(), "waiting for 3") })
	must(t, "publish", url, writeLines(t, []string{"three"}))
	if code := tail.Wait(); code != 0 || tail.Stdout.String() != "three\n" || strings.Count(tail.Stderr.String(), "\n") != 1 {
		t.Errorf("code %d, printed %q and %q", code, tail.Stdout.String(), tail.Stderr.String())
	}
}

func tailReadsATopic(t *testing.T, broker *kafkatest.Broker) {
	t.Parallel()
	url := broker.URL() + "/log"
	must(t, "publish", url+"?partitions=1", writeLines(t, []string{"one", "two", "three"}))
	if got := must(t, "tail", url, "--from", "0", "--no-follow"); got != "one\ntwo\nthree\n" {
		t.Errorf("from the start: %q", got)
	}
	if got := must(t, "tail", url, "--last", "1", "--no-follow"); got != "three\n" {
		t.Errorf("the last: %q", got)
	}
	tail := run(t, "tail", url, "--from", "0:1", "--count", "2")
	eventually(t, "tail has printed", func() bool { return tail.Stdout.String() == "three\n" })
	must(t, "publish", url, writeLines(t, []string{"four"}))
	if got := tail.Succeed(); got != "three\nfour\n" {
		t.Errorf("from 0:1: %q", got)
	}
	if _, stderr, code := weirtest.Run(t, nil, "tail", url, "--from", "7"); code == 0 || !strings.Contains(stderr, "PARTITION:OFFSET") {
		t.Errorf("--from 7: code %d, %s", code, stderr)
	}
}

func TestAnUnknownLogFormatEndsTheStart(t *testing.T) {
	t.Parallel()
	_, stderr, code := weirtest.Run(t, []string{"WEIR_LOG_FORMAT=xml", "WEIR_DATA_DIR=" + t.TempDir()}, "serve", "--port", "0")
	if code != 2 || !strings.Contains(stderr, `environment variable WEIR_LOG_FORMAT: "xml" is not text or json`) {
		t.Errorf("code %d: %s", code, stderr)
	}
}
