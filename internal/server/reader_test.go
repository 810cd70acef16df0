package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/bubble"
)

// pipes is a listener whose connections are pipes, in which nothing waits unread.
type pipes struct {
	accepts, closed chan net.Conn
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepts:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.closed); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p.accepts <- far
	return near, nil
}

// servePiped starts a server like serveReady, for virtual time.
func servePiped(t *testing.T, change func(*Config)) (*Server, pipes) {
	t.Helper()
	cfg := Config{DataDir: t.TempDir(), Limits: api.DefaultLimits(), unwatched: true}
	change(&cfg)
	s := New(cfg, Options{Version: "test"})
	s.SetEngine(new(engine.Engine))
	l := pipes{make(chan net.Conn), make(chan net.Conn)}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.http.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s, l
}

// A client that takes nothing of an answer, of whatever size, loses it after a while: what its
// request holds others need.
func TestAnAnswerThatNobodyTakesIsCutOff(t *testing.T) {
	const room = 3000
	body := strings.Repeat(" ", room)
	for what, target := range map[string]string{
		"nothing":         "DELETE /ui/session",
		"a small answer":  "GET /v0/health",
		"a larger one":    "POST /echo/20000",
		"a large one":     "POST /echo/60000",
		"a huge one":      "POST /echo/8000000",
		"a refusal":       "GET /v0/nothing",
		"a page":          "GET /ui/style.css",
		"the description": "GET /v0/openapi.json",
	} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s over HTTP/%d", what, version), func(t *testing.T) {
				most := 45 * time.Second
				if what == "a huge one" {
					most = 100 * time.Second
				}
				bubble.Run(t, func(t *testing.T) {
					s, l := servePiped(t, func(c *Config) { c.Limits.MaxInflightBytes = room })
					s.table = newTable(append([]route{{method: "POST", path: "/echo/:n", body: bodyRequired, do: func(q *request) error {
						n, err := strconv.Atoi(q.path.seg[1])
						if err != nil {
							return err
						}
						q.out = append(q.out[:0], strings.Repeat("x", n)...)
						return q.send(http.StatusOK)
					}}}, routes...))
					method, target, _ := strings.Cut(target, " ")
					text := ""
					if method == "POST" {
						text = body
					}
					var rest io.Reader
					if version == 1 {
						c, err := l.dial(t.Context(), "", "")
						if err != nil {
							t.Fatal(err)
						}
						defer c.Close()
						if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n%s", method, target, jsonType, sized(text), text); err != nil {
							t.Fatal(err)
						}
						rest = c
					} else {
						tr := l.transport(&http.HTTP2Config{MaxReceiveBufferPerStream: 1})
						defer tr.CloseIdleConnections()
						res := roundTrip(t, tr, method, target, text)
						defer res.Body.Close()
						rest = res.Body
					}
					time.Sleep(most)

					tr := l.transport(nil)
					defer tr.CloseIdleConnections()
					if r := readReply(t, roundTrip(t, tr, "POST", "/echo/1", body)); r.status != http.StatusOK {
						t.Errorf("another client is answered %d: %s", r.status, r.body)
					}
					got, err := io.ReadAll(rest)
					if what != "nothing" && err == nil && len(got) > 0 {
						t.Errorf("the answer still waited after %v", most)
					}
				})
			})
		}
	}
}

// transport returns a client over HTTP/2.
func (p pipes) transport(c *http.HTTP2Config) *http.Transport {
	tr := &http.Transport{DialContext: p.dial, Protocols: new(http.Protocols), HTTP2: c, DisableCompression: true}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return tr
}

func roundTrip(t *testing.T, tr *http.Transport, method, target, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A connection that was idle for longer than a client may take for an answer is answered as before.
func TestAnIdleConnectionIsAnswered(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		_, l := servePiped(t, func(*Config) {})
		c, err := l.dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for _, idle := range []time.Duration{0, streamPatience - time.Second, streamPatience + 2*patienceStep, idleTimeout - time.Second, 0} {
			time.Sleep(idle)
			if _, err := fmt.Fprint(c, "GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /v0/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				res, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatalf("after %v: %v", idle, err)
				}
				if r := readReply(t, res); r.status != http.StatusOK {
					t.Errorf("after %v: %d %s", idle, r.status, r.body)
				}
			}
		}
	})
}

// quiet is an event stream that has nothing to send.
type quiet struct{}

func (quiet) Ready() <-chan struct{}                             { return nil }
func (quiet) Next(_ context.Context, dst []byte) ([]byte, error) { return dst, nil }
func (quiet) Sent()                                              {}
func (quiet) Ended() bool                                        { return false }

// A stream over HTTP/2 may be silent for as long as its heartbeat allows: what a client may take for
// a frame says nothing about the time between two.
func TestAStreamOverHTTP2MayBeSilent(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const beat = 2 * streamPatience
		s, l := servePiped(t, func(*Config) {})
		s.table = newTable([]route{{method: "GET", path: "/quiet", early: true, do: func(q *request) error {
			e := q.newEventStream(beat)
			q.stream = func() { e.run(quiet{}, goodbye, func() {}) }
			return nil
		}}})
		tr := l.transport(nil)
		defer tr.CloseIdleConnections()
		res := roundTrip(t, tr, "GET", "/quiet", "")
		defer res.Body.Close()
		in, begin := bufio.NewReader(res.Body), time.Now()
		for range 3 * 2 { // each a line and an empty one
			if _, err := in.ReadString('\n'); err != nil {
				t.Fatalf("the stream ends after %v: %v", time.Since(begin), err)
			}
		}
		if took := time.Since(begin); took != 2*beat {
			t.Errorf("two heartbeats took %v", took)
		}
	})
}

// A stream whose client takes nothing is closed, and counted.
func TestAStreamWhoseClientTakesNothingIsCounted(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, l := servePiped(t, func(*Config) {})
		e, err := engine.Open(t.Context(), engine.Options{Dir: "/data", FS: vfs.NewMem()})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s.SetEngine(e)
		for n := range int64(2) {
			c, err := l.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			w, err := e.OpenSession(&api.WatchRequest{WatchOptions: api.WatchOptions{HeartbeatMS: 60_000}}, engine.Owner{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fprintf(c, "GET /v0/watch/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", w.WID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(streamPatience - time.Second)
			if got := e.Metrics().Push.DroppedSlow; got != n {
				t.Errorf("%d streams are dropped before their time", got-n)
			}
			time.Sleep(patienceStep + 2*time.Second)
			if got := e.Metrics().Push.DroppedSlow; got != n+1 {
				t.Errorf("%d streams are counted of %d that were dropped", got, n+1)
			}
		}
	})
}

// A request over HTTP/2 whose body breaks off ends alone: the others have its connection.
func TestABodyThatBreaksOffLeavesAnHTTP2ConnectionOpen(t *testing.T) {
	for what, end := range map[string]func(cancel func()){
		"it is cancelled":     func(cancel func()) { cancel() },
		"it comes too slowly": func(func()) {},
	} {
		for _, kind := range []string{"application/json", "application/x-ndjson"} {
			t.Run(what+", "+kind, func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) {
					_, l := servePiped(t, func(*Config) {})
					tr := l.transport(nil)
					defer tr.CloseIdleConnections()
					dials := 0
					tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
						dials++
						return l.dial(ctx, network, addr)
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					body, rest := io.Pipe()
					req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost/v0/topics/a", body)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("Content-Type", kind)
					answered := make(chan struct{})
					go func() {
						defer close(answered)
						if res, err := tr.RoundTrip(req); err == nil {
							res.Body.Close()
						}
					}()
					if _, err := io.WriteString(rest, `{"records":[`); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					end(cancel)
					<-answered
					rest.Close()
					time.Sleep(5 * time.Second)
					for range 2 {
						if r := readReply(t, roundTrip(t, tr, "GET", "/v0/health", "")); r.status != http.StatusOK {
							t.Errorf("the next request is answered %d: %s", r.status, r.body)
						}
						synctest.Wait()
					}
					if dials > 1 {
						t.Errorf("the client had to connect %d times", dials)
					}
				})
			})
		}
	}
}
