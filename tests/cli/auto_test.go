package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// Nothing is lost or done twice while the number of workers changes.
func TestWorkFindsItsNumberOfWorkers(t *testing.T) {
	t.Parallel()
	url := weirtest.Start(t, weirtest.Options{}).URL + "/jobs"
	lines := make([]string, 400)
	for i := range lines {
		lines[i] = fmt.Sprint("line ", i)
	}
	must(t, "publish", url, writeLines(t, lines))
	out := must(t, "work", url, "--workers=auto", "--max-workers=8", "--until-empty=300ms", "--json", "--", "sh", "-c", `echo "$(cat)"; sleep 0.02`)
	for _, line := range lines {
		if strings.Count(out, line+"\n") != 1 {
			t.Errorf("%q is there %d times", line, strings.Count(out, line+"\n"))
		}
	}
	if !strings.Contains(out, `"acked":400,"nacked":0,`) {
		t.Errorf("summary %s", out[strings.LastIndex(strings.TrimSpace(out), "\n"):])
	}
	if _, stderr, code := weirtest.Run(t, nil, "work", url, "--workers=many", "--", "cat"); code != 2 || !strings.Contains(stderr, `from 1 to 10000, or "auto"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
