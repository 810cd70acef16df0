package typescript

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/weirtest"
)

// source is the folder of the package.
const source = "../../../clients/typescript"

// work is where the package is built and installed; TestMain removes it.
var work string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if work, err = os.MkdirTemp("", "weir-typescript-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(work)
	return m.Run()
}

// installed is a program's folder that has the package, and the compiler that built it.
type installed struct {
	app, build string
	tsc        string
	files      []string // of the tarball
}

var install = sync.OnceValues(func() (in installed, err error) {
	build, app := filepath.Join(work, "build"), filepath.Join(work, "app")
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "README.md", "LICENSE", "src", "scripts", "examples"} {
		if err := copyInto(build, name); err != nil {
			return in, err
		}
	}
	if err := copyInto(app, "test"); err != nil {
		return in, err
	}
	if err := os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"private":true,"type":"module"}`), 0o600); err != nil {
		return in, err
	}
	if _, err := command(build, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return in, err
	}
	if _, err := command(build, "npm", "pack", "--pack-destination", work); err != nil {
		return in, err
	}
	balls, err := filepath.Glob(filepath.Join(work, "*.tgz"))
	if err != nil || len(balls) != 1 {
		return in, fmt.Errorf("npm pack made %v, %v", balls, err)
	}
	list, err := command(work, "tar", "-tzf", balls[0])
	if err != nil {
		return in, err
	}
	// Offline: it needs no other package.
	if _, err := command(app, "npm", "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", balls[0]); err != nil {
		return in, err
	}
	in = installed{app: app, build: build, tsc: filepath.Join(build, "node_modules", "typescript", "bin", "tsc"), files: strings.Fields(list)}
	return in, nil
})

// program returns the folder in which the package is installed.
func program(t *testing.T) installed {
	t.Helper()
	in, err := install()
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// copyInto copies a file or folder of the package.
func copyInto(dir, name string) error {
	from, to := filepath.Join(source, name), filepath.Join(dir, name)
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}

// command runs a command to its end and returns what it printed.
func command(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// script is an example of the package that runs in Node.
type script struct {
	*process.Process
	name        string
	out, errors string // the files of its output
}

// start starts an example with standard input from a file, if one is named.
func start(t *testing.T, input, name string, args ...string) *script {
	t.Helper()
	in := program(t)
	dir := t.TempDir()
	s := &script{name: name, out: filepath.Join(dir, "out"), errors: filepath.Join(dir, "errors")}
	cmd := exec.Command("node", append([]string{filepath.Join(in.app, "node_modules", "@weirmq", "client", "examples", name)}, args...)...)
	cmd.Dir = in.app
	out, err := os.Create(s.out)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	errs, err := os.Create(s.errors)
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	cmd.Stdout, cmd.Stderr = out, errs
	if input != "" {
		in, err := os.Open(input)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		cmd.Stdin = in
	}
	if s.Process, err = process.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s %v:\n%s\n%s", name, args, process.Tail(s.out), process.Tail(s.errors))
		}
	})
	return s
}

// lines are the whole lines of what it has printed so far.
func (s *script) lines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(s.out)
	if err != nil {
		t.Fatal(err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[:bytes.Count(text, []byte{'\n'})]
}

// await waits until it has ended, which must be with exit code 0.
func (s *script) await(t *testing.T) {
	t.Helper()
	weirtest.Eventually(t, s.name+" ends", func() bool {
		select {
		case <-s.Exited():
			return true
		default:
			return false
		}
	})
	if code := s.State().ExitCode(); code != 0 {
		t.Fatalf("%s ended with code %d", s.name, code)
	}
}

// stop asks it to end, which it must do well.
func (s *script) stop(t *testing.T) {
	t.Helper()
	_ = s.Signal(syscall.SIGTERM) // an error means that it has ended already
	s.await(t)
}
