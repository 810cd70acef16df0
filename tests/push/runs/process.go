package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/build"
)

// readyLimit is the longest time a start may take.
const readyLimit = 30 * time.Second

// WithServer builds weir, or takes binary if it is not empty, runs it on a
// fresh directory with env beside an environment without weir's variables, and
// calls use. The server is stopped and the directory removed at the end.
func WithServer(ctx context.Context, binary string, env []string, use func(Target) error) (err error) {
	dir, err := os.MkdirTemp("", "weir-push-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		binary = filepath.Join(dir, "weir")
		if err := build.Weir(ctx, "", binary, false); err != nil {
			return err
		}
	}
	portFile := filepath.Join(dir, "port")
	var printed strings.Builder
	cmd := exec.CommandContext(ctx, binary, "serve")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = readyLimit
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.Env = []string{"WEIR_PORT=0", "WEIR_PORT_FILE=" + portFile, "WEIR_DATA_DIR=" + filepath.Join(dir, "data")}
	for _, kv := range append(os.Environ(), env...) {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "WEIR_") || slices.Contains(env, kv) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	addr, err := awaitReady(ctx, portFile)
	if err == nil {
		err = use(Target{Addr: addr, PID: cmd.Process.Pid})
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // an error means it has ended
	if endErr := cmd.Wait(); endErr != nil || err != nil {
		all := printed.String()
		return fmt.Errorf("%w; the server ended with %v and printed:\n%s", orNone(err), cmd.ProcessState, all[max(0, len(all)-4000):])
	}
	return nil
}

func orNone(err error) error {
	if err == nil {
		return errors.New("the run itself was fine")
	}
	return err
}

func awaitReady(ctx context.Context, portFile string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for {
		addr, err := os.ReadFile(portFile)
		if err == nil && isReady(ctx, string(addr)) {
			return strings.TrimSpace(string(addr)), nil
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return "", fmt.Errorf("the server was not ready within %v: %w", readyLimit, err)
		}
	}
}

func isReady(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+strings.TrimSpace(addr)+"/v0/ready", nil)
	if err != nil {
		return false
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}
