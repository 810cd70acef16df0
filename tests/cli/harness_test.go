package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// accessLog are the lines of the log that the tests move.
func accessLog(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/access.log")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// writeLines writes lines to a file of the test.
func writeLines(t *testing.T, lines []string) string {
	t.Helper()
	path := t.TempDir() + "/lines"
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// process is a weir command that runs beside the test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout output
	stderr output
	exited chan struct{}
}

// run starts `weir args…` and kills it at the end of the test if it still runs.
func run(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(weirtest.Binary(t), args...), exited: make(chan struct{})}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = 5 * time.Second // handlers of a killed worker hold its output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait() // the state is read from cmd.ProcessState
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGKILL)
		<-p.exited
		if t.Failed() {
			t.Logf("weir %s:\n%s%s", strings.Join(args, " "), p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) } // it may have ended

// running reports whether the process is there and not a zombie.
func (p *process) running() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// exists reports whether there is such a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(2 * time.Minute):
		p.t.Fatalf("weir %v did not end", p.cmd.Args[1:])
		return -1
	}
}

// succeed waits for the end and fails the test unless the exit code is 0.
func (p *process) succeed() string {
	p.t.Helper()
	if code := p.wait(); code != 0 {
		p.t.Fatalf("weir %v ended with code %d", p.cmd.Args[1:], code)
	}
	return p.stdout.String()
}

// output collects what a process prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// must runs a command to its end and returns its standard output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := weirtest.Run(t, nil, args...)
	if code != 0 {
		t.Fatalf("weir %v ended with code %d: %s", args, code, stderr)
	}
	return stdout
}

// state is what GET topic answers, as far as the tests look.
type state struct {
	HeadSeq uint64 `json:"head_seq"`
	Count   uint64 `json:"count"`
	Queue   struct {
		Ready        uint64 `json:"ready"`
		InFlight     uint64 `json:"in_flight"`
		DeadLettered uint64 `json:"dead_lettered"`
	} `json:"queue"`
}

// request makes one call; an answer that is not 2xx is false.
func request(t *testing.T, method, url, body string, out any) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		return false
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return true
}

// topicState reads a topic's state; the zero state if there is no answer.
func topicState(t *testing.T, srv *weirtest.Server, topic string) (s state) {
	t.Helper()
	request(t, http.MethodGet, srv.URL+"/v0/topics/"+topic+"?touch=false", "", &s)
	return s
}

// put creates a topic.
func put(t *testing.T, srv *weirtest.Server, topic, config string) {
	t.Helper()
	if !request(t, http.MethodPut, srv.URL+"/v0/topics/"+topic, config, new(struct{})) {
		t.Fatalf("topic %s could not be created", topic)
	}
}

// restartInPlace starts the server again under the address it had.
func restartInPlace(srv *weirtest.Server) {
	port := srv.Addr[strings.LastIndex(srv.Addr, ":")+1:]
	srv.SetEnv([]string{"WEIR_PORT=" + port})
	srv.Restart()
}

// eventually waits for what other processes bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
