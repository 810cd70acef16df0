package weirtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/process"
)

// processTimeout is how long a command of a test may take to end by itself.
const processTimeout = 2 * time.Minute

// Process is a weir command that runs beside the test.
type Process struct {
	Stdout Output
	Stderr Output

	t      testing.TB
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// Go starts `weir args…` and kills it at the end of the test if it still runs.
// It inherits the test's environment without its WEIR_ variables; env comes on top.
func Go(t testing.TB, env []string, args ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(Binary(t), args...), exited: make(chan struct{})}
	p.cmd.Env = cleanEnv(env)
	p.cmd.Stdout, p.cmd.Stderr = &p.Stdout, &p.Stderr
	p.cmd.WaitDelay = 5 * time.Second // handlers of a killed worker hold its output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state is read from cmd.ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.Signal(syscall.SIGCONT)
		p.Signal(syscall.SIGKILL)
		<-p.exited
		if t.Failed() {
			t.Logf("weir %s:\n%s%s", strings.Join(args, " "), p.Stdout.String(), p.Stderr.String())
		}
	})
	return p
}

// Signal sends sig; the process may have ended. After SIGSTOP it waits until no thread runs any
// more, where the system tells.
func (p *Process) Signal(sig syscall.Signal) {
	if p.cmd.Process.Signal(sig) == nil && sig == syscall.SIGSTOP {
		process.AwaitStop(p.cmd.Process.Pid)
	}
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Running reports whether the process is there and not a zombie. Not all that it has printed may be in
// Stdout and Stderr before Exited is closed.
func (p *Process) Running() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Wait waits for the end and returns the exit code.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(processTimeout):
		p.t.Fatalf("weir %v did not end", p.cmd.Args[1:])
		return -1
	}
}

// Succeed waits for the end, fails the test unless the exit code is 0, and
// returns what was printed.
func (p *Process) Succeed() string {
	p.t.Helper()
	if code := p.Wait(); code != 0 {
		p.t.Fatalf("weir %v ended with code %d", p.cmd.Args[1:], code)
	}
	return p.Stdout.String()
}

// Must runs a command to its end, which has to be a good one, and returns its
// standard output.
func Must(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, code := Run(t, nil, args...)
	if code != 0 {
		t.Fatalf("weir %v ended with code %d: %s", args, code, stderr)
	}
	return stdout
}

// Eventually waits for what other processes bring about.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(processTimeout)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
