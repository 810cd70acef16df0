package server

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/stall"
)

func pack(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	if _, err := io.WriteString(zw, text); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const jsonType = "Content-Type: application/json\r\n"

// post makes a raw POST with the given header lines, each ended, and body.
func post(path, head, body string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + head + "\r\n" + body
}

func sized(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }

func chunked(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

const teChunked = "Transfer-Encoding: chunked\r\n"

func TestWhatABodyMustBe(t *testing.T) {
	s := serveReady(t, func(c *Config) { c.Limits.MaxBodyBytes = 100 })
	plain := jsonType + "Connection: close\r\n"
	fits, over := strings.Repeat(" ", 100), strings.Repeat(" ", 101)
	bomb, bad := pack(t, strings.Repeat(" ", 1<<20)), "nonsense"
	gz := "Content-Encoding: gzip\r\n"
	for _, c := range []struct {
		name, text string
		status     int
		code       api.Code
	}{
		{"exactly the limit is parsed", post("/v0/topics/x", plain+sized(fits), fits), 400, "invalid_request"},
		{"one more is too large", post("/v0/topics/x", plain+sized(over), over), 413, "payload_too_large"},
		{"too large is known from the length alone", post("/v0/topics/x", plain+"Content-Length: 99999999999\r\n", ""), 413, "payload_too_large"},
		{"chunked, exactly the limit", post("/v0/topics/x", jsonType+teChunked, chunked(fits)), 400, "invalid_request"},
		{"chunked, one more", post("/v0/topics/x", jsonType+teChunked, chunked(over)), 413, "payload_too_large"},
		{"chunked, size before type", post("/v0/topics/x", teChunked, chunked(over)), 413, "payload_too_large"},
		{"chunked, wrong type", post("/v0/topics/x", teChunked, chunked(fits)), 415, "unsupported_media_type"},
		{"chunked, broken framing", post("/v0/topics/x", jsonType+teChunked, "zz\r\n"), 400, "invalid_request"},
		{"gzip, exactly the limit", post("/v0/topics/x", plain+gz+sized(pack(t, fits)), pack(t, fits)), 400, "invalid_request"},
		{"gzip in capitals", post("/v0/topics/x", plain+"Content-Encoding: GZIP\r\n"+sized(pack(t, over)), pack(t, over)), 413, "payload_too_large"},
		{"gzip by its old name", post("/v0/topics/x", plain+"Content-Encoding: x-gzip\r\n"+sized(pack(t, over)), pack(t, over)), 413, "payload_too_large"},
		{"gzip, one more unpacked", post("/v0/topics/x", plain+gz+sized(pack(t, over)), pack(t, over)), 413, "payload_too_large"},
		{"gzip, a bomb", post("/v0/topics/x", plain+gz+sized(bomb), bomb), 413, "payload_too_large"},
		{"gzip, corrupt", post("/v0/topics/x", plain+gz+sized(bad), bad), 400, "invalid_request"},
		{"gzip, cut off", post("/v0/topics/x", plain+gz+sized(bomb[:20]), bomb[:20]), 400, "invalid_request"},
		{"gzip, corrupt, wrong type", post("/v0/topics/x", "Connection: close\r\n"+gz+sized(bad), bad), 415, "unsupported_media_type"},
		{"gzip, size before type", post("/v0/topics/x", "Connection: close\r\n"+gz+sized(bomb), bomb), 413, "payload_too_large"},
		{"another coding", post("/v0/topics/x", plain+"Content-Encoding: br\r\n"+sized(bad), bad), 415, "unsupported_media_type"},
		{"another coding, chunked", post("/v0/topics/x", jsonType+teChunked+"Content-Encoding: deflate\r\n", chunked(bad)), 415, "unsupported_media_type"},
		{"no type", post("/v0/topics/x", "Connection: close\r\n"+sized("{}"), "{}"), 415, "unsupported_media_type"},
		{"type with parameters", post("/v0/topics/x", "Content-Type:   application/json; charset=utf-8\r\nConnection: close\r\n"+sized("{}"), "{}"), 400, "invalid_request"},
		{"empty, no type", post("/v0/topics/x", "Connection: close\r\nContent-Length: 0\r\n", ""), 415, "unsupported_media_type"},
		{"empty with a type", post("/v0/topics/x", plain+"Content-Length: 0\r\n", ""), 400, "invalid_request"},
		{"empty chunked, no type", post("/v0/topics/x", teChunked, "0\r\n\r\n"), 415, "unsupported_media_type"},
		{"empty chunked with a type", post("/v0/topics/x", jsonType+teChunked, "0\r\n\r\n"), 400, "invalid_request"},
		{"an empty claim is 400 before 415", post("/v0/topics/x/claim", "Connection: close\r\n", ""), 400, "invalid_request"},
		{"an empty delete", post("/v0/topics/x/delete", plain, ""), 400, "invalid_request"},
		{"an empty ack", post("/v0/topics/x/ack", "Connection: close\r\n", ""), 415, "unsupported_media_type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := replies(t, s.raw(c.text))
			if len(r) != 1 {
				t.Fatalf("%d answers", len(r))
			}
			if got := r[0].code(t); r[0].status != c.status || got != string(c.code) {
				t.Errorf("got %d %q, want %d %q: %s", r[0].status, got, c.status, c.code, r[0].body)
			}
		})
	}
	if n := s.inflight.n.Load(); n != 0 {
		t.Errorf("%d bytes stay reserved", n)
	}
}

func TestNothingBehindATransferEncodingIsRead(t *testing.T) {
	s := serveTest(t, nil)
	smuggled := "GET /v0/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	for name, head := range map[string]string{
		"both lengths":            "Content-Length: 5\r\n" + teChunked,
		"both, the other order":   teChunked + "Content-Length: 5\r\n",
		"chunked alone":           teChunked,
		"chunked with keep-alive": teChunked + "Connection: keep-alive\r\n",
	} {
		for _, path := range []string{"/v0/topics/x", "/v0/health", "/v0/nothing"} {
			r := replies(t, s.raw(post(path, head, "0\r\n\r\n")+smuggled))
			if len(r) != 1 || !r[0].close {
				t.Errorf("%s at %s: %d answers, the first closes: %v", name, path, len(r), r[0].close)
			}
		}
	}
}

func TestASmallRefusedBodyLeavesTheConnectionUsable(t *testing.T) {
	s := serveTest(t, nil)
	text := post("/v0/topics/x", jsonType+sized("{}"), "{}") + "GET /v0/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
	r := replies(t, s.raw(text))
	if len(r) != 2 || r[0].status != 503 || r[1].status != 200 {
		t.Errorf("%d answers", len(r))
	}
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	s := serveTest(t, nil)
	for _, length := range []string{"1000", "200000", "60000000"} {
		start, stalled := time.Now(), stall.Watch()
		r := replies(t, s.raw(post("/v0/topics/x", jsonType+"Content-Length: "+length+"\r\n", "{")))
		if took := time.Since(start) - stalled(); len(r) != 1 || r[0].status != 503 || took > 5*time.Second {
			t.Errorf("length %s: %d answers after %v", length, len(r), took)
		}
	}
}

func TestBodiesTogetherStayUnderTheCap(t *testing.T) {
	s := serveReady(t, func(c *Config) { c.Limits.MaxInflightBytes = 10_000 })
	held := s.dial()
	if _, err := io.WriteString(held, post("/v0/topics/x", jsonType+"Content-Length: 6000\r\n", "{")); err != nil {
		t.Fatal(err)
	}
	await(t, "the first body to be reserved", func() bool { return s.inflight.n.Load() == 6000 })

	refused := func(text string) {
		t.Helper()
		r := replies(t, s.raw(text))
		s.want(r[0], 429, "throttled")
		if r[0].header.Get("Retry-After") != "1" || !strings.Contains(r[0].body, `"detail":{"limit":"max_inflight_bytes","max":10000}`) {
			t.Errorf("the refusal is %v %s", r[0].header, r[0].body)
		}
	}
	refused(post("/v0/topics/x", jsonType+"Connection: close\r\nContent-Length: 4001\r\n", "")) // not a byte of it is awaited
	big := strings.Repeat(" ", 5000)
	refused(post("/v0/topics/x", jsonType+teChunked, chunked(big)))
	refused(post("/v0/topics/x", jsonType+"Connection: close\r\nContent-Encoding: gzip\r\n"+sized(pack(t, big)), pack(t, big)))
	fits := strings.Repeat(" ", 4000)
	s.want(s.ask("POST", "/v0/topics/x", fits, header{"Content-Type": "application/json"}), 400, "invalid_request")

	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the first body to be given back", func() bool { return s.inflight.n.Load() == 0 })
}

// await waits for something that no channel tells about.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waiting for %s took over 30 s", what)
		}
	}
}

func TestLargeBodiesArriveWhole(t *testing.T) {
	s := serveReady(t, nil)
	seen := make(chan string, 1)
	s.table = newTable([]route{{method: "POST", path: "/echo", body: bodyRequired, do: func(q *request) error {
		seen <- string(q.body)
		q.out = append(q.out[:0], "{}"...)
		return q.send(200)
	}}})
	for _, size := range []int{1, 4095, 4096, 4097, 65_536, 262_144, 262_145, 3_000_000} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte('a' + i%23)
		}
		text := string(body)
		for kind, raw := range map[string]string{
			"sized":   post("/echo", jsonType+"Connection: close\r\n"+sized(text), text),
			"chunked": post("/echo", jsonType+teChunked, chunked(text)),
			"gzip":    post("/echo", jsonType+"Connection: close\r\nContent-Encoding: gzip\r\n"+sized(pack(t, text)), pack(t, text)),
		} {
			if r := replies(t, s.raw(raw)); r[0].status != 200 {
				t.Fatalf("%s of %d: %s", kind, size, r[0].body)
			}
			if got := <-seen; got != text {
				t.Errorf("%s of %d arrived as %d bytes", kind, size, len(got))
			}
		}
	}
	await(t, "all bytes to be given back", func() bool { return s.inflight.n.Load() == 0 })
}

func TestTheDeadlineOfABodyMovesWithItsBytes(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for _, c := range []struct {
		name  string
		reads [][2]float64 // seconds, bytes
		want  float64      // the deadline after the last read
	}{
		{"a first byte does not move it", [][2]float64{{1, 1}}, 10},
		{"ten bytes a second do not move it", [][2]float64{{1, 10}, {5, 10}, {9, 10}}, 10},
		{"10 KiB move it", [][2]float64{{4, 10 << 10}}, 14},
		{"a burst counts once", [][2]float64{{1, 1 << 20}}, 11},
		{"the byte 10 KiB back counts", [][2]float64{{1, 5 << 10}, {6, 5 << 10}}, 11},
		{"1 KiB a second keeps it ahead", [][2]float64{{1, 2048}, {2, 1024}, {3, 1024}, {4, 1024}, {5, 1024}, {6, 1024}, {7, 1024}, {8, 1024}, {9, 1024}, {10, 1024}, {11, 1024}}, 12},
		{"never behind ten minutes", [][2]float64{{599, 1 << 20}}, 600},
	} {
		p := &pacer{start: start}
		var got time.Time
		for _, r := range c.reads {
			got = p.deadline(int(r[1]), at(r[0]))
		}
		if !got.Equal(at(c.want)) {
			t.Errorf("%s: got %v s, want %v s", c.name, got.Sub(start).Seconds(), c.want)
		}
	}
}

func TestSlowClientsAreLetGo(t *testing.T) {
	t.Parallel()
	s := serveReady(t, nil)
	var all sync.WaitGroup
	for name, start := range map[string]string{
		"a header that drips":        "POST /v0/topics/x HTTP/1.1\r\nHost: local",
		"a body that drips":          post("/v0/topics/x", jsonType+"Content-Length: 100000\r\n", "{"),
		"a chunked body that drips":  post("/v0/topics/x", jsonType+teChunked, "1\r\n{\r\n186a0\r\n"),
		"a refused body that drips":  post("/v0/nothing", jsonType+"Content-Length: 100000\r\n", "{"),
		"a packed body that drips":   post("/v0/topics/x", jsonType+"Content-Encoding: gzip\r\nContent-Length: 100000\r\n", "\x1f\x8b\x08"),
		"an ignored body that drips": "GET /v0/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
	} {
		c := s.dial()
		all.Go(func() {
			stalled := stall.Watch()
			if took := lifeOf(c, start); took > 13*time.Second+stalled() {
				t.Errorf("%s: the connection lived for %v", name, took)
			}
		})
	}
	for name, head := range map[string]string{
		"lines that never come":                 teChunked,
		"lines that never come and may wait":    teChunked + "X: y\r\n",
		"packed lines that never come":          "Content-Encoding: gzip\r\nContent-Length: 1000\r\n",
		"lines of known length that never come": "Content-Length: 1000\r\n",
	} {
		c := s.dial()
		all.Go(func() {
			stalled, begin := stall.Watch(), time.Now()
			if _, err := io.WriteString(c, post("/v0/topics/x?disable_backpressure=true", "Content-Type: application/x-ndjson\r\n"+head, "")); err != nil {
				t.Error(err)
			}
			_ = c.SetReadDeadline(begin.Add(time.Minute))
			_, _ = io.Copy(io.Discard, c)
			if took := time.Since(begin); took > 13*time.Second+stalled() {
				t.Errorf("%s: the connection lived for %v", name, took)
			}
			c.Close()
		})
	}
	all.Wait()
	await(t, "all bytes to be given back", func() bool { return s.inflight.n.Load() == 0 })
}

// lifeOf sends start, then five bytes a second, and returns for how long the
// server puts up with it.
func lifeOf(c net.Conn, start string) time.Duration {
	begin := time.Now()
	dripped := make(chan struct{})
	go func() {
		defer close(dripped)
		for _, err := io.WriteString(c, start); err == nil; _, err = io.WriteString(c, "x") {
			time.Sleep(200 * time.Millisecond)
		}
	}()
	// Either end of the connection may notice first; it has to be over.
	_, _ = io.Copy(io.Discard, c)
	took := time.Since(begin)
	c.Close()
	<-dripped
	return took
}

func TestASteadySlowBodyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	s := serveReady(t, nil)
	const size = 30 << 10
	c := s.dial()
	if _, err := io.WriteString(c, post("/v0/topics/x", jsonType+fmt.Sprintf("Connection: close\r\nContent-Length: %d\r\n", size), "")); err != nil {
		t.Fatal(err)
	}
	for range 12 { // 2.5 KiB a second, longer than the read timeout
		if _, err := io.WriteString(c, strings.Repeat(" ", size/12)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	text, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	s.want(replies(t, string(text))[0], 400, "invalid_request")
}

func TestAnswersArePackedWhenAsked(t *testing.T) {
	s := serveTest(t, nil)
	for accept, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "*": true, "*;q=0": false, "deflate": false,
		"GZIP": true, "identity, *;q=0.1": true, "gzip;q=0, *": false, "x-gzip": true, "gzip;q=x": false,
	} {
		r := s.ask("GET", "/v0/metrics", "", header{"Accept-Encoding": accept})
		if got := r.header.Get("Content-Encoding") == "gzip"; got != want {
			t.Errorf("%q: packed %v, want %v", accept, got, want)
		}
		text := r.body
		if want {
			zr, err := gzip.NewReader(strings.NewReader(r.body))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(zr)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if !strings.Contains(text, "# TYPE weir_ready gauge") || r.header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%q: %v %.80q", accept, r.header, text)
		}
	}
	if r := s.ask("GET", "/v0/health", "", header{"Accept-Encoding": "gzip"}); r.header.Get("Content-Encoding") != "" {
		t.Error("a small answer is packed")
	}
}

// Who needs no key is on nobody's side: what others need for their bodies is not for theirs.
func TestABodyWithoutAKeyIsSmall(t *testing.T) {
	s := serveReady(t, func(c *Config) {
		c.Keys = parseKeys(t, "secret")
		c.Limits.MaxInflightBytes = 1 << 20
	})
	some := false
	for i := range routes {
		r := &routes[i]
		if r.body == bodyIgnored || !r.open && r.auth != authItself {
			continue
		}
		some = true
		for _, framing := range []string{"Content-Length: 1000000\r\n", teChunked, "Content-Encoding: gzip\r\nContent-Length: 1000000\r\n"} {
			held := s.dial()
			body := strings.Repeat(" ", 900_000)
			switch {
			case framing == teChunked:
				body = "dbba0\r\n" + body
			case strings.Contains(framing, "gzip"):
				body = pack(t, body)
			}
			answered := make(chan string, 1)
			go func() {
				head := make([]byte, len("HTTP/1.1 413"))
				_, err := io.ReadFull(held, head)
				answered <- fmt.Sprint(string(head), " ", err)
			}()
			// The server reads as much as it wants.
			_, _ = io.WriteString(held, "POST "+r.path+" HTTP/1.1\r\nHost: localhost\r\n"+jsonType+framing+"\r\n"+body)
			if got := <-answered; got != "HTTP/1.1 413 <nil>" {
				t.Errorf("%s %s with %q is answered %s", r.method, r.path, framing, got)
			}
			await(t, "its bytes to be given back", func() bool { return s.inflight.n.Load() == 0 })
			held.Close()
		}
	}
	if !some {
		t.Error("there is no such route")
	}
}
