package main

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What stands still is told with the stacks of all goroutines, and the exit
// code is one of its own.
func TestAStallEndsTheProcessWithAllStacks(t *testing.T) {
	if os.Getenv("WEIR_TEST_END_STALLED") != "" {
		go standStill()
		endStalled(newLog(os.Stderr, "text", slog.LevelInfo), 30*time.Second, os.Stderr)("what was appended is not written")
	}
	var out strings.Builder
	cmd := exec.Command(os.Args[0], "-test.run", "^TestAStallEndsTheProcessWithAllStacks$")
	cmd.Env = append(os.Environ(), "WEIR_TEST_END_STALLED=1")
	cmd.Stderr = &out
	_ = cmd.Run() // the exit code is looked at below
	if code := cmd.ProcessState.ExitCode(); code != exitStalled {
		t.Errorf("exit code %d, want %d", code, exitStalled)
	}
	for _, want := range []string{"the log makes no progress", "for=30s", "what was appended is not written", "standStill", "endStalled"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("standard error does not say %q:\n%s", want, out.String())
		}
	}
}

func standStill() { select {} }
