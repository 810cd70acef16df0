//go:build unix

package cli

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// topStreams starts a Redis with the stream jobs, of which two messages wait, and a server
// with the queues mails, with a dead letter and one that a worker holds, and idle.
func topStreams(t *testing.T) (redis, server string) {
	t.Helper()
	srv := weirtest.Start(t, weirtest.Options{})
	redis, server = redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir"), srv.URL
	jobs, mails := openStream(t, redis), openStream(t, server+"/mails")
	for range 3 {
		if _, err := jobs.Backend().Append(t.Context(), []backend.Message{{Data: []byte("a")}}); err != nil {
			t.Fatal(err)
		}
	}
	req := backend.ClaimRequest{Consumer: "worker-7", Max: 1, Block: time.Second, ReclaimAfter: time.Hour}
	if got, err := jobs.Backend().Claim(t.Context(), req); err != nil || len(got.Deliveries) != 1 {
		t.Fatal(got, err)
	}
	bury(t, mails, 1, backend.ReasonPoison)
	if _, err := mails.Backend().Append(t.Context(), []backend.Message{{Data: []byte("held")}}); err != nil {
		t.Fatal(err)
	}
	if got, err := mails.Backend().Claim(t.Context(), req); err != nil || len(got.Deliveries) != 1 {
		t.Fatal(got, err)
	}
	put(t, srv, "idle", `{"type":"queue"}`)
	return redis, server
}

const (
	keyDown  = "\x1b[B"
	keyUp    = "\x1b[A"
	keyEnter = "\r"
	keyEsc   = "\x1b"
)

func TestTopInATerminal(t *testing.T) {
	t.Parallel()
	redis, server := topStreams(t)
	x := startTerminal(t, nil, 24, 100, "top", redis, server)
	x.shows("jobs – worker off 2 1", "mails nominal 1 0 1", "idle – worker off 0 0", "q quit")
	if got := x.order("jobs", "mails", "idle"); got != "jobs mails idle" {
		t.Errorf("at first, the worst on top: %s", got)
	}
	x.press("S") // by name
	eventually(t, "the order by name", func() bool { return x.order("jobs", "mails", "idle") == "idle jobs mails" })
	x.press("r")
	eventually(t, "the order turned round", func() bool { return x.order("jobs", "mails", "idle") == "mails jobs idle" })
	x.press("/ma")
	eventually(t, "the filter", func() bool { return x.order("jobs", "mails", "idle") == "mails" })
	x.press(keyEnter + "r?")
	x.shows("turn the order round")
	x.press("x")
	x.shows("> mails", "/ma esc all")
	x.press(keyEnter)
	x.shows("DEAD LETTERS in mails.dlq", "worker-7 1", "cannot do m0")
	x.press("r")
	x.shows("choose a dead letter")
	x.press(keyDown + "r")
	x.shows("Send 1 dead letter back to mails? [y/N]")
	x.press("n")
	x.shows("nothing was sent")
	if n := len(lettersOf(t, server+"/mails")); n != 1 {
		t.Fatalf("%d dead letters after a no", n)
	}
	x.press("r")
	x.shows("[y/N]")
	x.press("y")
	x.shows("1 dead letter sent back", "DEAD LETTERS in mails.dlq none")
	if n := len(lettersOf(t, server+"/mails")); n != 0 {
		t.Errorf("%d dead letters after a yes", n)
	}
	x.press(keyEsc)
	x.shows("/ma esc all")
	x.press(keyEsc)
	x.shows("jobs – worker off")
	x.press(keyDown + keyUp + keyUp + keyEnter) // jobs
	x.shows("GROUP WORKERS PENDING BACKLOG", "weir 1 1 2", "worker-7 1", "DEAD LETTERS in {jobs}:dlq none")
	x.press("q")
	x.restored(0)
}

func TestTopOnANarrowTerminalAndWithoutColours(t *testing.T) {
	t.Parallel()
	redis, server := topStreams(t)
	x := startTerminal(t, []string{"NO_COLOR=1"}, 24, 80, "top", redis, server)
	x.shows("STREAM STATE BACKLOG PENDING IN/S OUT/S OLDEST DEAD", "jobs – worker off 2 1")
	for _, c := range []struct{ rows, cols int }{{10, 40}, {5, 12}, {1, 1}, {30, 140}} {
		x.size(c.rows, c.cols)
		switch {
		case c.cols == 40:
			x.shows("STREAM STATE BACKLOG", "jobs – worker off")
		case c.cols == 140:
			x.shows("REFUSED/S PRESSURE GROUP", "mails nominal 1 0 1")
		}
		for _, line := range x.lines() {
			if n := len([]rune(line)); n > c.cols {
				t.Errorf("%d × %d: a line of %d", c.rows, c.cols, n)
			}
		}
	}
	x.mu.Lock()
	raw := string(x.raw)
	x.mu.Unlock()
	for _, colour := range []string{"\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[38"} {
		if strings.Contains(raw, colour) {
			t.Errorf("NO_COLOR is set, and there is %q", colour)
		}
	}
	x.cmd.Process.Signal(syscall.SIGTERM)
	x.restored(0)
}

// A server that hangs has a row that says since when, and stops nothing else.
func TestTopGoesOnWhileAServerHangs(t *testing.T) {
	t.Parallel()
	redis, server := topStreams(t)
	proxy := redistest.NewProxy(t, strings.TrimPrefix(redis[:strings.Index(redis, "/0?")], "redis://"))
	x := startTerminal(t, nil, 24, 100, "top", redisURL(proxy.Addr(), "jobs", "weir"), server, redisURL("127.0.0.1:1", "closed", "weir"))
	x.shows("jobs – worker off 2 1", "mails nominal", "closed unreachable since")
	proxy.Set(redistest.Blackhole)
	x.shows("jobs unreachable since", "mails nominal")
	x.press("/mails")
	x.shows("/mails█")
	proxy.Heal()
	x.press(keyEsc)
	x.shows("jobs – worker off 2 1")
	x.cmd.Process.Signal(syscall.SIGINT)
	x.restored(0)
}

func TestTopInAPipePrintsLines(t *testing.T) {
	t.Parallel()
	redis, server := topStreams(t)
	var lines []string
	eventually(t, "all that can be reached answer", func() bool { // each within three seconds
		lines = nil
		for line := range strings.Lines(must(t, "top", "--count=1", redis, server, redisURL("127.0.0.1:1", "closed", "weir"))) {
			_, text, _ := strings.Cut(strings.TrimSpace(line), " ") // the time
			lines = append(lines, text)
		}
		return strings.Count(strings.Join(lines, "\n"), "state=unreachable") == 1
	})
	if len(lines) < 5 {
		t.Fatalf("%q", lines)
	}
	for i, want := range []string{"closed state=unreachable since=", "idle state=\"worker off\" ", "jobs state=\"worker off\" group=weir kind=redis signal=– backlog=2 pending=1 in=", "mails state=nominal group=– kind=queue signal=1 backlog=0 pending=1 "} {
		if !strings.HasPrefix(lines[i], want) {
			t.Errorf("line %d is %q, want %q", i+1, lines[i], want)
		}
	}
	if _, stderr, code := weirtest.Run(t, nil, "top", server, "redis://127.0.0.1/0?nope=1"); code != 2 || !strings.Contains(stderr, "URL 2:") {
		t.Errorf("a URL that is wrong: exit code %d, %s", code, stderr)
	}
}
