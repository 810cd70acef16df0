package cli

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

func TestADelayedLineComesLater(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"http": weirtest.Start(t, weirtest.Options{}).URL + "/jobs",
		"file": "file://" + t.TempDir() + "/data?topic=jobs",
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
			if out := must(t, "sample", url); !strings.Contains(out, `"xlen":1,"pending":0,"lag":0,`) || !strings.Contains(out, `"oldest_age_ms":0,"oldest_age_source":"none"`) {
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
		"not supported by this backend":     {redisURL(redistest.Start(t, redistest.Options{}).Addr(), "jobs", "weir"), lines, "--delay=1s"},
		"not_a_queue":                       {server + "/log", lines, "--type=log", "--delay=1s"},
		"--delay 1s is not shorter than --": {server + "/jobs", lines, "--delay=1s", "--deadline=1s"},
	} {
		_, errOut, code := weirtest.Run(t, nil, append([]string{"publish"}, args...)...)
		if code == 0 || !strings.Contains(errOut, want) {
			t.Errorf("%q: exit code %d\n%s", args[2:], code, errOut)
		}
	}
}
