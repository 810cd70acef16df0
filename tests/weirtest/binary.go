package weirtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/build"
)

const module = "github.com/weirmq/weir"

var binary = sync.OnceValues(buildBinary)

// Binary returns the path of the weir binary, building it on the first call.
// A failed build ends the test with the compiler's output.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatalf("weirtest: %v", err)
	}
	return path
}

func buildBinary() (string, error) {
	if path := os.Getenv("WEIRTEST_BINARY"); path != "" {
		return path, nil
	}
	dir, err := buildDir()
	if err != nil {
		return "", err
	}
	// Tests of another module, too, build the binary with weir's own go.mod.
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("where is %s: %w", module, err)
	}
	path := filepath.Join(dir, "weir")
	return path, build.Weir(context.Background(), strings.TrimSpace(string(root)), path, os.Getenv("WEIRTEST_RACE") == "1")
}

// buildDir makes the directory of this process's binary and removes those of
// test processes that are gone: a test process has no hook at its own end.
func buildDir() (string, error) {
	const prefix = "weirtest-bin-"
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range old {
		pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), prefix))
		if err == nil && syscall.Kill(pid, 0) == syscall.ESRCH {
			os.RemoveAll(dir)
		}
	}
	dir := filepath.Join(os.TempDir(), prefix+strconv.Itoa(os.Getpid()))
	return dir, os.MkdirAll(dir, 0o755)
}

// Run runs the weir binary with args to its end and returns what it printed
// and its exit code. env entries (KEY=VALUE) come on top of a clean environment.
func Run(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut strings.Builder
	cmd := exec.CommandContext(t.Context(), Binary(t), args...)
	cmd.Env = cleanEnv(env)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("weirtest: run %v: %v", args, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// cleanEnv is the test's environment without any WEIR_ variable and without contexts of the
// user, plus extra.
func cleanEnv(extra []string) []string {
	env := []string{"XDG_CONFIG_HOME=/nonexistent"}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") && !strings.HasPrefix(kv, "XDG_CONFIG_HOME=") {
			env = append(env, kv)
		}
	}
	return append(env, extra...)
}
