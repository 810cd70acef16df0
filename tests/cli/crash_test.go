package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// recordLine is a command for weir work that appends "SEQ LINE" to the file
// $RECORD in one write.
const recordLine = `IFS= read -r line; printf '%s %s\n' "$WEIR_SEQ" "$line" >> "$RECORD"`

// recordTo is the environment in which recordLine writes to a file.
func recordTo(path string) []string { return []string{"RECORD=" + path} }

// handled counts the lines of a record.
func handled(path string) int {
	text, _ := os.ReadFile(path)
	return strings.Count(string(text), "\n")
}

// checkRecord compares a record with the lines that were published, line i under
// seq i+1, and returns how many were handled more than once in total.
func checkRecord(t *testing.T, path string, lines []string) (repeats int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]int, len(lines))
	for entry := range strings.Lines(string(text)) {
		number, line, _ := strings.Cut(strings.TrimSuffix(entry, "\n"), " ")
		seq, err := strconv.Atoi(number)
		if err != nil || seq < 1 || seq > len(lines) {
			t.Fatalf("the record holds %q", entry)
		}
		if line != lines[seq-1] {
			t.Fatalf("seq %d was handled as %q, published was %q", seq, line, lines[seq-1])
		}
		seen[seq-1]++
	}
	lost := 0
	for _, n := range seen {
		if n == 0 {
			lost++
		}
		repeats += max(n-1, 0)
	}
	if lost > 0 {
		t.Errorf("%d of %d lines were never handled", lost, len(lines))
	}
	return repeats
}

// inFlight stops the workers, so that nothing moves, and returns how many jobs
// are leased.
func inFlight(t *testing.T, srv *weirtest.Server, workers []*weirtest.Process) int {
	t.Helper()
	for _, w := range workers {
		w.Signal(syscall.SIGSTOP)
	}
	// Requests that were on their way may still arrive: two equal answers.
	last := topicState(t, srv, "requests").Queue
	eventually(t, "the queue stands still", func() bool {
		now := topicState(t, srv, "requests").Queue
		same := now == last
		last = now
		return same
	})
	return int(last.InFlight)
}

func resume(workers []*weirtest.Process) {
	for _, w := range workers {
		w.Signal(syscall.SIGCONT)
	}
}

func TestEveryLineIsHandledThoughAWorkerAndTheServerAreKilled(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	url := srv.URL + "/requests"
	must(t, "publish", "--guard", "off", url, "testdata/access.log")

	record := filepath.Join(t.TempDir(), "record")
	var workers []*weirtest.Process
	for range 3 {
		workers = append(workers, weirtest.Go(t, recordTo(record), "work", url, "--workers", "4", "--lease", "10s",
			"--until-empty", "500ms", "--json", "--", "sh", "-c", recordLine))
	}

	eventually(t, "a quarter is handled", func() bool { return handled(record) >= len(lines)/4 })
	atWorkerKill := inFlight(t, srv, workers)
	workers[0].Signal(syscall.SIGKILL)
	<-workers[0].Exited()
	workers = workers[1:]
	resume(workers)

	eventually(t, "half is handled", func() bool { return handled(record) >= len(lines)/2 })
	atServerKill := inFlight(t, srv, workers)
	srv.Kill()
	resume(workers)
	srv.Restart()

	for _, w := range workers {
		var sum struct{ Acked, Nacked, Reclaimed, Lost int }
		if err := json.Unmarshal([]byte(w.Succeed()), &sum); err != nil {
			t.Fatalf("summary: %v", err)
		}
		t.Logf("worker: %+v", sum)
	}
	repeats := checkRecord(t, record, lines)
	t.Logf("%d lines, none lost, %d repeats; in flight at the kills: %d (worker), %d (server)", len(lines), repeats, atWorkerKill, atServerKill)
	if repeats > atWorkerKill+atServerKill {
		t.Errorf("%d repeats, more than the %d in flight at the kills", repeats, atWorkerKill+atServerKill)
	}
	if st := topicState(t, srv, "requests"); st.Count != 0 || st.Queue.DeadLettered != 0 {
		t.Errorf("left in the queue: %+v", st)
	}
}

func TestPublishStoresEachLineOnceOverKillsOfTheServer(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)[:3000]
	srv := weirtest.Start(t, weirtest.Options{Stays: true})
	url := srv.URL + "/in"
	p := run(t, "publish", "--guard", "off", "--batch", "2", url, writeLines(t, lines))
	for _, mark := range []uint64{500, 1200, 2000} {
		eventually(t, "a part is stored", func() bool { return topicState(t, srv, "in").HeadSeq >= mark })
		srv.Kill()
		srv.Restart()
	}
	p.Succeed()
	checkTopic(t, url, lines)
}

func TestPublishGoesOnWhereAKilledPublishStood(t *testing.T) {
	t.Parallel()
	lines := accessLog(t)[:3000]
	srv := weirtest.Start(t, weirtest.Options{})
	url, file, place := srv.URL+"/in", writeLines(t, lines), filepath.Join(t.TempDir(), "place")
	for _, mark := range []uint64{400, 1000, 1700} {
		p := run(t, "publish", "--batch", "3", "--resume", place, url, file)
		eventually(t, "a part is stored", func() bool { return topicState(t, srv, "in").HeadSeq >= mark })
		p.Signal(syscall.SIGKILL)
		<-p.Exited()
	}
	must(t, "publish", "--batch", "3", "--resume", place, url, file)
	checkTopic(t, url, lines)
}

// checkTopic reads the topic with weir tail and compares it with the lines.
func checkTopic(t *testing.T, url string, lines []string) {
	t.Helper()
	got := strings.Split(strings.TrimSuffix(must(t, "tail", url, "--from", "0", "--no-follow"), "\n"), "\n")
	if len(got) != len(lines) {
		t.Fatalf("%d records in the topic, want %d", len(got), len(lines))
	}
	for i := range lines {
		if got[i] != lines[i] {
			t.Fatalf("record %d is %q, want %q", i+1, got[i], lines[i])
		}
	}
}
