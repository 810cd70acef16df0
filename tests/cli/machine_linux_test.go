package cli

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// A process that may open too few files does not call what it cannot read damaged, which whoever
// believes it would mark as lost, or throw away.
func TestTooFewDescriptorsAreNoDamage(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	for i := range 3 {
		must(t, "topic", "create", fmt.Sprint(s.URL, "/t", i))
	}
	backup, data := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	must(t, "backup", s.URL, backup)
	must(t, "restore", backup, data)
	few := func(n int, args ...string) (string, bool) {
		t.Helper()
		command := exec.Command("prlimit", append([]string{fmt.Sprint("--nofile=", n), weirtest.Binary(t)}, args...)...)
		out, err := command.CombinedOutput()
		return string(out), err == nil
	}
	failed := 0
	for n := 8; n < 24; n++ {
		for _, args := range [][]string{{"repair", data}, {"repair", "--mark", data}, {"backup", "verify", backup}, {"restore", backup, filepath.Join(t.TempDir(), "new")}} {
			out, done := few(n, args...)
			if done || !strings.Contains(out, "too many open files") { // or the runtime has too few
				continue
			}
			failed++
			for _, wrong := range []string{"damaged", "restore a backup", "--no-verify", "--mark"} {
				if strings.Contains(out, wrong) {
					t.Errorf("%d descriptors, weir %s: %s", n, args[0], out)
				}
			}
		}
	}
	if failed == 0 {
		t.Error("there were always enough")
	}
	if out := must(t, "repair", data); !strings.Contains(out, "nothing is damaged") {
		t.Errorf("repair says %s", out)
	}
}
