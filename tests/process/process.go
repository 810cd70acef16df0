// Package process runs the servers of others for tests.
package process

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopTimeout is how long a server may take to end after a signal.
const stopTimeout = 30 * time.Second

// TB is what a server needs of a test; every testing.TB is one, and a program can bring
// its own.
type TB interface {
	Helper()
	TempDir() string
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Process is one process of a server. The nil one has ended.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start starts cmd, which ends with this process on Linux.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the state is read from cmd.ProcessState
		close(p.exited)
	}()
	return p, nil
}

// Signal sends sig. After SIGSTOP it waits until no thread runs any more, where the system
// tells: on a busy machine one may answer for some milliseconds longer.
func (p *Process) Signal(sig syscall.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if err == nil && sig == syscall.SIGSTOP {
		AwaitStop(p.cmd.Process.Pid)
	}
	return err
}

// AwaitStop waits until no thread of a process that was sent SIGSTOP runs any more.
func AwaitStop(pid int) {
	for end := time.Now().Add(stopTimeout); runs(pid) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// runs reports whether a thread of a process is not stopped.
func runs(pid int) bool {
	threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/stat")
	return slices.ContainsFunc(threads, func(name string) bool {
		stat, err := os.ReadFile(name)
		if err != nil {
			return false // it has ended
		}
		_, state, _ := strings.Cut(string(stat), ") ") // the name in front may have any character
		return !strings.HasPrefix(state, "T")
	})
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State is how it ended; call it after Exited.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// End signals the process, frozen or not, and waits until it is gone.
func (p *Process) End(sig syscall.Signal) {
	if p == nil {
		return
	}
	_ = p.Signal(sig) // an error means that it has ended already
	_ = p.Signal(syscall.SIGCONT)
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.exited
	}
}

// Tail is the end of a log, or why it cannot be read.
func Tail(path string) string {
	const most = 4000
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-most):])
}

// Ports are taken from below those that systems give to outgoing connections: one of
// these could have a server's port by the time that it comes back.
const (
	firstPort = 10_000
	pastPorts = 30_000
)

// reserved keeps a connection open for each port that FreePort has returned. Servers that start at once
// listen on theirs some time later, so that a port which is free may be somebody's already.
var reserved sync.Map

// FreePort returns a port of 127.0.0.1 that was free a moment ago, as was the one that lies
// gap behind it; 0 means that there is no such other. It returns no port twice.
func FreePort(gap int) (int, error) {
	var err error
	for range 100 {
		port := firstPort + rand.IntN(pastPorts-firstPort-gap)
		if err = take(port); err == nil && gap > 0 {
			err = take(port + gap)
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, err
}

// take keeps a port from all other processes that take theirs, until this one ends, also while its
// server is down: it holds the UDP port of the number, which no server here uses.
func take(port int) error {
	addr := "127.0.0.1:" + strconv.Itoa(port)
	c, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	reserved.Store(port, c)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}
