package library

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/weirtest"
)

// TestEveryLineIsHandledThoughAWorkerAndTheKafkaBrokerAreKilled is the main job of README
// with another URL: it says of each repeat which of the two kills it comes from.
func TestEveryLineIsHandledThoughAWorkerAndTheKafkaBrokerAreKilled(t *testing.T) {
	t.Parallel()
	const held = 100 // at most handled by one process and not acknowledged yet
	text, err := os.ReadFile("../cli/testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	weirtest.Binary(t)
	broker := kafkatest.Start(t, kafkatest.Options{})
	url := broker.URL() + "/requests?partitions=4"
	began := time.Now()
	weirtest.Must(t, "publish", "--guard", "off", url, "../cli/testdata/access.log")
	published := time.Since(began)

	record := filepath.Join(t.TempDir(), "record")
	var workers []*weirtest.Process
	for i := range 3 {
		workers = append(workers, weirtest.Go(t, []string{"RECORD=" + record, fmt.Sprintf("WHO=w%d", i+1)}, "work", url, "--workers", "4",
			"--until-empty", "500ms", "--json", "--", "sh", "-c", `IFS= read -r line; printf '%s %s %s\n' "$WHO" "$WEIR_ID" "$line" >> "$RECORD"`))
	}
	handled := func() int {
		text, _ := os.ReadFile(record)
		return strings.Count(string(text), "\n")
	}
	weirtest.Eventually(t, "a quarter is handled", func() bool { return handled() >= len(lines)/4 })
	workers[0].Signal(syscall.SIGKILL)
	<-workers[0].Exited()
	workerKilled := handled()
	weirtest.Eventually(t, "half is handled", func() bool { return handled() >= len(lines)/2 })
	broker.Kill()
	brokerKilled, at := handled(), time.Now()
	broker.Restart()
	back := handled()
	weirtest.Eventually(t, "work goes on", func() bool { return handled() > back })
	pause := time.Since(at)
	for _, w := range workers[1:] {
		var sum struct{ Acked, Nacked, Reclaimed, Lost, DeadLettered int }
		if err := json.Unmarshal([]byte(w.Succeed()), &sum); err != nil {
			t.Fatalf("summary: %v", err)
		}
		t.Logf("worker: %+v", sum)
	}

	runs, by := runsOf(t, record, lines)
	repeats := map[string]int{}
	for _, places := range runs {
		for i := range places[1:] {
			first := places[i]
			switch {
			case by[first] == "w1" && first >= workerKilled-3*held:
				repeats["of the killed worker"]++
			case first >= brokerKilled-3*held && first <= back+held:
				repeats["unacknowledged when the broker was killed"]++
			default:
				t.Errorf("line %q ran again though no kill explains it: runs %v, the worker was killed at %d, the broker at %d", by[first], places, workerKilled, brokerKilled)
			}
		}
	}
	t.Logf("%d lines published in %s, none lost; the worker was killed at %d, the broker at %d, work went on %s after that, all done after %s; repeats: %v",
		len(lines), published.Round(time.Millisecond), workerKilled, brokerKilled, pause.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), repeats)
}

// runsOf reads a record of "WHO ID LINE" and returns at which places of it each message
// was handled, and by whom.
func runsOf(t *testing.T, path string, lines []string) (runs map[string][]int, by []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	left, runs := map[string]int{}, map[string][]int{}
	for _, line := range lines {
		left[line]++
	}
	for entry := range strings.Lines(string(text)) {
		who, rest, _ := strings.Cut(strings.TrimSuffix(entry, "\n"), " ")
		id, line, _ := strings.Cut(rest, " ")
		if runs[id] == nil {
			left[line]--
		}
		runs[id] = append(runs[id], len(by))
		by = append(by, cmp.Or(who, "nobody"))
	}
	for line, n := range left {
		if n != 0 {
			t.Errorf("%d of the messages with line %q were never handled", n, line)
		}
	}
	if len(runs) != len(lines) {
		t.Errorf("%d messages were handled, want %d", len(runs), len(lines))
	}
	return runs, by
}

// TestAPoisonMessageOnKafkaIsKeptAndRedrivenWhenTheHandlerIsFixed, with the commands alone.
func TestAPoisonMessageOnKafkaIsKeptAndRedrivenWhenTheHandlerIsFixed(t *testing.T) {
	t.Parallel()
	weirtest.Binary(t)
	broker := kafkatest.Start(t, kafkatest.Options{})
	url, dir := broker.URL()+"/orders?partitions=2&group=billing", t.TempDir()
	lines := filepath.Join(dir, "lines")
	if err := os.WriteFile(lines, []byte("good-1\npoison\ngood-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	weirtest.Must(t, "publish", "--guard", "off", url, lines)
	// The handler logs each run, and fails on "poison" until the file is there.
	w := weirtest.Go(t, []string{"DIR=" + dir}, "work", url, "--consumer", "w1", "--workers", "2", "--retry-base", "50ms", "--", "sh", "-c",
		`line=$(cat); echo "$WEIR_ATTEMPT $line" >> "$DIR/runs"; [ "$line" != poison ] || [ -e "$DIR/fixed" ] || exit 7; echo "$line" >> "$DIR/done"`)
	file := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name)) // absent at first
		return string(text)
	}
	letters := func() string { return strings.TrimSpace(weirtest.Must(t, "dlq", "ls", url, "--json")) }
	weirtest.Eventually(t, "the poison is a dead letter", func() bool {
		return strings.Count(file("runs"), "poison") >= 3 && letters() != ""
	})
	if runs := file("runs"); strings.Count(runs, " poison\n") != 3 || !strings.Contains(runs, "3 poison\n") || strings.Count(file("done"), "good") != 2 {
		t.Errorf("the handler's runs, want three of the poison and one of each other:\n%s", runs)
	}
	letter := letters()
	for _, want := range []string{"max_deliveries", "orders", "billing", "exit status 7"} {
		if !strings.Contains(letter, want) {
			t.Errorf("the dead letter does not say %q: %s", want, letter)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "fixed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out := weirtest.Must(t, "dlq", "redrive", "--wait", url)
	weirtest.Eventually(t, "the redriven message is handled", func() bool { return strings.Contains(file("done"), "poison") })
	t.Logf("dead after exactly 3 deliveries: %s; redriven and handled %s later: %s", letter, time.Since(began).Round(time.Millisecond), strings.TrimSpace(out))
	if left := letters(); left != "" {
		t.Errorf("left behind the redrive: %s", left)
	}
	w.Signal(syscall.SIGTERM)
	if code := w.Wait(); code != 3 { // with a dead letter
		t.Errorf("work ended with code %d", code)
	}
}
