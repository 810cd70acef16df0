package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// The line of progress stays one line on any terminal, and what helps is said in full above it.
func TestTheProgressOfAPublishIsOneLine(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	x := startTerminal(t, []string{"QUEUE_MAX_DEPTH=5"}, 16, 30, "publish", srv.URL+"/requests", writeLines(t, strings.Split("abcdefghij", "")))
	x.shows("sent, ")
	eventually(t, "it says what helps", func() bool { return strings.Contains(strings.Join(x.lines(), ""), "--guard off") })
	from := time.Now()
	eventually(t, "it has tried again", func() bool { return time.Since(from) > 5*time.Second })
	for range 100 { // the line may be being drawn; one that is left behind stays
		if all := strings.Join(x.lines(), "\n"); strings.Count(all, " sent, ") == 1 && strings.Count(all, "nobody") == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("after five seconds:\n%s", strings.Join(x.lines(), "\n"))
}

// A terminal that cannot draw a line anew would show the signs for it: it gets lines, as a file does.
func TestADumbTerminalGetsNoLineOfProgress(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	x := startTerminal(t, []string{"TERM=dumb", "QUEUE_MAX_DEPTH=5"}, 16, 100, "publish", srv.URL+"/requests", writeLines(t, strings.Split("abcdefghij", "")))
	x.shows("weir publish: waiting")
	from := time.Now()
	eventually(t, "it has tried again", func() bool { return time.Since(from) > 2*time.Second })
	if all := strings.Join(x.lines(), "\n"); strings.Contains(all, " sent, ") {
		t.Errorf("after two seconds:\n%s", all)
	}
}

// A queue that is full is said once, with what helps, and goes on when that was done.
func TestPublishSaysOnceWhyItWaitsAndWhatHelps(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	redis := redistest.Start(t, redistest.Options{})
	for name, url := range map[string]string{
		"weir":  srv.URL + "/requests",
		"redis": "redis://" + redis.Addr() + "/0?stream=requests&group=g",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := filepath.Join(t.TempDir(), "input")
			var lines strings.Builder
			for i := range 150 {
				fmt.Fprintln(&lines, i)
			}
			if err := os.WriteFile(input, []byte(lines.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			p := weirtest.Go(t, []string{"QUEUE_MAX_DEPTH=125"}, "publish", "--batch", "50", url, input)
			eventually(t, "publish waits", func() bool { return strings.Contains(p.Stderr.String(), "waiting: ") })
			from := time.Now()
			eventually(t, "it has tried again", func() bool { return time.Since(from) > 3*time.Second })
			told := p.Stderr.String()
			if !strings.Contains(told, "nobody works on requests") || !strings.Contains(told, "weir work '"+url+"'") || !strings.Contains(told, "--guard off") {
				t.Errorf("it says\n%s", told)
			}
			if n := strings.Count(told, "\n"); n != 1 {
				t.Errorf("it says %d lines in three seconds:\n%s", n, told)
			}
			worker := weirtest.Go(t, nil, "work", url, "--", "true")
			if out := p.Succeed(); !strings.Contains(out, "150 records published") {
				t.Errorf("it ends with %q", out)
			}
			if told := p.Stderr.String(); !strings.HasSuffix(told, "going on\n") {
				t.Errorf("it says\n%s", told)
			}
			worker.Signal(syscall.SIGTERM)
			worker.Wait()
		})
	}
}
