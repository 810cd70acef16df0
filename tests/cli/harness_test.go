package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

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

// run starts `weir args…` and kills it at the end of the test if it still runs.
func run(t *testing.T, args ...string) *weirtest.Process {
	t.Helper()
	return weirtest.Go(t, nil, args...)
}

// must runs a command to its end and returns its standard output.
func must(t *testing.T, args ...string) string {
	t.Helper()
	return weirtest.Must(t, args...)
}

// exists reports whether there is such a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
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

// eventually waits for what other processes bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	weirtest.Eventually(t, what, ok)
}
