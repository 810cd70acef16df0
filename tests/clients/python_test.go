package clients

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/certtest"
	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

const source = "../../clients/python"

// place is where the environment is, which all tests share.
var place string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "weir-clients-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	place = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// interpreter makes a virtual environment with the client's wheel and what that needs,
// and returns its Python.
var interpreter = sync.OnceValues(func() (string, error) {
	venv, wheels := filepath.Join(place, "venv"), filepath.Join(place, "wheels")
	python := filepath.Join(venv, "bin", "python")
	pip := func(args ...string) []string {
		return append([]string{python, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"}, args...)
	}
	for _, line := range [][]string{
		{"python3", "-m", "venv", venv},
		pip("wheel", "--no-deps", "-w", wheels, source),
		pip("install", "--find-links", wheels, "weirmq"),
	} {
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
		}
	}
	return python, nil
})

// python is a Python program that runs beside the test.
type python struct {
	*process.Process
	t    *testing.T
	name string
	out  weirtest.Output
	err  weirtest.Output
}

// start starts a program of Python in the environment of the client, with the settings
// (KEY=VALUE) and standard input; it is killed at the end of the test if it still runs.
func start(t *testing.T, settings []string, input string, args ...string) *python {
	t.Helper()
	program, err := interpreter()
	if err != nil {
		t.Fatal(err)
	}
	p := &python{t: t, name: strings.Join(args, " ")}
	cmd := exec.Command(program, args...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "WEIR_") && !strings.HasPrefix(kv, "PYTHON") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(append(cmd.Env, "PYTHONDONTWRITEBYTECODE=1"), settings...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &p.out, &p.err
	cmd.WaitDelay = 5 * time.Second // what it has started may hold its output
	if p.Process, err = process.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.End(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("%s:\n%s%s", p.name, p.out.String(), p.err.String())
		}
	})
	return p
}

// succeed waits for the end, which has to be a good one, and returns what was printed.
func (p *python) succeed() string {
	p.t.Helper()
	select {
	case <-p.Exited():
	case <-time.After(5 * time.Minute):
		p.t.Fatalf("%s did not end", p.name)
	}
	if code := p.State().ExitCode(); code != 0 {
		p.t.Fatalf("%s ended with code %d", p.name, code)
	}
	return p.out.String()
}

// The Python client's own tests, on a server, and on one with TLS and keys.
func TestPython(t *testing.T) {
	t.Parallel()
	open := weirtest.Start(t, weirtest.Options{})
	certs := certtest.New(t)
	secure := secureServer(t, certs)
	settings := []string{"WEIR_URL=" + open.URL, "WEIR_TLS_URL=" + secure, "WEIR_TLS_CA=" + certs.File("ca.pem")}
	tests := start(t, settings, "", "-m", "unittest", "discover", "-s", filepath.Join(source, "tests"))
	tests.succeed()
	text := strings.TrimSpace(tests.err.String())
	if !strings.HasSuffix(text, "\nOK") { // nothing failed, nothing was skipped
		t.Errorf("%s", text)
	}
	lines := strings.Split(text, "\n")
	t.Log(lines[max(0, len(lines)-3)])
}

// secureServer starts a server with a certificate and the key secret, and returns its address.
func secureServer(t *testing.T, certs *certtest.Dir) string {
	t.Helper()
	s := weirtest.Start(t, weirtest.Options{NoWait: true, Env: []string{
		"WEIR_API_KEYS=secret:rw,owner", "WEIR_TLS_CERT=" + certs.File("server.pem"), "WEIR_TLS_KEY=" + certs.File("server.key"),
	}})
	return "https://" + s.Addr // the client waits until it is ready
}

// The examples do what they say, one after the other on one queue.
func TestPythonExamples(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	settings := []string{"WEIR_URL=" + s.URL}
	example := func(name string) string { return filepath.Join(source, "examples", name) }

	published := start(t, settings, "a\nb\nc\n", example("publish.py"), "mails").succeed()
	if published != "1-3\n" {
		t.Errorf("publish.py printed %q", published)
	}
	follower := start(t, settings, "", example("follow.py"), "mails", "1")
	weirtest.Eventually(t, "the records are printed", func() bool { return follower.out.String() == "2 \"b\"\n3 \"c\"\n" })
	follower.End(syscall.SIGTERM)

	worker := start(t, settings, "", example("worker.py"), "mails")
	weirtest.Eventually(t, "the jobs are done", func() bool { return strings.Count(worker.out.String(), "\n") == 3 })
	_ = worker.Signal(syscall.SIGTERM)
	if out := worker.succeed(); !strings.HasSuffix(out, "done: 3\n") {
		t.Errorf("worker.py printed %q", out)
	}
}

// The programs of the README run as they stand there.
func TestPythonQuickStart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(source, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```python\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(programs) != 2 {
		t.Fatalf("the page has %d programs", len(programs))
	}
	s := weirtest.Start(t, weirtest.Options{})
	settings := []string{"WEIR_URL=" + s.URL, "PYTHONUNBUFFERED=1"}

	worker := start(t, settings, "", "-c", programs[0][1])
	weirtest.Eventually(t, "both mails are handled", func() bool {
		head, count := topicState(s, "mails")
		return head == 2 && count == 0
	})
	_ = worker.Signal(syscall.SIGTERM)
	out := worker.succeed() // of two threads
	for _, want := range []string{"{'to': 'a@example.com'}", "{'to': 'b@example.com'}"} {
		if !strings.Contains(out, want) {
			t.Errorf("the worker printed %q", out)
		}
	}

	follower := start(t, settings, "", "-c", "import weirmq\nweir = weirmq.Client()\nweir.publish('orders', 7)\n"+programs[1][1])
	weirtest.Eventually(t, "the record is printed", func() bool { return follower.out.String() == "1 7\n" })
}

// The worker of the guide for Celery does what it publishes, now and later.
func TestTheWorkerOfTheGuideForCelery(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/from-celery.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(string(page))
	if program == nil {
		t.Fatal("the page has no worker")
	}
	s := weirtest.Start(t, weirtest.Options{})
	worker := start(t, []string{"WEIR_URL=" + s.URL}, "", "-c", program[1])
	weirtest.Eventually(t, "both tasks are done", func() bool {
		return strings.Contains(worker.out.String(), "ship 7\n") && strings.Contains(worker.out.String(), "mail to ada@example.org\n")
	})
	_ = worker.Signal(syscall.SIGTERM)
	worker.succeed()
}

// The service of the guide for web services says at once that there is too much to do.
func TestTheServiceOfTheGuideIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/web-service.md")
	if err != nil {
		t.Fatal(err)
	}
	service := regexp.MustCompile("(?s)```python\n(.*?)```").FindStringSubmatch(string(page))
	if service == nil {
		t.Fatal("the page has no service")
	}
	for want, args := range map[string][]string{"200 None\n": nil, "429 ": {"--max-topics=1"}} {
		s := weirtest.Start(t, weirtest.Options{Args: args})
		take := start(t, []string{"WEIR_URL=" + s.URL}, "", "-c", service[1]+"weir.put_topic('other')\nprint(*take({'id': 7}, 'key'))")
		if out := take.succeed(); !strings.HasPrefix(out, want) {
			t.Errorf("the service answered %q, want %q", out, want)
		}
	}
}

// A server may be set to take fewer jobs in one ack or extend than a worker holds.
func TestPythonSettlesAsManyAtOnceAsTheServerTakes(t *testing.T) {
	for _, kind := range []string{"sync", "async"} {
		t.Run(kind, func(t *testing.T) {
			srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_MAX_CLAIM=3"}})
			call := func(method, path, body string) {
				t.Helper()
				req, err := http.NewRequest(method, srv.URL+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := http.DefaultClient.Do(req)
				if err != nil || resp.StatusCode/100 != 2 {
					t.Fatal(resp, err)
				}
				resp.Body.Close()
			}
			call("PUT", "/v0/topics/jobs", `{"type":"queue"}`)
			for left := 5; ; left-- {
				call("POST", "/v0/topics/jobs", `{"records":[{"data":1},{"data":2},{"data":3},{"data":4},{"data":5},{"data":6},{"data":7},{"data":8}]}`)
				stalled := stall.Watch()
				out := start(t, []string{"WEIR_URL=" + srv.URL}, "", filepath.Join("testdata", "hold.py"), "8", "1000", kind).succeed()
				stood := stalled()
				if out == "WorkSummary(claimed=8, acked=8, nacked=0, lost=0)\n" {
					break
				}
				if stood < 250*time.Millisecond || left == 0 { // else leases have run out
					t.Fatalf("the worker did %s, and the machine stood still for %v", out, stood)
				}
				call("POST", "/v0/topics/jobs/delete", `{"before_seq":1000}`) // what is left of those
			}
		})
	}
}
