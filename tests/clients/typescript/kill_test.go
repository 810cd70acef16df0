package typescript

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

const (
	// lineCount is how many lines the programs move.
	lineCount = 10_000
	// atATime is how many jobs a worker holds at most.
	atATime = 4
)

// writeLines writes the numbered lines to a file of the test.
func writeLines(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for i := range lineCount {
		fmt.Fprintln(&text, line(i))
	}
	path := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func line(i int) string { return fmt.Sprintf("line-%05d", i) }

// number is the inverse of line; it fails the test for what is none.
func number(t *testing.T, text string) int {
	t.Helper()
	i, err := strconv.Atoi(strings.TrimPrefix(text, "line-"))
	if err != nil || i < 0 || i >= lineCount || text != line(i) {
		t.Fatalf("%q was never published", text)
	}
	return i
}

// state is what GET topic answers, as far as the tests look.
type state struct {
	HeadSeq uint64 `json:"head_seq"`
	Count   int    `json:"count"`
	Queue   struct {
		InFlight int `json:"in_flight"`
	} `json:"queue"`
}

// topic reads the state of a topic; the zero state if there is none yet.
func topic(t *testing.T, srv *weirtest.Server, name string) (s state) {
	t.Helper()
	send(t, http.MethodGet, srv.URL+"/v0/topics/"+name+"?touch=false", "", &s)
	return s
}

// send makes one call and reads its answer, if it is a good one.
func send(t *testing.T, method, url, body string, out any) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		return false
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return true
}

// freeze stops programs, so that nothing moves, and returns how many jobs are leased.
func freeze(t *testing.T, srv *weirtest.Server, scripts []*script) int {
	t.Helper()
	for _, s := range scripts {
		_ = s.Signal(syscall.SIGSTOP)
	}
	// Requests that were on their way may still arrive.
	last, same := topic(t, srv, "jobs"), 0
	weirtest.Eventually(t, "the queue stands still", func() bool {
		now := topic(t, srv, "jobs")
		if same++; now != last {
			last, same = now, 0
		}
		return same >= 5
	})
	return last.Queue.InFlight
}

func thaw(scripts []*script) {
	for _, s := range scripts {
		_ = s.Signal(syscall.SIGCONT)
	}
}

// handled is how many lines the workers have handled.
func handled(t *testing.T, workers []*script) (n int) {
	t.Helper()
	for _, w := range workers {
		n += len(w.lines(t))
	}
	return n
}

func TestEveryLineIsHandledThoughServersAndWorkersAreKilled(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	if !send(t, http.MethodPut, srv.URL+"/v0/topics/jobs", `{"type":"queue"}`, new(struct{})) {
		t.Fatal("there is no queue")
	}
	publisher := start(t, writeLines(t), "publish.js", srv.URL, "jobs", "5")
	var workers []*script // all that were ever started
	var alive []*script
	hire := func() {
		w := start(t, "", "worker.js", srv.URL, "jobs", strconv.Itoa(atATime))
		workers, alive = append(workers, w), append(alive, w)
	}
	for range 3 {
		hire()
	}

	explained, kills := 0, 0
	for i := range 8 {
		mark := lineCount * (i + 1) / 10
		weirtest.Eventually(t, "a part is handled", func() bool { return handled(t, workers) >= mark })
		all := append([]*script{publisher}, alive...)
		flying := freeze(t, srv, all)
		kills++
		if i%2 == 0 {
			explained += flying
			srv.Kill()
			thaw(all)
			srv.Restart()
			t.Logf("server killed with %d jobs in flight, %d lines stored", flying, topic(t, srv, "jobs").HeadSeq)
		} else {
			explained += min(flying, atATime)
			alive[0].End(syscall.SIGKILL)
			alive = alive[1:]
			thaw(all[:1])
			thaw(alive)
			hire()
			t.Logf("worker killed with %d jobs in flight", flying)
		}
	}
	publisher.await(t)
	weirtest.Eventually(t, "the queue is empty", func() bool {
		s := topic(t, srv, "jobs")
		return s.HeadSeq >= lineCount && s.Count == 0
	})
	for _, w := range alive {
		w.stop(t)
	}

	seqs, times := make([]string, lineCount), make([]int, lineCount)
	for _, w := range workers {
		for _, entry := range w.lines(t) {
			seq, text, _ := strings.Cut(entry, " ")
			i := number(t, text)
			if times[i]++; seqs[i] == "" {
				seqs[i] = seq
			} else if seqs[i] != seq {
				t.Errorf("%s is in the topic twice, as %s and %s", text, seqs[i], seq)
			}
		}
	}
	lost, repeats := 0, 0
	for _, n := range times {
		if n == 0 {
			lost++
		}
		repeats += max(n-1, 0)
	}
	t.Logf("%d lines, %d lost, %d repeats, %d kills that ended %d jobs in flight at most; the publisher said %v", lineCount, lost, repeats, kills, explained, publisher.lines(t))
	if lost > 0 {
		t.Errorf("%d lines were never handled", lost)
	}
	if repeats > explained {
		t.Errorf("%d repeats, more than the %d jobs that the kills ended", repeats, explained)
	}
}

func TestAFollowerSeesEveryLineOnceThoughTheServerIsKilled(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	if !send(t, http.MethodPut, srv.URL+"/v0/topics/lines", `{}`, new(struct{})) {
		t.Fatal("there is no topic")
	}
	follower := start(t, "", "follow.js", srv.URL, "lines")
	publisher := start(t, writeLines(t), "publish.js", srv.URL, "lines", "5")
	for i := range 6 {
		mark := lineCount * (i + 1) / 7
		weirtest.Eventually(t, "a part is followed", func() bool { return len(follower.lines(t)) >= mark })
		if i == 3 { // once as one stops a server
			srv.Stop()
		} else {
			srv.Kill()
		}
		srv.Restart()
	}
	publisher.await(t)
	weirtest.Eventually(t, "all is followed", func() bool { return len(follower.lines(t)) >= lineCount })
	follower.stop(t)

	got, before := follower.lines(t), uint64(0)
	if len(got) != lineCount {
		t.Fatalf("%d records were followed, want %d", len(got), lineCount)
	}
	for i, entry := range got {
		text, data, _ := strings.Cut(entry, " ")
		seq, err := strconv.ParseUint(text, 10, 64)
		if err != nil || seq <= before || data != line(i) {
			t.Fatalf("record %d is %q behind %d, want %s", i+1, entry, before, line(i))
		}
		before = seq
	}
	if n := topic(t, srv, "lines").Count; n != lineCount {
		t.Errorf("the topic has %d records", n)
	}
	lost, err := os.ReadFile(follower.errors)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(lost), "lost:"); n < 6 {
		t.Errorf("the stream was lost %d times", n)
	}
	if strings.Contains(string(lost), "are lost") {
		t.Errorf("the follower missed records:\n%s", lost)
	}
	t.Logf("%d records, each once and in order; %d connections were lost", len(got), strings.Count(string(lost), "lost:"))
}
