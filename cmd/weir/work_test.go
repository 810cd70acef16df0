package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/internal/client"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/capture"
	"github.com/weirmq/weir/tests/stall"
)

// running is a `weir work` in this process, with signals the test sends.
type running struct {
	*worker
	signals chan os.Signal
	done    chan error
	logs    *capture.Buffer
}

// startWork runs `weir work` with a shell script as its command. A zero option is
// the command's default, made short.
func startWork(t *testing.T, f *fakeServer, cfg weir.PoolConfig, script string) *running {
	t.Helper()
	w := prepareWork(t, f, cfg, script)
	w.start(t)
	return w
}

func prepareWork(t *testing.T, f *fakeServer, cfg weir.PoolConfig, script string) *running {
	t.Helper()
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&cfg.Block, 50*time.Millisecond)
	set(&cfg.ReclaimAfter, 5*time.Second)
	set(&cfg.RetryBase, 20*time.Millisecond)
	set(&cfg.RetryMax, time.Second)
	set(&cfg.DrainTimeout, 10*time.Second)
	set(&cfg.AckLinger, time.Millisecond)
	cfg.Workers, cfg.Batch = max(cfg.Workers, 1), max(cfg.Batch, 10)
	s, err := open.URL(t.Context(), f.URL+"/jobs")
	if err != nil {
		t.Fatal(err)
	}
	logs := &capture.Buffer{}
	cfg.Logger = slog.New(slog.NewTextHandler(logs, nil))
	w := &running{signals: make(chan os.Signal, 2), done: make(chan error, 1), logs: logs}
	w.worker = &worker{stream: s, log: logs, handler: &handler{
		path: "/bin/sh", args: []string{"sh", "-c", script}, info: s.Info(), stdout: logs, stderr: logs,
	}}
	if w.pool, err = weir.NewPool(s, w.handle, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		if t.Failed() {
			t.Logf("output of weir work:\n%s", logs)
		}
	})
	return w
}

func (w *running) start(t *testing.T) {
	t.Helper()
	go func() { w.done <- w.run(t.Context(), w.signals) }()
}

func (w *running) wait(t *testing.T) {
	t.Helper()
	select {
	case err := <-w.done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("weir work did not end")
	}
}

// eventually waits for a condition that another process or goroutine brings about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !ok() {
		if client.Sleep(ctx, 2*time.Millisecond) != nil {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(text)
}

func TestWorkGivesPayloadAndEnvironmentAndAcksOnZero(t *testing.T) {
	f := newFakeServer(t)
	dir, payloads := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", payloads)
	f.add("jobs", `"a \"text\"\nof two lines"`, `{"n": 1}`)
	res := runWeir(t, "", "work", f.URL+"/jobs", "--until-empty", "50ms", "--json", "--workers", "2", "--",
		"sh", "-c", `cat > `+dir+`/$WEIR_SEQ; echo "$WEIR_TOPIC $WEIR_DELIVERIES $WEIR_TAG $WEIR_META" >> `+dir+`/env.$WEIR_SEQ`)
	if res.err != nil {
		t.Fatal(res.err)
	}
	if got := readFile(t, dir+"/1"); got != "a \"text\"\nof two lines" {
		t.Errorf("payload %q", got)
	}
	if got := readFile(t, dir+"/2"); got != `{"n":1}` && got != `{"n": 1}` {
		t.Errorf("payload %q", got)
	}
	if got := readFile(t, dir+"/env.1"); got != "jobs 1 a tag {\"k\":\"v\"}\n" {
		t.Errorf("environment %q", got)
	}
	if !strings.Contains(res.stdout, `"acked":2,"nacked":0`) {
		t.Errorf("summary %s", res.stdout)
	}
	if left := f.data("jobs"); len(left) > 0 {
		t.Errorf("left in the queue: %v", left)
	}
	if left, err := os.ReadDir(payloads); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of temporary files: %v, %v", left, err)
	}
}

// The child has what is printed: it is nobody's business how long that stays open.
func TestACommandThatLeavesAChildHasSucceeded(t *testing.T) {
	f := newFakeServer(t)
	child := filepath.Join(t.TempDir(), "child")
	t.Cleanup(func() {
		if pid, err := strconv.Atoi(strings.TrimSpace(readFile(t, child))); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	f.add("jobs", `"a"`)
	res := runWeir(t, "", "work", f.URL+"/jobs", "--until-empty", "50ms", "--json", "--", "sh", "-c", "sleep 300 & echo $! > "+child)
	if res.err != nil || !strings.Contains(res.stdout, `"acked":1,"nacked":0`) {
		t.Errorf("%v, summary %s", res.err, res.stdout)
	}
}

func TestWorkCreatesAnAbsentQueueAndWakesForNewMessages(t *testing.T) {
	f := newFakeServer(t)
	w := startWork(t, f, weir.PoolConfig{Block: 10 * time.Second}, "cat > /dev/null")
	eventually(t, "the queue is there and watched", func() bool { return f.count("diff") > 0 })
	f.add("jobs", "1")
	eventually(t, "the message is done", func() bool { return len(f.data("jobs")) == 0 })
	w.signals <- syscall.SIGTERM
	w.wait(t)
	if cfg := f.topics["jobs"].config; cfg["type"] != "queue" || cfg["max_deliveries"] != nil {
		t.Errorf("configuration %v", cfg)
	}
}

func TestWorkRefusesALog(t *testing.T) {
	f := newFakeServer(t)
	f.topic("jobs").config["type"] = "log"
	res := runWeir(t, "", "work", f.URL+"/jobs", "--", "true")
	if res.err == nil || !strings.Contains(res.err.Error(), "open a topic of type queue") {
		t.Errorf("error %v", res.err)
	}
}

func TestWorkRetriesFailuresAndDeadLettersThem(t *testing.T) {
	f := newFakeServer(t)
	f.add("jobs", `"good"`, `"bad"`)
	w := startWork(t, f, weir.PoolConfig{UntilEmpty: 100 * time.Millisecond}, `[ "$(cat)" = good ]`)
	w.wait(t)
	if n := w.pool.Stats(); n.Acked != 1 || n.Retried != 2 || n.Dead != 1 || n.Redelivered != 2 {
		t.Errorf("summary %+v, want 1 acked, 2 retried, 1 dead, 2 delivered before", n)
	}
	if got := f.data("jobs.dlq"); len(got) != 1 || got[0] != `"bad"` {
		t.Errorf("dead letters %v", got)
	}
}

func TestWorkDrainsOnSIGTERM(t *testing.T) {
	f := newFakeServer(t)
	dir := t.TempDir()
	f.add("jobs", "1", "2", "3", "4", "5")
	w := startWork(t, f, weir.PoolConfig{}, `touch `+dir+`/begun.$WEIR_SEQ; while [ ! -e `+dir+`/go ]; do sleep 0.01; done`)
	eventually(t, "a handler runs", func() bool { return readable(dir + "/begun.1") })
	w.signals <- syscall.SIGTERM
	eventually(t, "what was claimed ahead is given back", func() bool { return w.pool.Stats().Returned > 0 })
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.wait(t)
	if n := w.pool.Stats(); n.Acked != 1 || n.Returned < 1 {
		t.Errorf("summary %+v, want 1 acked and what was claimed ahead returned", n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for seq := uint64(2); seq <= 5; seq++ {
		if j := f.topics["jobs"].jobs[seq]; j.held || j.deliveries != 0 {
			t.Errorf("seq %d: held %v, %d deliveries; want it given back as not begun", seq, j.held, j.deliveries)
		}
	}
}

func readable(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestASecondSignalKillsTheProcessGroup(t *testing.T) {
	f := newFakeServer(t)
	dir := t.TempDir()
	f.add("jobs", "1")
	w := startWork(t, f, weir.PoolConfig{DrainTimeout: time.Hour}, `sleep 1000 & echo $! > `+dir+`/child; touch `+dir+`/begun; wait`)
	eventually(t, "a handler runs", func() bool { return readable(dir + "/begun") })
	stalled := stall.Watch()
	w.signals <- syscall.SIGTERM
	w.signals <- syscall.SIGTERM // is the same one, sent to the process and to its group
	eventually(t, "the pool drains", func() bool { return len(w.signals) == 0 && strings.Contains(w.logs.String(), "draining") })
	time.Sleep(sameSignal)
	if len(w.done) > 0 && stalled() < sameSignal/2 {
		t.Fatal("one signal, sent twice, ended the handler")
	}
	w.signals <- syscall.SIGINT
	w.wait(t)
	if n := w.pool.Stats(); n.Retried != 1 {
		t.Errorf("summary %+v, want the message given back", n)
	}
	var child int
	if _, err := fmt.Sscan(readFile(t, dir+"/child"), &child); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the handler's child is gone", func() bool { return !alive(child) })
}

// alive reports whether the process is there and not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestWorkKeepsALeaseLongerThanItself(t *testing.T) {
	const lease = time.Second
	for range 20 {
		f := newFakeServer(t)
		f.add("jobs", "1", "2")
		stalled := stall.Watch()
		w := startWork(t, f, weir.PoolConfig{Workers: 2, ReclaimAfter: lease, UntilEmpty: 50 * time.Millisecond}, `sleep 2.5`)
		w.wait(t)
		n, lost := w.pool.Stats(), stalled()
		switch {
		case n.Acked == 2 && n.Unsettled == 0 && n.Lost == 0 && n.Redelivered == 0:
			return
		case lost < lease/4:
			t.Fatalf("summary %+v, want both acked at their first delivery", n)
		}
		t.Logf("tried again, because the machine stalled for %s: %+v", lost, n)
	}
	t.Error("in 20 tries this machine was never quick enough")
}

func TestWorkKillsAHandlerWhoseLeaseIsLost(t *testing.T) {
	f := newFakeServer(t)
	dir := t.TempDir()
	f.forgets = true
	f.add("jobs", "1")
	w := startWork(t, f, weir.PoolConfig{ReclaimAfter: time.Second}, `touch `+dir+`/begun; exec sleep 1000`)
	eventually(t, "a handler runs", func() bool { return readable(dir + "/begun") })
	eventually(t, "the lease is given up", func() bool { return w.pool.Stats().Unsettled > 0 })
	eventually(t, "the handler is killed", func() bool { n := w.pool.Stats(); return n.Busy == 0 && n.Stuck == 0 })
	w.signals <- syscall.SIGTERM
	w.signals <- syscall.SIGTERM
	w.wait(t)
}

func TestHandlerTimeoutGivesTheMessageBack(t *testing.T) {
	f := newFakeServer(t)
	f.add("jobs", "1")
	w := startWork(t, f, weir.PoolConfig{HandlerTimeout: 100 * time.Millisecond, MaxDeliveries: 1, UntilEmpty: 50 * time.Millisecond}, `sleep 1000`)
	w.wait(t)
	if n := w.pool.Stats(); n.Dead != 1 || len(f.data("jobs.dlq")) != 1 {
		t.Errorf("summary %+v, dead letters %v", n, f.data("jobs.dlq"))
	}
}

func TestWorkOutlivesAnAbsentServer(t *testing.T) {
	f := newFakeServer(t)
	n := 0
	f.fault = func(string) fault {
		if n++; n > 35 {
			return faultNone
		}
		return [...]fault{faultDrop, faultNotReady, faultNone, faultThrottle, faultNone, faultLoseAnswer, faultNone}[n%7]
	}
	var want int
	for i := range 60 {
		f.add("jobs", fmt.Sprint(i))
		want++
	}
	dir := t.TempDir()
	w := startWork(t, f, weir.PoolConfig{Workers: 4, ReclaimAfter: 500 * time.Millisecond, UntilEmpty: 50 * time.Millisecond,
		MaxDeliveries: -1}, `touch `+dir+`/$WEIR_SEQ`) // lost answers use deliveries up
	w.wait(t)
	done, err := os.ReadDir(dir)
	if err != nil || len(done) != want {
		t.Errorf("%d messages handled, want %d (%v)", len(done), want, err)
	}
}

func TestWorkNamesACommandThatIsNotThere(t *testing.T) {
	f := newFakeServer(t)
	res := runWeir(t, "", "work", f.URL+"/jobs", "--", "no-such-command-anywhere")
	if res.err == nil || !strings.Contains(res.err.Error(), "no-such-command-anywhere") {
		t.Errorf("error %v", res.err)
	}
	if f.count("claim") > 0 {
		t.Error("messages were claimed for a command that cannot run")
	}
}

// What cannot be passed to any command is the message's fault: the worker goes on.
func TestHeadersThatNoEnvironmentHoldsFailTheirMessageOnly(t *testing.T) {
	h := &handler{path: "/bin/sh", args: []string{"sh", "-c", "exit 0"}, stdout: io.Discard, stderr: io.Discard}
	err := h.run(t.Context(), &weir.Delivery{Headers: map[string]string{"note": strings.Repeat("x", 8<<20)}})
	if err == nil || errors.Is(err, errCannotStart) || !strings.Contains(err.Error(), "headers are too large") {
		t.Errorf("%v", err)
	}
	h.args = []string{"sh", "-c", "exit 0 # " + strings.Repeat("x", 8<<20)}
	if err := h.run(t.Context(), &weir.Delivery{Headers: map[string]string{"note": "x"}}); !errors.Is(err, errCannotStart) {
		t.Errorf("a command that is too long: %v", err)
	}
}

// No variable can hold a NUL, and any producer can write one.
func TestAHeaderWithANULReachesItsCommand(t *testing.T) {
	h := &handler{path: "/bin/sh", args: []string{"sh", "-c", "test \"$WEIR_HEADER_NOTE\" = 'a\uFFFDb'"}, stdout: io.Discard, stderr: io.Discard}
	if err := h.run(t.Context(), &weir.Delivery{Headers: map[string]string{"note": "a\x00b"}}); err != nil {
		t.Error(err)
	}
}

// As after `weir work … | head -1`: every command ends by SIGPIPE.
func TestWorkEndsWhenNobodyReadsItsOutput(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	for _, name := range []string{"stdout", "stderr"} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			for i := range 20 {
				f.add("jobs", fmt.Sprint(i))
			}
			r, out, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			w := prepareWork(t, f, weir.PoolConfig{MaxDeliveries: 2}, "echo out; echo err >&2; exit 3")
			if name == "stdout" {
				w.handler.stdout = out
			} else {
				w.handler.stderr = out
			}
			r.Close()
			w.start(t)
			select {
			case err = <-w.done:
			case <-time.After(time.Minute):
				t.Fatal("weir work did not end")
			}
			if !errors.Is(err, errUnread) || !strings.Contains(err.Error(), "/dev/null") {
				t.Errorf("it ended with %v", err)
			}
			if n := w.pool.Stats(); n.Retried == 0 || n.Dead != 0 {
				t.Errorf("%d messages failed, %d are dead letters", n.Retried, n.Dead)
			}
		})
	}
}

func TestTheSummaryOfAnyNameIsJSON(t *testing.T) {
	f := newFakeServer(t)
	consumer := "\a\u00ad\x7f\U000e0001"
	res := runWeir(t, "", "work", f.URL+"/jobs", "--until-empty", "10ms", "--json", "--consumer", consumer, "--", "true")
	var summary struct{ Topic, Node string }
	if err := json.Unmarshal([]byte(res.stdout), &summary); res.err != nil || err != nil || summary.Topic != "jobs" || summary.Node != consumer {
		t.Errorf("%s: %v, %v", res.stdout, err, res.err)
	}
}
