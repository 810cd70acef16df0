package main

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weirmq/weir/tests/process"
)

//go:embed loops.py
var pythonLoops []byte

//go:embed loops.mjs
var nodeLoops []byte

// place is a folder for the server and for the clients, installed as their users do it.
type place struct {
	dir, source string // source: the repository
}

func newPlace(ctx context.Context, dir string) (place, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	return place{dir: dir, source: filepath.Dir(strings.TrimSpace(string(mod)))}, err
}

// command runs a command in a folder to its end.
func command(ctx context.Context, dir string, line ...string) error {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
	}
	return nil
}

// serve builds and starts a server, and returns its URL and what ends it.
func (p place) serve(ctx context.Context) (url string, end func(), err error) {
	binary, port := filepath.Join(p.dir, "weir"), filepath.Join(p.dir, "port")
	if err := command(ctx, p.source, "go", "build", "-o", binary, "./cmd/weir"); err != nil {
		return "", nil, err
	}
	cmd := exec.Command(binary, "serve")
	cmd.Env = append(environment(), "WEIR_PORT=0", "WEIR_PORT_FILE="+port, "WEIR_DATA_DIR="+filepath.Join(p.dir, "data"))
	server, err := process.Start(cmd)
	if err != nil {
		return "", nil, err
	}
	for range 3000 {
		select {
		case <-ctx.Done():
			server.End(syscall.SIGKILL)
			return "", nil, ctx.Err()
		case <-server.Exited():
			return "", nil, errors.New("the server ended before it was ready")
		case <-time.After(20 * time.Millisecond):
		}
		addr, err := os.ReadFile(port)
		if err != nil {
			continue
		}
		url = "http://" + strings.TrimSpace(string(addr))
		if resp, err := http.Get(url + "/v0/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return url, func() { server.End(syscall.SIGTERM) }, nil
			}
		}
	}
	server.End(syscall.SIGKILL)
	return "", nil, errors.New("the server was not ready within a minute")
}

// environment is this program's without settings of weir and Python.
func environment() (env []string) {
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") && !strings.HasPrefix(kv, "PYTHON") {
			env = append(env, kv)
		}
	}
	return env
}

// installPython makes a virtual environment with the client's wheel, and returns the command line.
func (p place) installPython(ctx context.Context) ([]string, error) {
	venv, wheels, loops := filepath.Join(p.dir, "venv"), filepath.Join(p.dir, "wheels"), filepath.Join(p.dir, "loops.py")
	python := filepath.Join(venv, "bin", "python")
	pip := func(args ...string) []string {
		return append([]string{python, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"}, args...)
	}
	for _, line := range [][]string{
		{"python3", "-m", "venv", venv},
		pip("wheel", "--no-deps", "-w", wheels, filepath.Join(p.source, "clients", "python")),
		pip("install", "--find-links", wheels, "weirmq"),
	} {
		if err := command(ctx, p.dir, line...); err != nil {
			return nil, err
		}
	}
	return []string{python, loops}, os.WriteFile(loops, pythonLoops, 0o600)
}

// installNode packs the package, installs it into an empty folder, and returns the command line.
func (p place) installNode(ctx context.Context) ([]string, error) {
	build, app := filepath.Join(p.dir, "build"), filepath.Join(p.dir, "app")
	from := filepath.Join(p.source, "clients", "typescript")
	if err := os.MkdirAll(app, 0o700); err != nil {
		return nil, err
	}
	if err := os.CopyFS(filepath.Join(build, "src"), os.DirFS(filepath.Join(from, "src"))); err != nil {
		return nil, err
	}
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(build, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	loops := filepath.Join(app, "loops.mjs")
	if err := errors.Join(os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"private":true,"type":"module"}`), 0o600),
		os.WriteFile(loops, nodeLoops, 0o600),
		command(ctx, build, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"),
		command(ctx, build, "npm", "pack", "--pack-destination", p.dir)); err != nil {
		return nil, err
	}
	balls, err := filepath.Glob(filepath.Join(p.dir, "*.tgz"))
	if err != nil || len(balls) != 1 {
		return nil, fmt.Errorf("npm pack made %v, %v", balls, err)
	}
	return []string{"node", loops}, command(ctx, app, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", balls[0])
}

// program is the loops of one language, which wait for a line and answer with one.
type program struct {
	process *process.Process
	in      io.WriteCloser
	out     *bufio.Reader
}

// start installs the client of a language and starts its loops.
func (p place) start(ctx context.Context, language, url string) (*program, error) {
	install := map[string]func(context.Context) ([]string, error){"python": p.installPython, "node": p.installNode}[language]
	line, err := install(ctx)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Dir, cmd.Stderr = p.dir, os.Stderr
	cmd.Env = append(environment(), "WEIR_URL="+url)
	in, out, err := pipes(cmd)
	if err != nil {
		return nil, err
	}
	started, err := process.Start(cmd)
	return &program{process: started, in: in, out: bufio.NewReader(out)}, err
}

func pipes(cmd *exec.Cmd) (in io.WriteCloser, out io.ReadCloser, err error) {
	if in, err = cmd.StdinPipe(); err == nil {
		out, err = cmd.StdoutPipe()
	}
	return in, out, err
}

// turn has one side do the work on a topic of its own, and returns how many seconds that took, and
// how many of CPU the program had.
func (p *program) turn(work, side, topic string, count int) (wall, cpu float64, err error) {
	if _, err := fmt.Fprintln(p.in, work, side, topic, count); err != nil {
		return 0, 0, err
	}
	answer, err := p.out.ReadString('\n')
	if err != nil {
		return 0, 0, fmt.Errorf("the loops ended: %w", err)
	}
	_, err = fmt.Sscan(answer, &wall, &cpu)
	return wall, cpu, err
}

// end closes the program's input, behind which it ends, and ends it if it does not.
func (p *program) end() {
	p.in.Close()
	select {
	case <-p.process.Exited():
	case <-time.After(5 * time.Second):
		p.process.End(syscall.SIGKILL)
	}
}
