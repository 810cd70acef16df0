package rounds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/tests/build"
)

// Host is where the server under attack lives. Its data outlives Kill.
type Host interface {
	// Start starts the server and returns its base URL once it is ready.
	Start(ctx context.Context) (string, error)
	// StartKilled starts the server and kills it after d, ready or not.
	StartKilled(d time.Duration) error
	// Kill ends the server at once, as kill -9 or as a cut of its power.
	Kill()
}

// readyTimeout is the longest time a start may take.
const readyTimeout = 60 * time.Second

// Process is a weir process on a data directory.
type Process struct {
	Binary string
	Dir    string
	// Env returns more settings for the next start; nil for none.
	Env func() []string
	// Killed is called after the process has ended by Kill; nil for nothing.
	Killed func()

	cmd    *exec.Cmd
	exited chan struct{}
	stderr lockedBuffer
}

// Build builds the weir binary in dir, or takes the one WEIRTEST_BINARY names.
// root is a directory of the module.
func Build(root, dir string) (string, error) {
	if path := os.Getenv("WEIRTEST_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(dir, "weir")
	return path, build.Weir(context.Background(), root, path, false)
}

func (p *Process) launch() (portFile string, err error) {
	file, err := os.CreateTemp("", "weir-port-*")
	if err != nil {
		return "", err
	}
	portFile = file.Name()
	if err := errors.Join(file.Close(), os.Remove(portFile)); err != nil {
		return "", err
	}
	p.cmd = exec.Command(p.Binary, "serve")
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") {
			p.cmd.Env = append(p.cmd.Env, kv)
		}
	}
	p.cmd.Env = append(p.cmd.Env, "WEIR_HOST=127.0.0.1", "WEIR_PORT=0", "WEIR_PORT_FILE="+portFile, "WEIR_DATA_DIR="+p.Dir)
	if p.Env != nil {
		p.cmd.Env = append(p.cmd.Env, p.Env()...)
	}
	p.stderr.reset()
	p.cmd.Stdout, p.cmd.Stderr = &p.stderr, &p.stderr
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	p.exited = exited
	go func() {
		_ = p.cmd.Wait() // the end is what counts
		close(exited)
	}()
	return portFile, nil
}

// Start implements Host.
func (p *Process) Start(ctx context.Context) (string, error) {
	portFile, err := p.launch()
	if err != nil {
		return "", err
	}
	defer os.Remove(portFile)
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticks := time.NewTicker(2 * time.Millisecond)
	defer ticks.Stop()
	for {
		if base, ok := ready(ctx, portFile); ok {
			return base, nil
		}
		select {
		case <-p.exited:
			return "", fmt.Errorf("weir ended before it was ready (%v):\n%s", p.cmd.ProcessState, p.stderr.tail())
		case <-ctx.Done():
			p.Kill()
			return "", fmt.Errorf("weir was not ready within %v:\n%s", readyTimeout, p.stderr.tail())
		case <-ticks.C:
		}
	}
}

func ready(ctx context.Context, portFile string) (string, bool) {
	addr, err := os.ReadFile(portFile)
	if err != nil || len(addr) == 0 {
		return "", false
	}
	base := "http://" + strings.TrimSpace(string(addr))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v0/ready", nil)
	if err != nil {
		return "", false
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	return base, resp.StatusCode == http.StatusOK
}

// StartKilled implements Host.
func (p *Process) StartKilled(d time.Duration) error {
	portFile, err := p.launch()
	if err != nil {
		return err
	}
	defer os.Remove(portFile)
	select {
	case <-p.exited:
		return fmt.Errorf("weir ended by itself (%v):\n%s", p.cmd.ProcessState, p.stderr.tail())
	case <-time.After(d):
	}
	p.Kill()
	return nil
}

// Kill implements Host.
func (p *Process) Kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Kill() // an error means it has ended
	<-p.exited
	if p.Killed != nil {
		p.Killed()
	}
}

// Stderr is the end of what the last process printed.
func (p *Process) Stderr() string { return p.stderr.tail() }

// lockedBuffer keeps the first 64 KiB of what a process prints.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const stderrBound = 64 << 10

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), max(0, stderrBound-b.buf.Len()))])
	return len(p), nil
}

func (b *lockedBuffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Reset()
}

func (b *lockedBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.buf.String()
	return s[max(0, len(s)-8000):]
}
