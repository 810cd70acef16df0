package contract

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
)

// RecordVariable names the folder that a run leaves its exchanges in, one file per
// runner with an Exchange per line.
const RecordVariable = "WEIR_CONTRACT_RECORD"

// maxRecorded is the longest body that is recorded.
const maxRecorded = 8 << 20

// Exchange is a request with its answer, or one thing that went over an open stream.
type Exchange struct {
	Case   string `json:"case"`             // file:line of the step
	Stream string `json:"stream,omitempty"` // which of the runner's, if it is of one

	Method string      `json:"method,omitempty"` // empty: of a stream, or no HTTP
	Path   string      `json:"path"`             // as sent, with the query
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"` // as sent; left out if Long
	Long   bool        `json:"long,omitempty"` // a body is too long to be kept

	Status  int         `json:"status,omitempty"`
	Bare    bool        `json:"bare,omitempty"` // the answer may be of the HTTP layer
	Answers http.Header `json:"answers,omitempty"`
	Answer  []byte      `json:"answer,omitempty"` // unpacked

	// Event is that of an event stream, and Body its data; of a WebSocket it is message,
	// or sent or binary for what the client has sent.
	Event string `json:"event,omitempty"`
}

// recorder writes exchanges to a file. A nil one writes nothing.
type recorder struct {
	mu      sync.Mutex
	file    *os.File
	streams int
	err     error // the first
}

// Record has the runner record its exchanges until it is closed, if RecordVariable names a
// folder.
func (r *Runner) Record(t testing.TB) {
	t.Helper()
	dir := os.Getenv(RecordVariable)
	if dir == "" {
		return
	}
	file, err := os.CreateTemp(dir, r.stamp+"-*.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	r.out = &recorder{file: file}
}

func (r *recorder) write(x *Exchange) {
	if r == nil {
		return
	}
	for _, body := range []*[]byte{&x.Body, &x.Answer} {
		if len(*body) > maxRecorded {
			*body, x.Long = nil, true
		}
	}
	line, err := json.Marshal(x)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if r.err == nil {
		r.err = err
	}
}

// failure returns what kept the recorder from writing.
func (r *recorder) failure() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) close() {
	if r != nil {
		_ = r.file.Close() // every line is written at once
	}
}

// where names a step as an Exchange does.
func (c *Case) where(s *Step) string { return fmt.Sprintf("%s:%d", c.File, s.Line) }

// sent is the part of an Exchange that a client has sent; nil if nothing is recorded.
func (r *Runner) sent(req *http.Request) *Exchange {
	if r.out == nil {
		return nil
	}
	x := &Exchange{Method: req.Method, Path: req.URL.RequestURI(), Header: req.Header.Clone()}
	if body := req.Body; req.GetBody != nil {
		if fresh, err := req.GetBody(); err == nil {
			body = fresh
		}
		x.Body, _ = io.ReadAll(body) // it is in memory
	}
	return x
}

// sentRaw is sent for a RAW step; what is no request stays empty.
func (r *Runner) sentRaw(s *Step, v *vars) (*Exchange, error) {
	if r.out == nil {
		return nil, nil
	}
	text, err := rawText(s.Raw, v)
	if err != nil {
		return nil, err
	}
	req, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil {
		return &Exchange{}, nil
	}
	x := &Exchange{Method: req.Method, Path: req.RequestURI, Header: req.Header}
	if x.Body, err = io.ReadAll(req.Body); err != nil {
		return &Exchange{}, nil
	}
	return x, nil
}

// exchanged records the answer to a step.
func (r *Runner) exchanged(where string, s *Step, a *answer) {
	if r.out == nil || a.sent == nil {
		return
	}
	x := a.sent
	x.Case, x.Status, x.Answers, x.Answer = where, a.status, a.header, a.body
	x.Bare = len(s.Expect) > 0 && len(s.Expect[0].Args) > 1 && s.Expect[0].Args[1] == "bare"
	r.out.write(x)
}

// follow returns what records the frames of a new stream.
func (r *Runner) follow(where, path string) func(event string, data []byte) {
	if r.out == nil {
		return func(string, []byte) {}
	}
	r.out.mu.Lock()
	r.out.streams++
	id := fmt.Sprint(r.out.streams)
	r.out.mu.Unlock()
	return func(event string, data []byte) {
		r.out.write(&Exchange{Case: where, Stream: id, Path: path, Event: event, Body: data})
	}
}
