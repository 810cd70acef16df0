package postgrestest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirmq/weir/tests/process"
)

// TB is what postgrestest needs of a test; every testing.TB is one, and a program can bring its own.
type TB = process.TB

const (
	startTimeout = 60 * time.Second
	pollEvery    = 10 * time.Millisecond
)

// Options of a server.
type Options struct {
	Settings map[string]string // of postgresql.conf, in addition to, or in place of, the own ones
}

// Server is one PostgreSQL server, replaced by a new process at Restart. Its methods are
// for one goroutine at a time, except Addr and URL.
type Server struct {
	t        TB
	dir      string
	bin      string
	account  *syscall.SysProcAttr // whose process it is
	port     int
	settings map[string]string
	process  *process.Process // nil: none has been started
}

// Start creates a server, waits until it answers and ends it with the test.
func Start(t TB, opt Options) *Server {
	t.Helper()
	s, err := newServer(t, opt)
	if err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	t.Cleanup(s.end)
	if err := s.command("initdb", "-D", s.data(), "-U", "weir", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"); err != nil {
		t.Fatalf("postgrestest: %v", err)
	}
	for try := 0; ; try++ {
		if s.port, err = process.FreePort(0); err == nil {
			err = s.run()
		}
		if err == nil {
			return s
		}
		if try == 4 || !strings.Contains(s.logTail(), "in use") {
			t.Fatalf("postgrestest: %v", err)
		}
	}
}

func newServer(t TB, opt Options) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	// Not a directory of the test: another user could not go through those above it.
	dir, err := os.MkdirTemp(shared(), "weir-postgres-*")
	if err != nil {
		return nil, err
	}
	s := &Server{t: t, dir: dir, bin: bin, account: &syscall.SysProcAttr{}, settings: map[string]string{}}
	maps.Copy(s.settings, opt.Settings)
	if os.Geteuid() != 0 {
		return s, nil
	}
	owner, err := user.Lookup("postgres")
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.Atoi(owner.Uid)
	gid, err2 := strconv.Atoi(owner.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	s.account.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return s, os.Chown(dir, uid, gid)
}

// shared is a directory for temporary files that another user can go to, if there is one.
func shared() string {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		open := true
		for at := dir; open; at = filepath.Dir(at) {
			st, err := os.Stat(at)
			open = err == nil && st.Mode().Perm()&0o001 != 0
			if at == filepath.Dir(at) {
				break
			}
		}
		if open {
			return dir
		}
	}
	return ""
}

// programs is the directory of the newest PostgreSQL's programs.
func programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is a good one
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	if len(found) > 0 {
		return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return cmp.Compare(version(a), version(b)) })), nil
	}
	path, err := exec.LookPath("postgres")
	if err != nil {
		return "", fmt.Errorf("PostgreSQL is not installed, run make deps: %w", err)
	}
	return filepath.Dir(path), nil
}

func (s *Server) end() {
	s.process.End(syscall.SIGQUIT)
	if s.t.Failed() {
		s.t.Logf("postgrestest: log of the server on %s:\n%s", s.Addr(), s.logTail())
	}
	_ = os.RemoveAll(s.dir) // what stays is in the temporary directory
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the address of the database by way of addr, which is Addr or that of a proxy.
func (s *Server) URL(addr string) string {
	return "postgres://weir@" + addr + "/postgres?sslmode=disable"
}

// Kill ends all processes of the server at once, without a last checkpoint.
func (s *Server) Kill() { s.process.End(syscall.SIGQUIT) }

// Restart starts a new process on the same port and directory, after killing the current
// one if it still runs, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.run(); err != nil {
		s.t.Fatalf("postgrestest: restart: %v", err)
	}
}

// Set changes a setting for the next Restart.
func (s *Server) Set(key, value string) { s.settings[key] = value }

// Exec runs statements that return nothing.
func (s *Server) Exec(sql string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(s.Addr()))
	if err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		s.t.Fatalf("postgrestest: %s: %v", sql, err)
	}
}

// Receiver starts a process that takes all that the server commits to its disk, as a standby
// does; with the setting synchronous_standby_names = receiver the server waits for it. The
// returned function ends it.
func (s *Server) Receiver() (end func()) {
	s.t.Helper()
	dir := filepath.Join(s.dir, fmt.Sprint("receiver", rand.Uint32()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	if c := s.account.Credential; c != nil {
		if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
			s.t.Fatalf("postgrestest: %v", err)
		}
	}
	to := fmt.Sprintf("host=127.0.0.1 port=%d user=weir application_name=receiver", s.port)
	p, err := process.Start(s.prepare("pg_receivewal", "-D", dir, "-d", to, "--synchronous", "--no-loop"))
	if err != nil {
		s.t.Fatalf("postgrestest: %v", err)
	}
	end = func() { p.End(syscall.SIGKILL) }
	s.t.Cleanup(end)
	return end
}

func (s *Server) run() error {
	settings := map[string]string{
		"listen_addresses": "127.0.0.1", "port": strconv.Itoa(s.port), "unix_socket_directories": "",
		"fsync": "on", "shared_buffers": "16MB", "max_connections": "40", "dynamic_shared_memory_type": "mmap", "logging_collector": "off",
	}
	maps.Copy(settings, s.settings)
	args := []string{"-D", s.data()}
	for key, value := range settings {
		args = append(args, "-c", key+"="+value)
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.prepare("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = process.Start(cmd); err != nil {
		return err
	}
	return s.awaitAnswer()
}

func (s *Server) awaitAnswer() error {
	for deadline := time.Now().Add(startTimeout); ; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		conn, err := pgx.Connect(ctx, s.URL(s.Addr()))
		if err == nil {
			err = conn.Close(ctx)
		}
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Exited():
			return fmt.Errorf("postgres ended with %v:\n%s", s.process.State(), s.logTail())
		case <-time.After(pollEvery):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("postgres does not answer within %v: %w\n%s", startTimeout, err, s.logTail())
		}
	}
}

func (s *Server) command(name string, args ...string) error {
	text, err := s.prepare(name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, text)
	}
	return nil
}

// prepare returns a command of the server's user.
func (s *Server) prepare(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	attr := *s.account
	cmd.SysProcAttr = &attr
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC", "HOME="+s.dir)
	return cmd
}

func (s *Server) data() string    { return filepath.Join(s.dir, "data") }
func (s *Server) logPath() string { return filepath.Join(s.dir, "postgres.log") }
func (s *Server) logTail() string { return process.Tail(s.logPath()) }
