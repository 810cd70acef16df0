package deploy

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// supervisor is the end of NOTIFY_SOCKET that systemd has.
type supervisor struct {
	t    *testing.T
	path string
	conn *net.UnixConn
}

func newSupervisor(t *testing.T) *supervisor {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &supervisor{t: t, path: filepath.Join(dir, "notify")}
	if s.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: s.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.conn.Close() })
	return s
}

// await waits for a message that has the line.
func (s *supervisor) await(line string) string {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	buf := make([]byte, 4096)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			s.t.Fatalf("the supervisor was not told %s: %v", line, err)
		}
		if text := string(buf[:n]); regexp.MustCompile(`(?m)^` + line + `$`).MatchString(text) {
			return text
		}
	}
}

// ready is the status of /v0/ready, 0 if there is no answer.
func ready(url string) int {
	resp, err := http.Get(url + "/v0/ready")
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestTheSupervisorIsToldWhenTheServerIsReadyAndWhenItStops(t *testing.T) {
	t.Parallel()
	sup := newSupervisor(t)
	srv := weirtest.Go(t, []string{"NOTIFY_SOCKET=" + sup.path}, "serve", "--port=0", "--data-dir="+t.TempDir())
	said := sup.await("READY=1")
	url := regexp.MustCompile(`http://\S+`).FindString(said)
	if status := ready(url); status != 200 {
		t.Errorf("told %q, but /v0/ready answers %d", said, status)
	}
	if out := weirtest.Must(t, "health", url); out != "ready\n" {
		t.Errorf("weir health prints %q", out)
	}
	srv.Signal(syscall.SIGTERM)
	sup.await("STOPPING=1")
	if code := srv.Wait(); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}
	_, said, code := weirtest.Run(t, nil, "health", url)
	if code != 1 || !strings.Contains(said, "cannot be reached") && !strings.Contains(said, "refused") {
		t.Errorf("weir health of a server that has ended: code %d, %q", code, said)
	}
}

// A standby may wait for months: it has started, and is not ready.
func TestTheSupervisorOfAStandbyIsToldThatItHasStarted(t *testing.T) {
	t.Parallel()
	copied := "--replica=file://" + t.TempDir()
	leader := weirtest.Start(t, weirtest.Options{Args: []string{copied, "--standby"}})
	sup, ports := newSupervisor(t), filepath.Join(t.TempDir(), "port")
	standby := weirtest.Go(t, []string{"NOTIFY_SOCKET=" + sup.path}, "serve", "--port=0", "--port-file="+ports, "--data-dir="+t.TempDir(), copied, "--standby")
	sup.await("STATUS=standing by: .*")
	var url string
	weirtest.Eventually(t, "the standby has a port", func() bool {
		addr, err := os.ReadFile(ports)
		url = "http://" + string(addr)
		return err == nil
	})
	_, said, code := weirtest.Run(t, nil, "health", url)
	if code != 1 || !strings.Contains(said, "stand") {
		t.Errorf("weir health of a standby: code %d, %q", code, said)
	}
	weirtest.Must(t, "health", "--live", url)
	leader.Stop()
	weirtest.Must(t, "health", "--wait=1m", url)
	sup.await("STATUS=ready at " + url)
	standby.Signal(syscall.SIGTERM)
	sup.await("STOPPING=1")
	standby.Wait()
}

func TestASupervisorThatIsGoneDoesNotKeepTheServerFromStarting(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"NOTIFY_SOCKET=" + filepath.Join(t.TempDir(), "gone")}})
	if code := srv.Stop(); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}
	if n := strings.Count(srv.Stderr(), "the supervisor cannot be told"); n != 1 {
		t.Errorf("the log says %d times that the supervisor cannot be told:\n%s", n, srv.Stderr())
	}
}

// A health check of a container has the settings of its server in its environment.
func TestHealthWaitsNoLongerThanItWasTold(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, said, code := weirtest.Run(t, []string{"WEIR_HOST=0.0.0.0", "WEIR_DATA_DIR=/var/lib/weir", "WEIR_LOG_FORMAT=json"}, "health", "--wait=300ms", url)
	if took := time.Since(begin); code != 1 || strings.Count(said, "\n") != 1 || took < 300*time.Millisecond {
		t.Errorf("code %d after %s: %s", code, took, said)
	}
}
