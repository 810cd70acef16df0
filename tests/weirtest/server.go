package weirtest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/process"
)

// How long a server may take to become ready and to end after a signal.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 30 * time.Second
)

// Options of a server. The zero value is a server with defaults and a fresh
// data directory.
type Options struct {
	Dir  string   // data directory; default: a temporary one of the test
	Env  []string // KEY=VALUE settings; no WEIR_ variable is inherited
	Args []string // more arguments behind "serve"
	// Files is how many file descriptors the process may have; 0: as many as the test.
	Files int
	// Group is the control group that the process is started in, a directory; empty: the test's.
	Group string
	// NoWait returns once the port is known, before the server is ready.
	NoWait bool
	// Stays says that the server has its first address after each Restart, too.
	Stays bool
}

// Server is one weir process, replaced by a new one at Restart. Its methods
// are for one goroutine at a time, except Stderr, RSS and PeakRSS.
type Server struct {
	URL  string // http://127.0.0.1:port of the current process
	Addr string // host:port of the same
	Dir  string // data directory

	t      testing.TB
	opt    Options
	copy   string // URL of the copy, if the servers of this run keep one
	port   int    // 0: any, another one after each Restart
	stderr *Output
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// Start starts `weir serve` and waits until /v0/ready answers 200. The process
// is killed at the end of the test if it still runs.
func Start(t testing.TB, opt Options) *Server {
	t.Helper()
	s, err := TryStart(t, opt)
	if err != nil {
		t.Fatalf("weirtest: %v", err)
	}
	return s
}

// TryStart is Start for servers that may refuse to start: it returns an error
// that holds the exit code and the standard error if the process ends before it
// is ready. The Server is returned in both cases.
func TryStart(t testing.TB, opt Options) (*Server, error) {
	t.Helper()
	s := &Server{t: t, opt: opt, Dir: opt.Dir, stderr: &Output{}}
	if s.Dir == "" {
		s.Dir = t.TempDir()
	}
	if err := s.keepCopy(); err != nil {
		return s, err
	}
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		if t.Failed() && os.Getenv("WEIRTEST_STDERR") != "1" {
			t.Logf("weirtest: standard error of the server in %s:\n%s", s.Dir, tail(s.Stderr(), 8000))
		}
	})
	if opt.Stays {
		return s, s.startToStay()
	}
	return s, s.start()
}

// startToStay starts the server on a port that is free, trying others if it was not.
func (s *Server) startToStay() error {
	for try := 0; ; try++ {
		var err error
		if s.port, err = process.FreePort(0); err != nil {
			return err
		}
		err = s.start()
		if err == nil || try == 9 || !strings.Contains(s.Stderr(), "address already in use") {
			return err
		}
	}
}

// Stop sends SIGTERM, waits for the process to end and returns its exit code.
func (s *Server) Stop() int {
	s.t.Helper()
	if !s.end(syscall.SIGTERM) {
		s.t.Fatalf("weirtest: the server did not end within %v of SIGTERM", stopTimeout)
	}
	return s.cmd.ProcessState.ExitCode()
}

// Kill sends SIGKILL and waits for the process to end.
func (s *Server) Kill() {
	s.t.Helper()
	if !s.end(syscall.SIGKILL) {
		s.t.Fatalf("weirtest: the server did not end within %v of SIGKILL", stopTimeout)
	}
}

// Signal sends sig and returns at once.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Exited is closed when the current process has ended.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Restart starts a new process on the same data directory, with the same
// options, after stopping the current one gracefully if it still runs. URL and
// Addr change, unless it Stays.
func (s *Server) Restart() {
	s.t.Helper()
	if s.Running() {
		s.Stop()
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("weirtest: restart: %v", err)
	}
}

// SetEnv replaces the settings for the next Restart.
func (s *Server) SetEnv(env []string) { s.opt.Env = env }

// Running reports whether the current process has not ended yet.
func (s *Server) Running() bool {
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// PID is the process id of the current process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Stderr is what all processes of this server have written to standard error.
func (s *Server) Stderr() string { return s.stderr.String() }

// RSS is the resident set of the process in bytes, 0 if it has ended.
func (s *Server) RSS() int64 { return s.status("VmRSS:") }

// PeakRSS is the largest resident set of the process so far, in bytes.
func (s *Server) PeakRSS() int64 { return s.status("VmHWM:") }

func (s *Server) status(field string) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID()), "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// keepCopy gives the server a copy of its own if WEIRTEST_REPLICA is set: to the URL of
// a copy in which %s stands for the server, such as file:///tmp/copies/%s. With
// WEIRTEST_REPLICA_SYNC=1 it is a synchronous one.
func (s *Server) keepCopy() error {
	template := os.Getenv("WEIRTEST_REPLICA")
	if template == "" || slices.ContainsFunc(s.opt.Args, func(a string) bool { return strings.HasPrefix(a, "--upstream") }) {
		return nil
	}
	s.copy = strings.ReplaceAll(template, "%s", fmt.Sprintf("s%016x", rand.Uint64()))
	if dir, ok := strings.CutPrefix(s.copy, "file://"); ok {
		return os.MkdirAll(dir, 0o700)
	}
	return nil
}

func (s *Server) start() error {
	portFile := filepath.Join(s.t.TempDir(), "port")
	env := []string{"WEIR_HOST=127.0.0.1", "WEIR_PORT=" + strconv.Itoa(s.port), "WEIR_PORT_FILE=" + portFile, "WEIR_DATA_DIR=" + s.Dir}
	if s.copy != "" {
		env = append(env, "WEIR_REPLICA="+s.copy, "WEIR_REPLICA_SYNC="+cmp.Or(os.Getenv("WEIRTEST_REPLICA_SYNC"), "0"))
	}
	cmd := exec.Command(Binary(s.t), append([]string{"serve"}, s.opt.Args...)...)
	first := ""
	if s.opt.Files > 0 {
		first += fmt.Sprintf("ulimit -n %d && ", s.opt.Files)
	}
	if s.opt.Group != "" {
		first += fmt.Sprintf("echo $$ > '%s/cgroup.procs' && ", s.opt.Group)
	}
	if first != "" {
		cmd = exec.Command("sh", append([]string{"-c", first + `exec "$0" "$@"`}, cmd.Args...)...)
	}
	cmd.Env = cleanEnv(append(env, s.opt.Env...))
	cmd.Stdout, cmd.Stderr = s.stderr, s.stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state is read from cmd.ProcessState
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited
	if err := s.awaitPort(portFile); err != nil {
		return err
	}
	if s.opt.NoWait {
		return nil
	}
	return s.AwaitReady()
}

func (s *Server) awaitPort(file string) error {
	return s.poll("a port", func() error {
		addr, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		host, port, err := net.SplitHostPort(strings.TrimSpace(string(addr)))
		if err != nil {
			return err
		}
		if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
			host = "127.0.0.1"
		}
		s.Addr = net.JoinHostPort(host, port)
		s.URL = "http://" + s.Addr
		return nil
	})
}

// AwaitReady waits until /v0/ready answers 200.
func (s *Server) AwaitReady() error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	return s.poll("readiness", func() error {
		resp, err := client.Get(s.URL + "/v0/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		switch resp.StatusCode {
		case http.StatusOK, http.StatusUnauthorized: // 401: probes need a key, so it serves
			return nil
		}
		return fmt.Errorf("/v0/ready answers %d", resp.StatusCode)
	})
}

// poll calls check until it succeeds, the process ends or time is up.
func (s *Server) poll(what string, check func() error) error {
	ticks := time.NewTicker(2 * time.Millisecond)
	defer ticks.Stop()
	deadline := time.After(startTimeout)
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the server ended with code %d before %s:\n%s",
				s.cmd.ProcessState.ExitCode(), what, tail(s.Stderr(), 8000))
		case <-deadline:
			return errors.Join(fmt.Errorf("no %s within %v:\n%s", what, startTimeout, tail(s.Stderr(), 8000)), err)
		case <-ticks.C:
		}
	}
}

// end signals the process and reports whether it ended in time.
func (s *Server) end(sig syscall.Signal) bool {
	if s.cmd == nil {
		return true
	}
	_ = s.cmd.Process.Signal(sig) // an error means it has ended already
	select {
	case <-s.exited:
		return true
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill()
		<-s.exited
		return false
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

// Output collects what processes print, keeping the last 16 MiB.
type Output struct {
	mu   sync.Mutex
	text []byte
}

const outputBound = 16 << 20

// Write adds what a process printed.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if os.Getenv("WEIRTEST_STDERR") == "1" {
		_, _ = os.Stderr.Write(p)
	}
	o.text = append(o.text, p...)
	if extra := len(o.text) - outputBound; extra > 0 {
		o.text = append(o.text[:0], o.text[extra:]...)
	}
	return len(p), nil
}

// String is what was printed up to now.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}
