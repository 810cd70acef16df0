package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/weirtest"
)

const (
	lineCount   = 10_000
	batchSize   = 10
	atOnce      = 8 // jobs that a worker holds at most
	workerCount = 3
	// leaseMS is longer than the machine stands still: jobs of killed workers come back
	// when the server is killed at the latest, since their leases are not durable.
	leaseMS = 60_000
)

// kill is one SIGKILL: to the server, or to the worker pid.
type kill struct {
	pid         int       // 0: the server
	begin, back time.Time // back: a new server was ready
}

func (k kill) String() string {
	if k.pid == 0 {
		return "server"
	}
	return "worker " + strconv.Itoa(k.pid)
}

// handling is what a worker noted of one job.
type handling struct {
	pid, seq       int
	claimed, begun time.Time
	line           string
}

// loop is one run of publisher, followers and workers over kills.
type loop struct {
	t       *testing.T
	server  *weirtest.Server
	proxy   *link.Proxy // in front of it, for the publisher and a follower
	notes   string
	workers []*python
	kills   []kill
}

// No line is lost or stored twice, none is missed or repeated for a follower, and whatever a
// worker did again it or the server was killed in between.
func TestPythonMovesEveryLineOverKills(t *testing.T) {
	t.Parallel()
	l := &loop{t: t, server: weirtest.Start(t, weirtest.Options{Stays: true}), notes: filepath.Join(t.TempDir(), "notes")}
	l.proxy = link.NewProxy(t, l.server.Addr)
	if err := os.WriteFile(l.notes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.put("lines", `{}`)
	l.put("jobs", `{"type":"queue"}`)

	lines := strconv.Itoa(lineCount)
	followers := []*python{
		l.start(l.proxy.Addr(), "follow.py", lines, "sync"),
		l.start(l.proxy.Addr(), "follow.py", lines, "async"),
		l.start(l.server.Addr, "follow.py", lines, "sync"),
		l.start(l.server.Addr, "follow.py", lines, "async"),
	}
	for _, kind := range []string{"sync", "async", "sync"} {
		l.work(kind)
	}
	publisher := l.start(l.proxy.Addr(), "publish.py", lines, strconv.Itoa(batchSize))
	for i, mark := range []int{1000, 2500, 4000} {
		weirtest.Eventually(t, "a part is stored", func() bool { return l.head("lines") >= mark })
		l.losesAnswers()
		l.killServer()
		if l.head("lines") >= lineCount {
			t.Fatal("everything had been published before the server was killed")
		}
		handled := len(l.handled())
		weirtest.Eventually(t, "more is handled", func() bool { return len(l.handled()) >= handled+500 })
		l.killWorker(i % len(l.workers))
		l.work([]string{"async", "sync"}[i%2])
	}
	deduped := strings.TrimSpace(publisher.succeed())
	if deduped == "0" {
		t.Error("no batch came twice: the keys were not put to the test")
	}
	weirtest.Eventually(t, "most is handled", func() bool { return len(l.handled()) >= lineCount*9/10 })
	l.killWorker(0)
	l.killServer()

	weirtest.Eventually(t, "the queue is empty", func() bool { return l.count("jobs") == 0 })
	for _, w := range l.workers {
		_ = w.Signal(syscall.SIGTERM)
		t.Logf("worker: %s", strings.TrimSpace(w.succeed()))
	}
	for _, f := range followers {
		l.checkLines("a follower", strings.Split(strings.TrimSuffix(f.succeed(), "\n"), "\n"))
	}
	l.checkLines("the topic", strings.Split(strings.TrimSuffix(l.stored(), "\n"), "\n"))
	repeats := l.checkNotes()
	t.Logf("%d lines, kills: %v; %d handled again; %s batches whose answer was lost were known when they came again",
		lineCount, l.kills, repeats, deduped)
}

// start starts a program that has the server at addr.
func (l *loop) start(addr, program string, args ...string) *python {
	l.t.Helper()
	return start(l.t, []string{"WEIR_URL=http://" + addr}, "", append([]string{filepath.Join("testdata", program)}, args...)...)
}

func (l *loop) work(kind string) {
	l.t.Helper()
	l.workers = append(l.workers, l.start(l.server.Addr, "work.py", l.notes, strconv.Itoa(atOnce), strconv.Itoa(leaseMS), kind))
}

// losesAnswers holds back what the server answers from here to the next kill of it, until
// the publisher waits for such an answer.
func (l *loop) losesAnswers() {
	l.t.Helper()
	l.proxy.Set(link.Fault{HoldDown: true})
	last, same := -1, 0
	weirtest.Eventually(l.t, "the publisher waits", func() bool {
		now := l.head("lines") + l.head("jobs")
		if same++; now != last {
			last, same = now, 0
		}
		return same == 20
	})
}

func (l *loop) killServer() {
	l.t.Helper()
	k := kill{begin: time.Now()}
	l.server.Kill()
	l.proxy.Reset()
	l.proxy.Heal()
	l.server.Restart()
	k.back = time.Now()
	l.kills = append(l.kills, k)
}

func (l *loop) killWorker(i int) {
	l.t.Helper()
	w := l.workers[i]
	l.workers = slices.Delete(l.workers, i, i+1)
	begin := time.Now()
	_ = w.Signal(syscall.SIGKILL)
	<-w.Exited()
	l.kills = append(l.kills, kill{w.State().Pid(), begin, time.Now()})
}

func (l *loop) put(topic, config string) {
	l.t.Helper()
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPut, l.server.URL+"/v0/topics/"+topic, strings.NewReader(config))
	if err != nil {
		l.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusCreated {
		l.t.Fatalf("PUT %s: %v, %v", topic, resp, err)
	}
	resp.Body.Close()
}

// topicState is a topic's last number and how many records it has; 0 and -1 without an answer.
func topicState(s *weirtest.Server, topic string) (head, count int) {
	var state struct {
		Head  int `json:"head_seq"`
		Count int `json:"count"`
	}
	resp, err := http.Get(s.URL + "/v0/topics/" + topic + "?touch=false")
	if err != nil {
		return 0, -1
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(&state) != nil || resp.StatusCode != http.StatusOK {
		return 0, -1
	}
	return state.Head, state.Count
}

func (l *loop) head(topic string) int  { head, _ := topicState(l.server, topic); return head }
func (l *loop) count(topic string) int { _, count := topicState(l.server, topic); return count }

// stored is what the topic holds, each record a line.
func (l *loop) stored() string {
	l.t.Helper()
	return weirtest.Must(l.t, "tail", l.server.URL+"/lines", "--from", "0", "--no-follow")
}

func (l *loop) checkLines(who string, got []string) {
	l.t.Helper()
	if len(got) != lineCount {
		l.t.Errorf("%s has %d lines, want %d", who, len(got), lineCount)
		return
	}
	for i, line := range got {
		if want := fmt.Sprintf("line %d", i); line != want {
			l.t.Errorf("%s: line %d is %q, want %q", who, i, line, want)
			return
		}
	}
}

// handled are the notes so far, in the order in which they were written.
func (l *loop) handled() (all []handling) {
	l.t.Helper()
	text, err := os.ReadFile(l.notes)
	if err != nil {
		l.t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1] // a line may be half there
	for note := range strings.Lines(string(text)) {
		var h handling
		var claimed, begun int64
		rest := ""
		if _, err := fmt.Sscanf(note, "%d %d %d %d line %s\n", &h.pid, &h.seq, &claimed, &begun, &rest); err != nil {
			l.t.Fatalf("a note is %q: %v", note, err)
		}
		h.claimed, h.begun, h.line = time.UnixMilli(claimed), time.UnixMilli(begun), "line "+rest
		all = append(all, h)
	}
	return all
}

// checkNotes judges what the workers did, and returns how many jobs were done again.
func (l *loop) checkNotes() (repeats int) {
	l.t.Helper()
	bySeq, byLine := map[int][]handling{}, map[string]int{}
	for _, h := range l.handled() {
		if seq, ok := byLine[h.line]; ok && seq != h.seq {
			l.t.Errorf("%q is in the queue twice, as %d and %d", h.line, seq, h.seq)
		}
		bySeq[h.seq], byLine[h.line] = append(bySeq[h.seq], h), h.seq
	}
	for n := range lineCount {
		if line := fmt.Sprintf("line %d", n); byLine[line] == 0 {
			l.t.Errorf("%q was never handled", line)
		}
	}
	most := 0
	for _, k := range l.kills {
		if most += atOnce; k.pid == 0 {
			most += atOnce * (workerCount - 1)
		}
	}
	for seq, times := range bySeq {
		slices.SortFunc(times, func(a, b handling) int { return a.claimed.Compare(b.claimed) })
		for i := 1; i < len(times); i++ {
			repeats++
			if !l.explained(times[i-1], times[i]) {
				l.t.Errorf("job %d was done again without a kill: %+v", seq, times)
			}
		}
	}
	if repeats > most {
		l.t.Errorf("%d jobs were done again, more than the %d that could be held at the kills", repeats, most)
	}
	return repeats
}

// explained reports whether between two claims of a job the server was killed, or the
// worker that had it first.
func (l *loop) explained(first, again handling) bool {
	return slices.ContainsFunc(l.kills, func(k kill) bool {
		whose := k.pid == 0 || k.pid == first.pid
		return whose && !first.claimed.After(k.back) && !again.begun.Before(k.begin.Truncate(time.Millisecond))
	})
}
