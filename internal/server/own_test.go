package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica/replicatest"
)

// rawStream asks for an event stream with these lines and reads the head of the answer.
func rawStream(t *testing.T, conn net.Conn, request string) (*http.Response, *bufio.Reader) {
	t.Helper()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 512)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || res.Header.Get("Date") == "" || !res.Close {
		t.Fatalf("the stream begins with %d %v", res.StatusCode, res.Header)
	}
	return res, in
}

func TestAStreamOverHTTP1IsAWholeAnswer(t *testing.T) {
	certified := httptest.NewTLSServer(nil)
	defer certified.Close()
	for name, c := range map[string]struct {
		request string
		tls     bool
		coding  string
	}{
		"HTTP/1.1":       {"GET $ HTTP/1.1\r\nHost: localhost\r\n\r\n", false, "chunked"},
		"over TLS":       {"GET $ HTTP/1.1\r\nHost: localhost\r\n\r\n", true, "chunked"},
		"HTTP/1.0":       {"GET $ HTTP/1.0\r\n\r\n", false, ""},
		"another behind": {"GET $ HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n", false, "chunked"},
		"with a body":    {"GET $ HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", false, "chunked"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveEngine(t, nil)
			s.expect(201, "POST", "/v0/topics/a", `{"records":[{"data":1}]}`, nil)
			conn := s.dial()
			if c.tls {
				conn.Close()
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				go s.http.Serve(tls.NewListener(l, &tls.Config{Certificates: certified.TLS.Certificates}))
				trusted := certified.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				trusted.ServerName = "example.com"
				if conn, err = tls.Dial("tcp", l.Addr().String(), trusted); err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			res, in := rawStream(t, conn, strings.ReplaceAll(c.request, "$", s.watch(`{"topics":{"a":{}}}`, nil)))
			if got := strings.Join(res.TransferEncoding, ","); got != c.coding {
				t.Errorf("the transfer encoding is %q, want %q", got, c.coding)
			}
			r := &streamReader{t: t, res: res, in: bufio.NewReader(res.Body)}
			if got := r.block(); got != "retry: 2000" {
				t.Errorf("the stream begins with %q", got)
			}
			r.want("record", `"data":1`)
			r.want("caught-up")
			large := strings.Repeat("x", 3*streamPiece)
			s.expect(200, "POST", "/v0/topics/a", `{"records":[{"data":"`+large+`"}]}`, nil)
			r.want("record", large)
			r.want("caught-up")
			s.expect(200, "DELETE", "/v0/topics/a", "", nil)
			r.want("topic-deleted")
			if rest, err := io.ReadAll(r.in); err != nil || len(rest) > 0 {
				t.Errorf("the answer ends with %q, %v", rest, err)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("the connection ends with %q, %v", rest, err)
			}
		})
	}
}

func TestAStreamWhoseClientSendsWithoutEndIsEnded(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
	conn := s.dial()
	res, _ := rawStream(t, conn, "GET "+s.watch(`{"topics":{"a":{}}}`, nil)+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	go func() {
		for piece := make([]byte, 4096); ; {
			if _, err := conn.Write(piece); err != nil {
				return
			}
		}
	}()
	if _, err := io.Copy(io.Discard, res.Body); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the stream goes on")
	}
}

func TestAStreamThatNobodyReadsIsCutOffWithTheServer(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
	rawStream(t, s.dial(), "GET "+s.watch(`{"topics":{"a":{}}}`, nil)+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	large := `{"records":[{"data":"` + strings.Repeat("x", 512<<10) + `"}]}`
	for range 24 { // more than the buffers of both sides hold
		s.expect(200, "POST", "/v0/topics/a", large, nil)
	}
	if s.streams.count() != 1 {
		t.Fatal("the stream has ended")
	}
	s.closeLeft(http.ErrServerClosed)
	s.awaitStreams(0)
}

// awaitStreams waits until so many are open.
func (s *testServer) awaitStreams(n int64) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); s.streams.count() != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			s.t.Fatalf("%d streams are open, want %d", s.streams.count(), n)
		}
	}
}

func TestStreamsEndWithTheirKeyAndNotBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.json")
	text, entry := newFileKey("maker", "read", "write")
	writeKeys(t, file, entry)
	s := serveEngine(t, func(c *Config) {
		var err error
		if c.Keys, err = LoadKeys("given", file); err != nil {
			t.Fatal(err)
		}
	})
	given, maker := header{"Authorization": "Bearer given"}, header{"Authorization": "Bearer " + text}
	s.want(s.ask("PUT", "/v0/topics/a", `{"type":"queue"}`, given), 201, "")
	made := s.ask("POST", "/v0/tokens", `{"topics":["a"],"ttl_ms":600000}`, maker)
	var says struct{ Token string }
	if err := json.Unmarshal([]byte(made.body), &says); err != nil || says.Token == "" {
		t.Fatalf("POST /v0/tokens: %d %s", made.status, made.body)
	}
	token := header{"Authorization": "Bearer " + says.Token}
	var all []*streamReader
	for _, head := range []header{given, maker, token} {
		r := s.stream(&http.Transport{}, s.watch(`{"topics":{"a":{}}}`, head), head)
		r.block()
		r.want("caught-up")
		all = append(all, r)
	}
	work := s.stream(&http.Transport{}, "/v0/topics/a/work?node=w", maker)
	work.block()
	s.want(s.ask("POST", "/v0/topics/a", `{"records":[{"data":1}]}`, given), 200, "")
	for _, r := range all {
		r.want("record", `"data":1`)
		r.want("caught-up")
	}
	work.want("job", `"data":1`)
	writeKeys(t, file)
	for _, r := range append(all[1:], work) {
		if end := r.block(); end != "" {
			t.Errorf("a stream of a key that is gone goes on with %q", end)
		}
	}
	s.want(s.ask("POST", "/v0/topics/a", `{"records":[{"data":2}]}`, given), 200, "")
	all[0].want("record", `"data":2`)
}

// stuckCopy is a copy that confirms nothing until it is let go on.
type stuckCopy struct {
	*replicatest.Handle
	stuck atomic.Bool
	goOn  chan struct{}
}

func (c *stuckCopy) Append(ctx context.Context, data []byte, stored func(uint64, error)) error {
	if c.stuck.Load() {
		select {
		case <-c.goOn:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.Handle.Append(ctx, data, stored)
}

// Another server may lead by then, whose records the stream would not have.
func TestAStreamEndsWithTheLease(t *testing.T) {
	s := serveTest(t, func(c *Config) { c.Replica.Failover, c.Replica.FailoverAfter = true, 6*time.Second })
	c := &stuckCopy{Handle: replicatest.NewMemory().Open(), goOn: make(chan struct{})}
	lead, err := c.Lead(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	s.SetEngine(openEngine(t, engine.Options{Dir: s.dataDir + "/data", Limits: s.limits, Replica: &engine.Replica{
		Log: c, Files: c.Files(), Term: lead.Term, End: lead.End, Alive: 100 * time.Millisecond, Every: 100 * time.Millisecond}}))
	defer close(c.goOn)
	s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
	r := s.stream(&http.Transport{}, s.watch(`{"topics":{"a":{}},"heartbeat_ms":60000}`, nil), nil)
	r.block()
	r.want("caught-up")
	s.expect(200, "POST", "/v0/topics/a", `{"records":[{"data":1}]}`, nil)
	r.want("record", `"data":1`)
	r.want("caught-up")
	c.stuck.Store(true)
	begin := time.Now()
	if end := r.block(); end != "" || time.Since(begin) > 30*time.Second {
		t.Errorf("a server that may not lead goes on with %q", end)
	}
	s.want(s.ask("GET", "/readyz", "", nil), 503, "not_ready")
	for _, path := range []string{"/v0/health", "/healthz", "/metrics", "/v0/metrics"} {
		s.want(s.ask("GET", path, "", nil), 200, "") // the process is well, and how far the copy is away can be seen
	}
}

func TestAStreamsPlaceIsFreeOnceItsClientSeesTheEnd(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxSSEConnections = 1 })
	for range 30 {
		s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
		r := s.stream(&http.Transport{}, s.watch(`{"topics":{"a":{}}}`, nil), nil)
		r.block()
		r.want("caught-up")
		s.expect(200, "DELETE", "/v0/topics/a", "", nil)
		r.want("topic-deleted")
		if end := r.block(); end != "" {
			t.Fatalf("the stream goes on with %q", end)
		}
	}
}

// An idle stream holds no buffer, and neither net/http's connection nor its goroutines.
func TestAnIdleStreamTakesLittleMemory(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.unwatched = true })
	s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
	held := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	const n = 200
	open := func() {
		for range n {
			res, _ := rawStream(t, s.dial(), "GET "+s.watch(`{"topics":{"a":{}},"heartbeat_ms":60000}`, nil)+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
			r := &streamReader{t: t, res: res, in: bufio.NewReaderSize(res.Body, 16)}
			r.block()
			r.want("caught-up")
		}
	}
	open()
	before, goroutines := held(), runtime.NumGoroutine()
	open()
	if more := runtime.NumGoroutine() - goroutines; more > 2*n+20 {
		t.Errorf("%d streams run on %d goroutines", n, more)
	}
	if each := (held() - before) / n; each > 16<<10 {
		t.Errorf("a stream takes %d bytes", each)
	}
}

func TestAHeadOfTheDashboardsNumbersOpensNoStream(t *testing.T) {
	s := serveEngine(t, nil)
	conn := s.dial()
	if _, err := io.WriteString(conn, "HEAD /ui/live HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodHead})
	if err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %+v, %v", res, err)
	}
	if n := s.streams.count(); n != 0 {
		t.Errorf("%d streams are open", n)
	}
}
