package site

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/weirtest"
)

// box is a fence of a page: what to type, or what is printed then.
type box struct{ kind, text string }

func boxes(t *testing.T, page string) (all []box) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(read(t, page), -1) {
		all = append(all, box{m[1], m[2]})
	}
	return all
}

// reader types what a page says, word for word, into one shell. Only the port is another
// one, and what needs the network stands still: git makes an empty folder of the name
// that a clone has, and make puts the binary of the tests where make build does.
type reader struct {
	t      *testing.T
	port   string
	script strings.Builder
}

const prelude = `set -euo pipefail
git() { [ "$*" = "clone https://github.com/weirmq/weir" ] && mkdir weir; }
make() { [ "$*" = build ] && [[ $(command make -n --no-print-directory -C "$REPOSITORY" build) == *" -o bin/weir ./cmd/weir" ]] && mkdir bin && ln -s "$BINARY" bin/weir; }
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
`

func newReader(t *testing.T) *reader {
	t.Helper()
	port, err := process.FreePort(0) // which is still free when the server starts
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, port: strconv.Itoa(port)}
	r.script.WriteString(prelude)
	return r
}

// types adds a box. A server is left running, as the page asks for.
func (r *reader) types(text string) {
	for line := range strings.Lines(strings.ReplaceAll(text, ":4000", ":"+r.port)) {
		if strings.HasPrefix(line, "bin/weir serve") {
			line = "{ " + strings.TrimSuffix(line, "\n") + "\n} >server.log 2>&1 &\n" +
				"bin/weir health --wait 2m http://127.0.0.1:" + r.port + " >/dev/null\n"
		}
		r.script.WriteString(line)
	}
	fmt.Fprintf(&r.script, "\necho %q\n", endOfBox)
}

const endOfBox = "=== end of box"

// start begins to run what was typed and ends it with the test.
func (r *reader) start(stdout *weirtest.Output) (wait func() error) {
	r.t.Helper()
	repository, err := filepath.Abs("..")
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	var stderr bytes.Buffer
	cmd := exec.Command("bash", "-c", r.script.String())
	cmd.Dir = dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+dir, "REPOSITORY="+repository, "BINARY="+weirtest.Binary(r.t), "WEIR_PORT="+r.port)
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = cmd.Wait()
	}()
	wait = func() error {
		select {
		case <-ended:
		case <-time.After(5 * time.Minute):
			err = fmt.Errorf("it does not end")
		}
		return err
	}
	r.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the shell and all that it started
		<-ended
		if r.t.Failed() {
			r.t.Logf("printed:\n%s\nstandard error:\n%s", stdout.String(), stderr.String())
		}
	})
	return wait
}

func TestWhatStartSaysWorksWordForWord(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	var want []string // by box of commands
	for _, b := range boxes(t, "../docs/START.md") {
		switch b.kind {
		case "sh":
			r.types(b.text)
			want = append(want, "")
		case "output":
			want[len(want)-1] = b.text
		case "go":
			r.types(r.program(b.text))
			want = append(want, "* fourth\n")
		}
	}
	if len(want) < 8 {
		t.Fatalf("START.md has %d boxes: the search misses them", len(want))
	}
	var stdout weirtest.Output
	if err := r.start(&stdout)(); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(stdout.String(), endOfBox+"\n")
	for i, w := range want {
		if !like(w, got[i]) {
			t.Errorf("box %d prints\n%s\nand the page says\n%s", i+1, got[i], w)
		}
	}
}

// program builds the program of a page, and returns what runs it until it has printed
// something.
func (r *reader) program(text string) string {
	r.t.Helper()
	dir := r.t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	if err := os.WriteFile(source, []byte(strings.ReplaceAll(text, ":4000", ":"+r.port)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	build := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", binary, source)
	build.Dir = ".." // the page's reader has the library by go get
	if said, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, said)
	}
	return fmt.Sprintf("%[1]s 2>%[1]s.log & program=$!\nuntil grep -q fourth %[1]s.log; do sleep 0.1; done\nkill $program; wait $program\ngrep fourth %[1]s.log\n", binary)
}

// like reports whether what is printed is what a page says, where * is anything and blanks
// are any blanks.
func like(want, got string) bool {
	pattern := regexp.QuoteMeta(strings.TrimSpace(want))
	pattern = strings.ReplaceAll(pattern, `\*`, `.*`)
	pattern = regexp.MustCompile(` +`).ReplaceAllString(pattern, ` +`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(strings.TrimSpace(got))
}

func TestWhatTheReadmeSaysWorks(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	for _, b := range boxes(t, "../README.md") {
		if b.kind == "sh" {
			r.types(b.text)
		}
	}
	var stdout weirtest.Output
	_ = r.start(&stdout) // the workers go on until they are stopped
	weirtest.Eventually(t, "a hundred jobs are done", func() bool {
		return strings.Count(stdout.String(), "did ") == 100
	})
}
