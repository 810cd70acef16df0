// Package s3test starts a stand-in for S3 that knows conditional puts, and a proxy in
// front of it that can be told to misbehave.
package s3test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/internal/replica/replicatest"
)

// Bucket is the bucket that a Server has.
const Bucket = "weir"

// Server is a running stand-in.
type Server struct{ Addr string }

// built is the stand-in's program, built once by a test process.
var built = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	to := filepath.Join(os.TempDir(), fmt.Sprintf("weir-s3-%d", os.Getpid()))
	out, err := exec.Command("go", "build", "-C", filepath.Join(filepath.Dir(here), "server"), "-o", to, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return to, nil
})

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, Bucket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("s3test: the server did not start: %v", err)
	}
	return &Server{strings.TrimSpace(addr)}
}

// Clean removes the program that Start has built. It is for TestMain.
func Clean() {
	if program, err := built(); err == nil {
		os.Remove(program)
	}
}

// URL is that of a copy below a prefix, by way of addr.
func URL(addr, prefix string) string {
	return fmt.Sprintf("s3://%s/%s?endpoint=http://%s&region=us-east-1", Bucket, prefix, addr)
}

// Proxy is between a client and a server. Calls that change something suffer the
// faults of its plan.
type Proxy struct {
	replicatest.Plan
	Addr string

	TearPuts, TearGets atomic.Int32 // how many of the next are cut off in the middle
	Unconditional      atomic.Bool  // conditions of puts are dropped
	Unimplemented      atomic.Bool  // puts with a condition are answered 501
	Deny               atomic.Bool  // every call is answered 403

	server    *Server
	conflicts atomic.Int32 // every other busy answer is one
}

// Proxy starts a proxy that ends with the test.
func (s *Server) Proxy(t testing.TB) *Proxy {
	p := &Proxy{server: s}
	front := httptest.NewServer(p)
	t.Cleanup(front.Close)
	t.Cleanup(front.CloseClientConnections)
	p.Addr = front.Listener.Addr().String()
	return p
}

// answer is what the server has said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// ServeHTTP passes a call on, or does not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var got answer
	call := func() (err error) { got, err = p.pass(r, body); return err }
	switch {
	case p.Deny.Load():
		got = refusal(http.StatusForbidden, "AccessDenied")
	case p.Unimplemented.Load() && r.Header.Get("If-None-Match") != "":
		got = refusal(http.StatusNotImplemented, "NotImplemented")
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		err = call()
	case r.Method == http.MethodPut && p.TearPuts.Add(-1) >= 0:
		body = body[:len(body)/2]
		_ = call()
		panic(http.ErrAbortHandler)
	default:
		err = p.Through(r.Context(), call)
	}
	if errors.Is(err, replicatest.ErrBusy) {
		if got, err = refusal(http.StatusServiceUnavailable, "SlowDown"), nil; p.conflicts.Add(1)%2 == 0 {
			got = refusal(http.StatusConflict, "ConditionalRequestConflict")
		}
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for key, values := range got.header {
		w.Header()[key] = values
	}
	if r.Method == http.MethodGet && got.status == http.StatusOK && len(got.body) > 1 && p.TearGets.Add(-1) >= 0 {
		w.WriteHeader(got.status)
		_, _ = w.Write(got.body[:len(got.body)/2])
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(got.status)
	_, _ = w.Write(got.body)
}

// pass calls the server. A call whose body was cut announces the whole.
func (p *Proxy) pass(r *http.Request, body []byte) (answer, error) {
	to := *r.URL
	to.Scheme, to.Host = "http", p.server.Addr
	out, err := http.NewRequest(r.Method, to.String(), bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	if p.Unconditional.Load() {
		out.Header.Del("If-None-Match")
	}
	if int64(len(body)) < r.ContentLength {
		out.ContentLength, out.Body = r.ContentLength, io.NopCloser(bytes.NewReader(body))
	}
	res, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, all}, err
}

// refusal is an error as S3 words it.
func refusal(status int, code string) answer {
	text := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>planted</Message></Error>`, code)
	return answer{status, http.Header{"Content-Type": {"application/xml"}}, []byte(text)}
}
