package scenario

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// proc is a server process under test. It dies with the benchmark.
type proc struct {
	cmd    *exec.Cmd
	lines  *bufio.Reader // standard output
	errors tail
	done   chan struct{} // closed once the process has been waited for
	err    error         // of Wait; read after done
}

// startProc runs a program; env is added to an environment without weir's own
// variables.
func startProc(path string, args, env []string) (*proc, error) {
	p := &proc{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = append(cleanEnv(), env...)
	p.cmd.Stderr = &p.errors
	p.cmd.SysProcAttr = endWithParent()
	if _, err := p.cmd.StdinPipe(); err != nil { // some end with their standard input
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout = w
	p.lines = bufio.NewReader(r)
	err = p.cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func cleanEnv() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			env = append(env, v)
		}
	}
	return env
}

// firstLine waits for the line a peer prints once it serves and drops what it
// prints later.
func (p *proc) firstLine() (string, error) {
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.kill()
		return "", fmt.Errorf("%s ended before it served: %s", p.cmd.Path, p.errors.String())
	}
	p.drain()
	return strings.TrimSpace(line), nil
}

// drain drops standard output until the process ends.
func (p *proc) drain() { go io.Copy(io.Discard, p.lines) }

// stop asks the process to end, waits for it and returns its error. After
// limit it is killed, which is an error.
func (p *proc) stop(limit time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("%s did not stop within %v", p.cmd.Path, limit)
	}
	if p.err != nil {
		return fmt.Errorf("%s: %w: %s", p.cmd.Path, p.err, p.errors.String())
	}
	return nil
}

// kill ends the process without warning and waits for it.
func (p *proc) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

func (p *proc) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// rss is the resident set in MiB.
func (p *proc) rss() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(text, []byte("VmRSS:"))
	value, _, ok2 := bytes.Cut(rest, []byte("kB"))
	if !ok || !ok2 {
		return 0, fmt.Errorf("no VmRSS for process %d", p.cmd.Process.Pid)
	}
	kib, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
	return float64(kib) / 1024, err
}

const (
	settleStep  = 100 * time.Millisecond
	settleLimit = 20 * time.Second
)

// settle waits until the process uses less than 5 % of a core, so that work
// left behind by one sample is charged to it and does not disturb the next.
func (p *proc) settle(ctx context.Context) {
	deadline := time.Now().Add(settleLimit)
	for before := p.cpu(); time.Now().Before(deadline); {
		if pause(ctx, settleStep) != nil || p.exited() {
			return
		}
		now := p.cpu()
		if now-before < settleStep/20 {
			return
		}
		before = now
	}
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailSize = 2 << 10

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// String returns what is kept, on one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ReplaceAll(strings.TrimSpace(string(t.buf)), "\n", "; ")
}
