package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// everyURL runs a test on one stream of each kind that commands can share.
func everyURL(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("http", func(t *testing.T) { test(t, weirtest.Start(t, weirtest.Options{}).URL+"/requests") })
	t.Run("redis", func(t *testing.T) {
		test(t, redistest.Start(t, redistest.Options{}).URL()+"?stream=requests&group=web")
	})
	t.Run("file", func(t *testing.T) { test(t, "file://"+t.TempDir()+"?topic=requests") })
}

func TestPublishTailAndWorkMeanTheSameOverEveryURL(t *testing.T) {
	t.Parallel()
	lines := []string{"plain text", `{"looks": "like JSON"}`, "17", `"quoted"`, "", "ünï → <&>", "bad"}
	everyURL(t, func(t *testing.T, url string) {
		out := must(t, "publish", url, writeLines(t, lines))
		if !strings.HasPrefix(out, "7 records published to requests in ") {
			t.Errorf("publish printed %q", out)
		}
		want := strings.Join(lines, "\n") + "\n"
		if got := must(t, "tail", url, "--from", "0", "--no-follow"); got != want {
			t.Errorf("tail printed %q, want %q", got, want)
		}
		if got := must(t, "tail", url, "-n", "2", "--no-follow"); got != "ünï → <&>\nbad\n" {
			t.Errorf("tail of the last two printed %q", got)
		}
		dir := t.TempDir()
		script := `cat > ` + dir + `/$WEIR_ID.$WEIR_ATTEMPT; [ "$WEIR_STREAM $WEIR_TOPIC $WEIR_SEQ $WEIR_DELIVERIES" = "requests requests $WEIR_ID $WEIR_ATTEMPT" ] && [ "$(cat ` + dir + `/$WEIR_ID.$WEIR_ATTEMPT)" != bad ]`
		out, told, code := weirtest.Run(t, nil, "work", url, "--until-empty", "200ms", "--block", "100ms", "--retry-base", "10ms", "--json", "--", "sh", "-c", script)
		if !strings.Contains(out, `"acked":6,"nacked":3,"reclaimed":2,"lost":0,"returned":0,"dead":1,"expired":0,"dead_letters":1}`) {
			t.Errorf("work printed %s", out)
		}
		if code != 3 || !strings.HasSuffix(told, "weir: messages became dead letters: 1; weir dlq ls URL shows them, weir dlq redrive URL sends them back\n") {
			t.Errorf("work ended with code %d: %s", code, told)
		}
		files, err := filepath.Glob(dir + "/*")
		if err != nil || len(files) != len(lines)+2 {
			t.Errorf("%d runs (%v), want one for each message and two more for the bad one", len(files), err)
		}
		if got := must(t, "dlq", "ls", url); !strings.Contains(got, "bad") || strings.Count(got, "\n") != 2 {
			t.Errorf("dead letters:\n%s", got)
		}
	})
}

func TestHeadersReachTheCommandAsItsEnvironment(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.Options{})
	err := srv.Client().XAdd(t.Context(), &redis.XAddArgs{Stream: "mails", Values: []string{"data", "body", "trace-id", "abc", "To", "a@b"}}).Err()
	if err != nil {
		t.Fatal(err)
	}
	out := must(t, "work", srv.URL()+"?stream=mails&group=g", "--until-empty", "100ms", "--block", "50ms", "--",
		"sh", "-c", `echo "$WEIR_GROUP $WEIR_HEADER_TRACE_ID $WEIR_HEADER_TO $WEIR_META $(cat)"`)
	if want := `g abc a@b {"To":"a@b","trace-id":"abc"} body` + "\n"; out != want {
		t.Errorf("the command printed %q, want %q", out, want)
	}
}

func TestTailOnRedisFollowsOverARestartAndTellsGaps(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	url := srv.URL() + "?stream=log"
	must(t, "publish", url, writeLines(t, []string{"1", "2", "3"}))
	tail := run(t, "tail", url, "--from", "0")
	eventually(t, "tail has printed", func() bool { return tail.Stdout.String() == "1\n2\n3\n" })
	srv.Kill()
	eventually(t, "tail says that the server is away", func() bool { return strings.Contains(tail.Stderr.String(), "waiting for the server") })
	srv.Restart()
	must(t, "publish", url, writeLines(t, []string{"4", "5"}))
	eventually(t, "tail goes on", func() bool { return tail.Stdout.String() == "1\n2\n3\n4\n5\n" })

	// What is trimmed while tail is stopped is told.
	tail.Signal(syscall.SIGSTOP)
	c := srv.Client()
	must(t, "publish", url, writeLines(t, []string{"6", "7", "8"}))
	if err := c.XTrimMaxLen(t.Context(), "log", 1).Err(); err != nil {
		t.Fatal(err)
	}
	tail.Signal(syscall.SIGCONT)
	eventually(t, "tail prints what is left", func() bool { return strings.HasSuffix(tail.Stdout.String(), "8\n") })
	eventually(t, "what is missing is told as a gap", func() bool {
		return strings.Contains(tail.Stdout.String(), "6\n") || strings.Contains(tail.Stderr.String(), "gap ")
	})
	t.Logf("printed %q, told %q", tail.Stdout.String(), tail.Stderr.String())
	tail.Signal(syscall.SIGINT)
	tail.Succeed()
	if groups, err := c.XInfoGroups(t.Context(), "log").Result(); err != nil || len(groups) != 0 {
		t.Errorf("tail has joined a group: %v, %v", groups, err)
	}
}

func TestURLsThatNoCommandCanUseAreRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, reason string }{
		{"mem://orders", "one process"},
		{"ftp://:s3cret@host/orders", "ftp"},
		{"redis://:s3cret@127.0.0.1:1/0?stream=orders", "connect"},
		{"redis://:s3cret@127.0.0.1:1/0", "stream=NAME"},
		{"redis://:s3cret@127.0.0.1:1/0?stream=a&topic=b", "topic"},
		{"http://:s3cret@127.0.0.1:1/orders?group=other", "group"},
		{"kafka://:s3cret@host/orders", "kafka"},
	} {
		for _, command := range [][]string{{"publish", c.url, "/dev/null"}, {"tail", c.url, "--no-follow"}, {"work", c.url, "--", "true"}} {
			_, stderr, code := weirtest.Run(t, nil, command...)
			if code == 0 || !strings.Contains(stderr, c.reason) || strings.Contains(stderr, "s3cret") {
				t.Errorf("%v: code %d, %q; want it to say %q and not the password", fmt.Sprint(command), code, stderr, c.reason)
			}
		}
	}
}

func TestPublishToRedisStoresEachLineOnceThroughKillsOfEither(t *testing.T) {
	t.Parallel()
	lines := accessLog(t) // many, so that a kill comes before the end though this machine stands still
	srv := redistest.Start(t, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	c := srv.Client()
	stored := func() int64 { return c.XLen(t.Context(), "in").Val() }
	args := []string{"publish", "--guard", "off", "--batch", "20", "--resume", filepath.Join(t.TempDir(), "place"), srv.URL() + "?stream=in", writeLines(t, lines)}
	for round, mark := range []int64{400, 1000, 1600, 2200} {
		p := run(t, args...)
		eventually(t, "a part is stored", func() bool { return stored() >= mark })
		if round%2 == 0 {
			srv.Kill()
			srv.Restart()
		}
		p.Signal(syscall.SIGKILL)
		<-p.Exited()
	}
	if n := stored(); n == int64(len(lines)) {
		t.Fatal("everything was stored before the last kill")
	}
	must(t, args...)
	entries, err := c.XRange(t.Context(), "in", "-", "+").Result()
	if err != nil || len(entries) != len(lines) {
		t.Fatalf("%d entries, %v, want %d", len(entries), err, len(lines))
	}
	for i, e := range entries {
		if e.Values["data"] != lines[i] {
			t.Fatalf("entry %d is %q, want %q", i, e.Values["data"], lines[i])
		}
	}
}
