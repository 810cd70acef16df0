package library

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

func TestAPoolHealsItselfWhenWorkersAreKilled(t *testing.T) {
	const (
		idle = 3 * time.Second
		loop = 500 * time.Millisecond // --block
		// slack is what it takes besides: commands run and are looked at.
		slack = 1500 * time.Millisecond
	)
	s := newSite(t, "orders", "billing")
	lines := numbered("order", 400)
	s.publish(lines...)

	flags := []string{"--workers", "2", "--reclaim-after", idle.String(), "--block", loop.String()}
	standing := stall.Watch()
	var workers []*weirtest.Process
	names := []string{"w1", "w2", "w3", "w4", "w5"}
	for _, name := range names {
		workers = append(workers, s.work(name, `sleep 0.02; `+recordLine, flags...))
	}
	s.eventually("all five hold messages", func() bool {
		held := s.pendingOf()
		for _, name := range names {
			if held[name] == 0 {
				return false
			}
		}
		return len(s.handled()) > 20
	})
	workers[0].Signal(syscall.SIGSTOP)
	workers[1].Signal(syscall.SIGSTOP)
	held := s.pendingOf()
	orphans := held["w1"] + held["w2"]
	killed, stalled := time.Now(), stall.Busy()
	workers[0].Signal(syscall.SIGKILL)
	workers[1].Signal(syscall.SIGKILL)
	if held["w1"] == 0 || held["w2"] == 0 {
		t.Fatalf("the two held nothing when they were killed: %v", held)
	}
	recovered := s.since(killed, "the others have what the two held", func() bool {
		held := s.pendingOf()
		return held["w1"] == 0 && held["w2"] == 0
	})
	lost := stalled()
	s.eventually("all messages are done", s.drained)
	done := time.Since(killed)
	if recovered > idle+loop+slack+lost {
		t.Errorf("recovered after %s, want %s + one loop of %s", recovered, idle, loop)
	}
	seen, repeats := count(s.handled()), 0
	for _, line := range lines {
		if seen[line] == 0 {
			t.Errorf("%s was never handled", line)
		}
		repeats += max(seen[line]-1, 0)
	}
	// Where the machine stood still for as long, those that were not killed have lost leases, too.
	if stood := standing(); repeats > int(orphans) && stood < idle/2 {
		t.Errorf("%d repeats, more than the %d messages held at the kill; the machine stood still for %s", repeats, orphans, stood)
	}
	t.Logf("5 workers, 2 killed while they held %d messages: %d of %d messages done, taken over %s after the kill (idle %s + loop %s), all done after %s, %d repeats",
		orphans, len(seen), len(lines), recovered.Round(time.Millisecond), idle, loop, done.Round(time.Millisecond), repeats)
	for _, w := range workers[2:] {
		w.Signal(syscall.SIGTERM)
		w.Succeed()
	}
}

func TestAPoisonMessageIsKeptWithItsHistoryAndRedrivenWhenTheHandlerIsFixed(t *testing.T) {
	s := newSite(t, "orders", "billing")
	dir := t.TempDir()
	// The handler logs each run, and fails on "poison" until the file is there.
	script := `line=$(cat); echo "$WEIR_ID $WEIR_ATTEMPT $line" >> ` + dir + `/runs
[ "$line" != poison ] || [ -e ` + dir + `/fixed ] || { echo "cannot read the order" >&2; exit 7; }
echo "$WEIR_ID $WEIR_ATTEMPT $line" >> "$RECORD"`
	w := s.work("w1", script, "--workers", "2", "--retry-base", "50ms", "--block", "200ms", "--reclaim-after", "2s")
	s.publish("good-1", "poison", "good-2")
	dead := "{orders}:dlq"
	s.eventually("the poison is a dead letter", func() bool {
		n, _ := s.client.XLen(t.Context(), dead).Result()
		return n == 1 && s.drained()
	})
	runs, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(runs), " poison\n"); n != 3 {
		t.Errorf("the handler ran %d times on the poison, want exactly 3:\n%s", n, runs)
	}
	entries, err := s.client.XRange(t.Context(), dead, "-", "+").Result()
	if err != nil || len(entries) != 1 {
		t.Fatalf("dead letters %v, %v", entries, err)
	}
	got := entries[0].Values
	for name, want := range map[string]string{
		"data": "poison", "weir-dead-stream": "orders", "weir-dead-group": "billing", "weir-dead-attempts": "3",
		"weir-dead-reason": "max_deliveries", "weir-dead-consumer": "w1", "weir-dead-error": "exit status 7",
	} {
		if got[name] != want {
			t.Errorf("the dead letter's %s is %v, want %q", name, got[name], want)
		}
	}
	s.eventually("a log line tells of the dead letter", func() bool { return strings.Contains(w.Stderr.String(), "delivery_limit=3") })
	t.Logf("dead letter after exactly 3 deliveries: %v", got)

	if list := weirtest.Must(t, "dlq", "ls", s.url); !strings.Contains(list, entries[0].ID) {
		t.Errorf("weir dlq ls prints %q", list)
	}
	if err := os.WriteFile(filepath.Join(dir, "fixed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	out := weirtest.Must(t, "dlq", "redrive", "--wait", s.url)
	took := s.since(start, "the redriven message is handled", func() bool { return count(s.handled())["poison"] == 1 })
	if n, _ := s.client.XLen(t.Context(), dead).Result(); n != 0 {
		t.Errorf("%d dead letters left behind the redrive", n)
	}
	t.Logf("redriven and handled %s later: %s", took.Round(time.Millisecond), strings.TrimSpace(out))
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 3 { // with a dead letter
		t.Errorf("work ended with code %d", code)
	}
}
