package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// testServer is a server on a real loopback port.
type testServer struct {
	*Server
	t    *testing.T
	addr string
}

// serveTest starts a server without an engine; what gets past the readiness
// check is answered 503 not_ready.
func serveTest(t *testing.T, change func(*Config)) *testServer {
	t.Helper()
	cfg := Config{DataDir: t.TempDir(), Limits: api.DefaultLimits()}
	if change != nil {
		change(&cfg)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(cfg, Options{Version: "test"})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.http.Close(); err != nil {
			t.Error(err)
		}
		s.streams.cut()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &testServer{Server: s, t: t, addr: l.Addr().String()}
}

// serveReady starts a server that counts as ready but has an engine that must
// not be asked: for what is answered before a verb gets to it.
func serveReady(t *testing.T, change func(*Config)) *testServer {
	t.Helper()
	s := serveTest(t, func(c *Config) {
		if c.unwatched = true; change != nil {
			change(c)
		}
	})
	s.SetEngine(new(engine.Engine))
	return s
}

func parseKeys(t *testing.T, list string) *Keys {
	t.Helper()
	k, err := ParseKeys(list)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
	proto  string
	close  bool
}

// code is the error code in the body, empty for a success. An answer of 4xx or
// 5xx that is not the canonical error body fails the test.
func (r *reply) code(t *testing.T) string {
	t.Helper()
	var e struct {
		Error *struct {
			Code, Message string
			Detail        map[string]any
		}
	}
	if err := json.Unmarshal([]byte(r.body), &e); err != nil && r.status >= 400 {
		t.Fatalf("status %d with a body that is no JSON: %q", r.status, r.body)
	}
	if e.Error == nil {
		if r.status >= 400 {
			t.Fatalf("status %d without an error in %q", r.status, r.body)
		}
		return ""
	}
	if e.Error.Message == "" {
		t.Errorf("status %d with an empty message: %q", r.status, r.body)
	}
	return e.Error.Code
}

type header map[string]string

// ask sends one request with its own connection. A body that starts with { gets
// the content type of JSON.
func (s *testServer) ask(method, target, body string, head header) *reply {
	s.t.Helper()
	return s.askWith(&http.Transport{DisableKeepAlives: true, DisableCompression: true}, method, target, body, head)
}

func (s *testServer) askWith(tr *http.Transport, method, target, body string, head header) *reply {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+target, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range head {
		if k == "Host" {
			req.Host = v
			continue
		}
		req.Header.Set(k, v)
	}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, target, err)
	}
	return readReply(s.t, res)
}

func readReply(t *testing.T, res *http.Response) *reply {
	t.Helper()
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return &reply{status: res.StatusCode, header: res.Header, body: string(text), proto: res.Proto, close: res.Close}
}

func (s *testServer) want(r *reply, status int, code api.Code) {
	s.t.Helper()
	if got := r.code(s.t); r.status != status || got != string(code) {
		s.t.Errorf("got %d %q, want %d %q: %s", r.status, got, status, code, r.body)
	}
}

// dial opens a raw connection that gives up after 20 s.
func (s *testServer) dial() net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// raw writes bytes on a connection of their own and returns all that comes back
// until the server closes it.
func (s *testServer) raw(text string) string {
	s.t.Helper()
	c := s.dial()
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	back, err := io.ReadAll(c)
	if err != nil && len(back) == 0 {
		s.t.Fatalf("the connection gave nothing: %v", err)
	}
	return string(back)
}

// replies parses the answers in what raw returned.
func replies(t *testing.T, text string) []*reply {
	t.Helper()
	var all []*reply
	r := bufio.NewReader(bytes.NewReader([]byte(text)))
	for {
		if _, err := r.Peek(1); err != nil {
			return all
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("after %d answers: %v in %q", len(all), err, text)
		}
		all = append(all, readReply(t, res))
	}
}
