package browser

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// publish sends each text as a message through `weir publish`.
func publish(t *testing.T, url string, texts ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(strings.Join(texts, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	weirtest.Must(t, "publish", url, "--guard", "off", file)
}

// many is n times the same text.
func many(n int, text string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = text
	}
	return all
}

// post sends JSON to a server as any client may, and returns the status.
func post(t *testing.T, url string, body any) int {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(url, "application/json", bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		t.Logf("%s: %d %s", url, resp.StatusCode, answer)
	}
	return resp.StatusCode
}

type object = map[string]any

// write puts records into a topic, which is made with config if it is not there.
func write(t *testing.T, s *weirtest.Server, topic string, config object, records ...object) {
	t.Helper()
	if status := post(t, s.URL+"/v0/topics/"+topic, object{"records": records, "config": config}); status >= 300 {
		t.Fatalf("writing to %s: %d", topic, status)
	}
}

// gate is where handlers wait until it is opened. They stand in its directory, without
// using the processor: a shell that opens a pipe sleeps until somebody writes to it.
type gate struct {
	t    *testing.T
	pipe string
}

func newGate(t *testing.T) *gate {
	return &gate{t, filepath.Join(t.TempDir(), "gate")}
}

// handler is a command that passes an open gate at once.
func (g *gate) handler() []string {
	return []string{"sh", "-c", `[ ! -e "$0" ] || read -r _ < "$0"; true`, g.pipe}
}

func (g *gate) shut() {
	g.t.Helper()
	if err := syscall.Mkfifo(g.pipe, 0o600); err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { g.open() })
}

// open lets everybody pass who stands there, and whoever comes later. Each one reads a
// line of the pipe, and the pipe stays open to the end of the test: a shell that had
// found the gate shut, but had not opened the pipe yet, would else wait for a writer who
// never comes.
func (g *gate) open() {
	f, err := os.OpenFile(g.pipe, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return // it is open
	}
	g.t.Cleanup(func() { _ = f.Close() })
	if err := os.Remove(g.pipe); err != nil {
		g.t.Error(err)
	}
	if _, err := f.Write(bytes.Repeat([]byte("\n"), 4096)); err != nil {
		g.t.Error(err)
	}
}
