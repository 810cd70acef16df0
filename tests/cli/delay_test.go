package cli

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/kafkatest"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

func TestADelayedLineComesLater(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"http":  weirtest.Start(t, weirtest.Options{}).URL + "/jobs",
		"file":  "file://" + t.TempDir() + "/data?topic=jobs",
		"redis": redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			publish(t, url, "tomorrow", "--delay=24h")
			publish(t, url, "late", "--delay=1ms")
			publish(t, url, "now")
			out := must(t, "work", url, "--until-empty=500ms", "--", "sh", "-c", `echo "did $(cat)"`)
			if !strings.Contains(out, "did now\n") || !strings.Contains(out, "did late\n") || strings.Contains(out, "tomorrow") {
				t.Errorf("output\n%s", out)
			}
			stored := 1
			if name == "redis" {
				stored = 3 // what is done stays until it is trimmed
			}
			if out := must(t, "sample", url); !strings.Contains(out, fmt.Sprintf(`"xlen":%d,"pending":0,"lag":0,`, stored)) || !strings.Contains(out, `"oldest_age_ms":0,"oldest_age_source":"none"`) {
				t.Errorf("one waits for tomorrow: %s", out)
			}
		})
	}
}

func TestADelayThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	lines := writeLines(t, []string{"x"})
	server := weirtest.Start(t, weirtest.Options{}).URL
	for want, args := range map[string][]string{
		"not supported by this backend":        {kafkatest.Start(t, kafkatest.Options{}).URL() + "/jobs", lines, "--delay=1s"},
		"not supported by this backend: topic": {server + "/log", lines, "--type=log", "--delay=1s"},
		"--delay 1s is not shorter than --":    {server + "/jobs", lines, "--delay=1s", "--deadline=1s"},
	} {
		_, errOut, code := weirtest.Run(t, nil, append([]string{"publish"}, args...)...)
		if code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit code %d\n%s", args[2:], code, errOut)
		}
	}
}

// Workers that are killed while messages become due by the hundred, and a server that is, lose
// none; what comes twice is at most what a killed worker held.
func TestKilledWorkersAndServersLoseNoDelayedLine(t *testing.T) {
	t.Parallel()
	const n, rounds, atATime, lease = 600, 4, 5, 2 * time.Second
	standing := stall.Watch()
	s := redistest.Start(t, redistest.Options{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	url, done := redisURL(s.Addr(), "jobs", "weir"), t.TempDir()+"/done"
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf("line-%d", i)
	}
	did := func() map[string]int {
		text, _ := os.ReadFile(done)
		times := map[string]int{}
		for line := range strings.Lines(string(text)) {
			times[strings.TrimSpace(line)]++
		}
		return times
	}
	work := func() *weirtest.Process {
		return weirtest.Go(t, nil, "work", url, "--workers", fmt.Sprint(atATime), "--batch", fmt.Sprint(atATime), "--reclaim-after", lease.String(), "--max-deliveries", "20",
			"--", "sh", "-c", `echo "$(cat)" >> `+done)
	}
	must(t, "publish", url, writeLines(t, lines), "--delay=1500ms")
	until := func(least int) {
		t.Helper()
		eventually(t, fmt.Sprintf("%d lines are done", least), func() bool { return len(did()) >= least })
	}
	for i := range rounds {
		worker := work()
		until((i + 1) * 50)
		if i%2 == 0 {
			worker.Signal(syscall.SIGKILL)
			<-worker.Exited()
			continue
		}
		s.Kill()
		s.Restart()
		until((i+1)*50 + 20)
		worker.Signal(syscall.SIGKILL)
		<-worker.Exited()
	}
	last := work()
	until(n)
	// What a killed worker had done and not acknowledged is still to be done again.
	var out string
	settled := fmt.Sprintf(`"xlen":%d,"pending":0,"lag":0,`, n)
	eventually(t, "all is acknowledged", func() bool {
		out = must(t, "sample", url)
		return strings.Contains(out, settled)
	})
	last.Signal(syscall.SIGTERM)
	<-last.Exited()
	twice := 0
	for line, times := range did() {
		if times > 1 {
			twice++
		}
		if !strings.HasPrefix(line, "line-") {
			t.Errorf("somebody did %q", line)
		}
	}
	// Where the machine stood still for as long, leases of living workers have run out, too.
	if most := (rounds + rounds/2 + int(2*standing()/lease)) * 2 * atATime; len(did()) != n || twice > most {
		t.Errorf("%d lines were done, want %d; %d of them more than once, want %d at most", len(did()), n, twice, most)
	}
}
