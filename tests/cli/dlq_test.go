package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// openStream opens a URL for the length of the test.
func openStream(t *testing.T, url string) *weir.Stream {
	t.Helper()
	s, err := open.URL(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// bury publishes n messages called m0, m1 … and moves each to the dead letters.
func bury(t *testing.T, s *weir.Stream, n int, reason string) {
	t.Helper()
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i] = backend.Message{Data: fmt.Append(nil, "m", i), Headers: map[string]string{"tenant": "acme"}}
	}
	if _, err := s.Backend().Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	killAll(t, s, n, reason)
}

// killAll claims n messages and moves them to the dead letters.
func killAll(t *testing.T, s *weir.Stream, n int, reason string) {
	t.Helper()
	for _, d := range take(t, s, n) {
		if err := s.Backend().DeadLetter(t.Context(), d, "", backend.Cause{Reason: reason, Error: "cannot do " + string(d.Data)}); err != nil {
			t.Fatal(err)
		}
	}
}

// take claims n messages.
func take(t *testing.T, s *weir.Stream, n int) (all []*weir.Delivery) {
	t.Helper()
	req := backend.ClaimRequest{Consumer: "w", Max: 500, Block: 100 * time.Millisecond, ReclaimAfter: time.Hour}
	weirtest.Eventually(t, "messages to claim", func() bool {
		got, err := s.Backend().Claim(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got.Deliveries...)
		return len(all) >= n
	})
	if len(all) != n {
		t.Fatalf("claimed %d messages, want %d", len(all), n)
	}
	return all
}

// eachBackend runs a test on Redis and on a weir server.
func eachBackend(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("redis", func(t *testing.T) {
		test(t, redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir"))
	})
	t.Run("http", func(t *testing.T) {
		test(t, weirtest.Start(t, weirtest.Options{}).URL+"/jobs")
	})
}

func lettersOf(t *testing.T, args ...string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(must(t, append([]string{"dlq", "ls", "--json"}, args...)...)) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, l)
	}
	return all
}

func TestADeadLetterIsShownWithItsHistory(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		s := openStream(t, url)
		bury(t, s, 3, backend.ReasonPoison)
		all := lettersOf(t, url)
		if len(all) != 3 {
			t.Fatalf("%d letters: %v", len(all), all)
		}
		l := all[1]
		for field, want := range map[string]any{
			"data": "m1", "reason": "poison", "error": "cannot do m1", "attempts": 1.0, "redrives": 0.0, "stream": "jobs", "group": "weir", "consumer": "w",
		} {
			if l[field] != want {
				t.Errorf("%s is %v, want %v", field, l[field], want)
			}
		}
		if l["headers"].(map[string]any)["tenant"] != "acme" || l["origin_id"] == "" || l["enqueued_ms"] == nil {
			t.Errorf("letter %v", l)
		}
		id := l["id"].(string)
		show := must(t, "dlq", "show", url, id)
		for _, text := range []string{"id         " + id, "error      cannot do m1", "header     tenant: acme", "data       m1"} {
			if !strings.Contains(show, text+"\n") {
				t.Errorf("%q is not in\n%s", text, show)
			}
		}
		table := must(t, "dlq", "ls", "--error=do m2", url)
		if !strings.Contains(table, "cannot do m2") || strings.Count(table, "\n") != 2 || strings.Contains(table, "\x1b") {
			t.Errorf("the table of one letter is\n%s", table)
		}
		if _, stderr, code := weirtest.Run(t, nil, "dlq", "show", url, "999999-0"); code != 1 || stderr == "" {
			t.Errorf("an ID that is not there: exit code %d, %s", code, stderr)
		}
	})
}

// A misspelt queue or ID must not look like one without dead letters.
func TestDeadLettersThatAreNotThereAreNamed(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		fails := func(want string, args ...string) string {
			t.Helper()
			stdout, stderr, code := weirtest.Run(t, nil, args...)
			if code != 1 || !strings.Contains(stderr, want) {
				t.Errorf("weir %v: exit code %d, %s%s; want 1 and %q", args, code, stdout, stderr, want)
			}
			return stdout
		}
		lines := [][]string{{"ls"}, {"redrive", "--delay=0"}, {"redrive", "--dry-run"}, {"redrive", "--follow"}, {"purge", "--yes"}, {"purge", "--dry-run"}, {"show"}}
		for _, line := range lines {
			line = append(append([]string{"dlq"}, line...), url)
			if line[1] == "show" {
				line = append(line, "99")
			}
			fails("not found", line...)
		}
		fails("", "doctor", "--interval=0", url)
		if _, stderr, code := weirtest.Run(t, nil, "sample", url); code != 0 || !strings.Contains(stderr, "there is nothing until") {
			t.Errorf("sample: exit code %d, %s", code, stderr)
		}
		s := openStream(t, url)
		bury(t, s, 1, backend.ReasonPoison)
		id := lettersOf(t, url)[0]["id"].(string)
		for _, line := range lines {
			if line[len(line)-1] == "--follow" {
				continue
			}
			fails("not among the dead letters of", append(append([]string{"dlq"}, line...), url, "777-0", "abc")...)
		}
		if out := fails(": abc\n", "dlq", "ls", url, "abc", id); !strings.Contains(out, id) {
			t.Errorf("the letter that is there is not listed: %s", out)
		}
		if out := fails(": abc\n", "dlq", "purge", "--yes", url, "abc", id); !strings.HasPrefix(out, "1 removed") {
			t.Errorf("purge of one that is there: %s", out)
		}
		if out := must(t, "dlq", "ls", url); out != "" {
			t.Errorf("a queue without dead letters: %s", out)
		}
	})
}

func TestRedriveSendsBackWhatIsDueAndPurgeRemovesTheRest(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		s := openStream(t, url)
		bury(t, s, 5, backend.ReasonPoison)
		if out := must(t, "dlq", "redrive", "--delay=1h", url); !strings.HasPrefix(out, "0 sent back") || !strings.Contains(out, "5 not due yet") {
			t.Errorf("before the delay is over: %s", out)
		}
		if out := must(t, "dlq", "redrive", "--delay=0", "--dry-run", url); !strings.Contains(out, "5 would be sent back") || len(lettersOf(t, url)) != 5 {
			t.Errorf("dry run: %s", out)
		}
		began := time.Now()
		if out := must(t, "dlq", "redrive", "--delay=0", "--rate=20", "--json", url); !strings.Contains(out, `"sent":5,"early":0,"failed":0,"next_ms":null`) {
			t.Errorf("redrive: %s", out)
		}
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("5 messages at 20 a second took %s", took)
		}
		back := take(t, s, 5)
		for _, d := range back {
			if d.Headers["weir-redrives"] != "1" || d.Headers["tenant"] != "acme" || d.Attempt != 1 {
				t.Errorf("sent back as %s, attempt %d with headers %v", d.Data, d.Attempt, d.Headers)
			}
			if err := s.Backend().DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
		}
		again := lettersOf(t, url)
		if len(again) != 5 || again[0]["redrives"] != 1.0 {
			t.Fatalf("dead again: %v", again)
		}
		if _, stderr, code := weirtest.Run(t, nil, "dlq", "purge", url); code != 2 || !strings.Contains(stderr, "--yes") {
			t.Errorf("purge without anybody to ask: exit code %d, %s", code, stderr)
		}
		if out := must(t, "dlq", "purge", "--dry-run", url); !strings.Contains(out, "5 would be removed") {
			t.Errorf("dry run: %s", out)
		}
		if out := must(t, "dlq", "purge", "--yes", "--json", url, again[0]["id"].(string)); !strings.Contains(out, `"removed":1`) {
			t.Errorf("purge of one: %s", out)
		}
		if out := must(t, "dlq", "purge", "--yes", url); !strings.HasPrefix(out, "4 removed") || len(lettersOf(t, url)) != 0 {
			t.Errorf("purge: %s", out)
		}
	})
}

// What dies while somebody thinks about the answer is not what the question was about.
func TestPurgeRemovesWhatItAskedAbout(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		s := openStream(t, url)
		bury(t, s, 2, backend.ReasonPoison)
		x := startTerminal(t, nil, 24, 140, "dlq", "purge", url)
		x.shows("Remove 2 dead letters")
		bury(t, s, 1, backend.ReasonMaxDeliveries)
		x.press("y\r")
		x.shows("2 removed")
		<-x.ended
		if left := lettersOf(t, url); len(left) != 1 || left[0]["reason"] != backend.ReasonMaxDeliveries {
			t.Errorf("left: %v", left)
		}
	})
}

// No command takes the stream's own messages for its dead letters: a purge would remove
// work that nobody has done, and a worker could never set a message aside.
func TestTheDeadLettersAreNotTheStreamItself(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		must(t, "publish", url, writeLines(t, []string{"a", "b"}))
		for _, args := range [][]string{
			{"dlq", "ls", url}, {"dlq", "show", url, "1"}, {"dlq", "redrive", "--yes", url}, {"dlq", "purge", "--yes", url},
			{"work", "--until-empty", "1s", url, "--", "true"},
		} {
			out, stderr, code := weirtest.Run(t, []string{"WEIR_DEAD_LETTER=jobs"}, args...)
			if code != 2 || out != "" || !strings.Contains(stderr, `"jobs" is the `) {
				t.Errorf("%v: code %d, %s%s", args, code, out, stderr)
			}
		}
		if out := must(t, "tail", "--from", "0", "--no-follow", url); out != "a\nb\n" {
			t.Errorf("left: %q", out)
		}
	})
}

// A redrive that is killed again and again until it is through: each message is
// back once, and no letter is left.
func TestAKilledRedriveNeitherLosesNorDoubles(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		s := openStream(t, url)
		const n = 300
		for rounds, kills := 0, 0; kills < 3; rounds++ { // it may be through before this test looks
			if rounds == 20 {
				t.Fatalf("in %d rounds the redrive was killed %d times only", rounds, kills)
			}
			bury(t, s, n, backend.ReasonPoison)
			for left := n; left > 0; {
				p := run(t, "dlq", "redrive", "--delay=0", "--rate=2000", url)
				at := left - 60
				weirtest.Eventually(t, "some letters sent back", func() bool {
					left = countLetters(t, s)
					return left <= at || left == 0
				})
				if p.Running() {
					kills++
				}
				p.Signal(syscall.SIGKILL)
				p.Wait()
			}
			seen := map[string]int{}
			for _, d := range take(t, s, n) {
				seen[string(bytes.Clone(d.Data))]++
				if _, err := s.Backend().Ack(t.Context(), []backend.Lease{d.Lease}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range n {
				if name := fmt.Sprint("m", i); seen[name] != 1 {
					t.Errorf("%s is back %d times", name, seen[name])
				}
			}
		}
	})
}

// Letters go to the group that they failed in, not to another one of weir's; readers
// that are not weir's are named before anything is sent.
func TestRedriveAsksWhereOthersWouldReadTheMessages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	s := openStream(t, redisURL(server.Addr(), "jobs", "weir"))
	mail := openStream(t, redisURL(server.Addr(), "jobs", "mail"))
	take(t, mail, 0)
	bury(t, s, 2, backend.ReasonPoison)
	url := redisURL(server.Addr(), "jobs", "weir")
	id := lettersOf(t, url)[0]["id"].(string)
	must(t, "dlq", "redrive", "--delay=0", url, id)
	take(t, s, 1)
	take(t, mail, 2) // as they were published, and not again
	if p, err := mail.Pressure(t.Context()); err != nil || p.Pending != 2 || p.Behind != 0 {
		t.Errorf("the other group: %+v, %v", p, err)
	}
	if err := server.Client().XGroupCreate(t.Context(), "jobs", "audit", "$").Err(); err != nil {
		t.Fatal(err)
	}
	p := run(t, "dlq", "redrive", "--delay=0", url)
	if p.Wait() == 0 || !strings.Contains(p.Stderr.String(), "audit") || !strings.Contains(p.Stderr.String(), "--yes") || countLetters(t, s) != 1 {
		t.Errorf("it said %s and left %d letters", p.Stderr.String(), countLetters(t, s))
	}
	must(t, "dlq", "redrive", "--delay=0", "--yes", url)
	take(t, s, 1)
	if n := countLetters(t, s); n != 0 {
		t.Errorf("%d letters are left", n)
	}
}

func countLetters(t *testing.T, s *weir.Stream) int {
	t.Helper()
	p, err := s.Pressure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.DeadLetters == nil {
		t.Fatal("the number of dead letters is not known")
	}
	return int(*p.DeadLetters)
}

// A redrive that follows is a worker that retries with growing delays.
func TestARedriveThatFollowsSendsBackWhatDiesLater(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	url := redisURL(server.Addr(), "jobs", "weir")
	s := openStream(t, url)
	bury(t, s, 1, backend.ReasonPoison)
	p := run(t, "dlq", "redrive", "--follow", "--delay=100ms", "--json", url)
	for redrives := 1; redrives <= 3; redrives++ {
		d := take(t, s, 1)[0]
		if got := d.Headers["weir-redrives"]; got != fmt.Sprint(redrives) {
			t.Fatalf("redrive %d says it is redrive %s", redrives, got)
		}
		if err := s.Backend().DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
	}
	p.Signal(syscall.SIGTERM)
	out, sent := p.Succeed(), 3
	if countLetters(t, s) == 0 { // this machine stood still until the last one was due again
		sent = 4
	}
	if !strings.Contains(out, fmt.Sprintf(`"sent":%d,`, sent)) {
		t.Errorf("it sent back %d and said %s", sent, out)
	}
}
