package redistest

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/tests/process"
)

// TB is what redistest needs of a test; every testing.TB is one, and a program can bring its own.
type TB = process.TB

// How long a server may take to answer.
const (
	startTimeout = time.Minute
	pollEvery    = 5 * time.Millisecond
)

// Options of a server. The zero value is the system's redis-server with nothing
// persisted.
type Options struct {
	Version string   // one of Versions; empty: System
	Args    []string // more arguments, such as "--appendonly", "yes"
	Dir     string   // its directory; empty: a temporary one of the test
	Steady  bool     // behind Sentinels: it is replaced after a minute without an answer, not after half a second
}

// Server is one redis-server, replaced by a new process at Restart. Its methods
// are for one goroutine at a time, except Addr and URL.
type Server struct {
	t       TB
	opt     Options
	binary  string
	port    int
	args    func() []string  // of the next process
	process *process.Process // nil: none has been started
}

// Start starts a server, waits until it answers and ends it with the test.
func Start(t TB, opt Options) *Server {
	t.Helper()
	s := prepare(t, opt)
	s.args = s.serverArgs
	if err := s.launch(freePort); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return s
}

// StartTLS is Start of a server that listens with TLS as well, at the address that it returns. It has
// a certificate with its key and asks clients for one of the authorities in ca, unless
// more arguments say otherwise. The parameters are names of files.
func StartTLS(t TB, certificate, key, ca string, args ...string) (s *Server, addr string) {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	with := strconv.Itoa(port)
	s = Start(t, Options{Args: append([]string{
		"--tls-port", with, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", ca,
	}, args...)})
	return s, net.JoinHostPort("127.0.0.1", with)
}

// Patience is how long the clients of tests wait for an answer. Those of go-redis give up after 3 s, for
// which a machine may stand still.
const Patience = time.Minute

// Client returns a client of the server, without retries, that is closed with
// the test.
func (s *Server) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: s.Addr(), Protocol: 2, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: Patience, ReadTimeout: Patience, WriteTimeout: Patience,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func prepare(t TB, opt Options) *Server {
	t.Helper()
	binary, err := Binary(opt.Version)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	if opt.Dir == "" {
		opt.Dir = t.TempDir()
	}
	s := &Server{t: t, opt: opt, binary: binary}
	t.Cleanup(func() {
		s.process.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("redistest: log of the server on %s:\n%s", s.Addr(), s.logTail())
		}
	})
	return s
}

// launch starts the process on a port that is free, trying others if somebody
// was quicker to take it.
func (s *Server) launch(choose func() (int, error)) error {
	for try := 0; ; try++ {
		port, err := choose()
		if err != nil {
			return err
		}
		s.port = port
		if err = s.run(); err == nil || try == 4 || !strings.Contains(s.logTail(), "in use") {
			return err
		}
	}
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server's address as a URL without a stream: redis://host:port/0.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Dir is the server's directory; redis.log in it is its log.
func (s *Server) Dir() string { return s.opt.Dir }

// Kill ends the process with SIGKILL.
func (s *Server) Kill() { s.process.End(syscall.SIGKILL) }

// Stop ends the process with SIGTERM, which lets it write what is to be kept.
func (s *Server) Stop() { s.process.End(syscall.SIGTERM) }

// Pause freezes the process: its connections stay open and nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a frozen process go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// Restart starts a new process on the same port and directory, after stopping
// the current one if it still runs, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	if err := s.run(); err != nil {
		s.t.Fatalf("redistest: restart: %v", err)
	}
}

// SetArgs replaces Options.Args for the next Restart.
func (s *Server) SetArgs(args ...string) { s.opt.Args = args }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v to %s: %v", sig, s.Addr(), err)
	}
}

func (s *Server) serverArgs() []string {
	return append([]string{
		"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir", s.opt.Dir,
		"--logfile", s.logPath(), "--save", "", "--daemonize", "no",
	}, s.opt.Args...)
}

func (s *Server) run() error {
	cmd := exec.Command(s.binary, s.args()...)
	p, err := process.Start(cmd)
	if err != nil {
		return err
	}
	s.process = p
	return s.awaitAnswer()
}

// awaitAnswer waits for a PONG; a server that loads its data gives none.
func (s *Server) awaitAnswer() error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := ping(s.Addr())
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Exited():
			return fmt.Errorf("%s ended with %v:\n%s", s.binary, s.process.State(), s.logTail())
		case <-time.After(pollEvery):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer within %v: %w\n%s", s.binary, startTimeout, err, s.logTail())
		}
	}
}

func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // a failure shows in what follows
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 128)
	n, err := conn.Read(answer)
	switch text := string(answer[:n]); {
	case err != nil:
		return err
	case strings.HasPrefix(text, "+PONG"), strings.HasPrefix(text, "-NOAUTH"):
		return nil
	default:
		return errors.New(strings.TrimSpace(text))
	}
}

func (s *Server) logPath() string { return filepath.Join(s.opt.Dir, "redis.log") }

func (s *Server) logTail() string { return process.Tail(s.logPath()) }

// eventually waits until check returns nil.
func eventually(t TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(startTimeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("redistest: no %s within %v: %v", what, startTimeout, err)
		}
		time.Sleep(pollEvery)
	}
}

// busGap lies between a node's port and that of its cluster bus.
const busGap = 10_000

// freePort returns a port that is free together with its bus.
func freePort() (int, error) { return process.FreePort(busGap) }
