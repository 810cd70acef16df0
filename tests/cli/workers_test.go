package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/link"
	"github.com/weirmq/weir/tests/weirtest"
)

// docsOfWorkers returns docs/WORKERS.md, and what it has on producers.
func docsOfWorkers(t *testing.T) (page, producers string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/WORKERS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, producers, _ = strings.Cut(string(text), "\n## Producers\n")
	return string(text), producers
}

// programIn returns the first program in a language that a text of the docs shows.
func programIn(t *testing.T, text, language string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("the page has no such program in %s", language)
	}
	return m[1]
}

// The workers that docs/WORKERS.md shows do their jobs, and ask for no others meanwhile.
func TestAWorkerOfTheDocsWaitsWithoutSpinning(t *testing.T) {
	page, _ := docsOfWorkers(t)
	for language, program := range map[string]string{"python": "python3", "sh": "sh"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			text := programIn(t, page, language)
			if n := strings.Count(text, "\n"); n > 24 {
				t.Errorf("the worker has %d lines", n)
			}
			file := filepath.Join(t.TempDir(), "worker")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := weirtest.Start(t, weirtest.Options{})
			queue := s.URL + "/v0/topics/mails"
			var out weirtest.Output
			worker := exec.Command(program, file, queue)
			worker.Stdout, worker.Stderr = &out, &out
			if err := worker.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				end := os.Kill
				if language == "python" {
					end = os.Interrupt
				}
				_ = worker.Process.Signal(end)
				s.Kill() // ends what the shell has started
				_ = worker.Wait()
				if strings.Contains(out.String(), "Traceback") {
					t.Errorf("at its end the worker said %q", out.String())
				}
			}()
			weirtest.Eventually(t, "the worker says why nothing comes", func() bool { return strings.Contains(out.String(), `topic \"mails\" does not exist`) })
			create := regexp.MustCompile(`(?m)^    weir (topic create .*)http://127.0.0.1:4000/mails$`).FindStringSubmatch(page)
			if create == nil {
				t.Fatal("the page does not create the queue")
			}
			must(t, append(strings.Fields(create[1]), s.URL+"/mails")...)
			for i := range 2 {
				send(t, "POST", queue, fmt.Sprintf(`{"records":[{"data":{"mail":%d}}]}`, i))
				weirtest.Eventually(t, "the job to be done", func() bool {
					return strings.Contains(send(t, "GET", queue, ""), `"count":0`)
				})
				time.Sleep(300 * time.Millisecond) // long enough for many claims that do not wait
			}
			if got := out.String(); strings.Count(got, "working on") != 2 || !strings.Contains(strings.ReplaceAll(got, " ", ""), `{"mail":1}`) {
				t.Errorf("the worker said %q", got)
			}
			row := regexp.MustCompile(`weir_http_requests_total\{code="200",method="POST",route="/v0/topics/:topic/claim"\} (\d+)`)
			if m := row.FindStringSubmatch(send(t, "GET", s.URL+"/metrics", "")); m == nil || m[1] != "2" {
				t.Errorf("two jobs took this many claims: %q", m)
			}
		})
	}
}

// The producers that docs/WORKERS.md shows store each line once, whatever becomes of answers and server.
func TestAProducerOfTheDocsStoresEachLineOnce(t *testing.T) {
	_, producers := docsOfWorkers(t)
	lines := make([]string, 1200) // two batches of a body of lines
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"mail":%d}`, i)
	}
	for language, program := range map[string]string{"python": "python3", "sh": "sh"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			text := programIn(t, producers, language)
			s := weirtest.Start(t, weirtest.Options{Stays: true})
			must(t, "topic", "create", "--type", "queue", s.URL+"/mails")
			between := link.NewProxy(t, s.Addr)
			dir := t.TempDir()
			file := filepath.Join(dir, "producer")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "127.0.0.1:4000", between.Addr())), 0o600); err != nil {
				t.Fatal(err)
			}
			input := strings.Join(lines, "\n") + "\n"
			if err := os.WriteFile(filepath.Join(dir, "mails.ndjson"), []byte(input), 0o600); err != nil {
				t.Fatal(err)
			}
			stored := func() int64 {
				var st struct{ Count int64 }
				request(t, http.MethodGet, s.URL+"/v0/topics/mails", "", &st)
				return st.Count
			}
			between.Set(link.Fault{HoldDown: true}) // the server takes what is sent, and nobody hears of it
			var out weirtest.Output
			producer := exec.Command(program, file, "http://"+between.Addr()+"/v0/topics/mails")
			producer.Dir, producer.Stdin, producer.Stdout, producer.Stderr = dir, strings.NewReader(input), &out, &out
			if err := producer.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- producer.Wait() }()
			weirtest.Eventually(t, "the first write is stored", func() bool { return stored() > 0 })
			between.Refuse()
			s.Kill()
			s.Restart()
			between.Heal()
			select {
			case err := <-ended:
				if err != nil {
					t.Fatalf("%v: %s", err, out.String())
				}
			case <-time.After(time.Minute):
				_ = producer.Process.Kill()
				t.Fatalf("the producer does not end: %s", out.String())
			}
			if n := stored(); n != int64(len(lines)) {
				t.Errorf("%d records of %d lines", n, len(lines))
			}
			if got := must(t, "tail", s.URL+"/mails", "--from", "0", "--no-follow"); got != input {
				t.Errorf("the records are not the lines: %.200s", got)
			}
		})
	}
}

// What refuses a write may be a proxy, whose Retry-After is a date.
func TestTheProducerOfTheDocsInPythonTakesARetryAfterOfAnyForm(t *testing.T) {
	t.Parallel()
	_, producers := docsOfWorkers(t)
	program := programIn(t, producers, "python")
	refusals := []string{"Wed, 21 Oct 2015 07:28:00 GMT", "0"}
	var mu sync.Mutex
	var keys []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if keys = append(keys, r.Header.Get("Idempotency-Key")); len(keys) <= len(refusals) {
			w.Header().Set("Retry-After", refusals[len(keys)-1])
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"first_seq":1}`)
	}))
	defer srv.Close()
	producer := exec.Command("python3", "-c", program, srv.URL+"/v0/topics/mails")
	producer.Stdin = strings.NewReader("a\n")
	if out, err := producer.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("the tries had the keys %q", keys)
	}
}

// send makes a request and returns the body of its answer, which must be a good one.
func send(t *testing.T, method, url, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s, %v", method, url, res.StatusCode, text, err)
	}
	return string(text)
}
