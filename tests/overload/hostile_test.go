package overload

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/stall"
	"github.com/weirmq/weir/tests/weirtest"
)

const (
	leastHostile = 300
	longestReply = 5 * time.Second
	mostGrowth   = 128 << 20
)

// hostile is one request as bytes. bare requests are so broken that net/http
// refuses them before a handler could answer with the canonical body.
type hostile struct {
	name, text string
	bare       bool
	half       bool // the client says no more behind text
}

func request(method, target, head, body string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n%s", method, target, head, body)
}

func jsonRequest(target, body string) string {
	return request("POST", target, fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body)), body)
}

// hostileBodies are bodies that are wrong, or strange, everywhere.
func hostileBodies() map[string]string {
	deep := func(n int, open, end string) string { return strings.Repeat(open, n) + strings.Repeat(end, n) }
	return map[string]string{
		"empty": "", "blank": "   ", "null": "null", "true": "true", "array": "[]", "string": `"x"`, "number": "1",
		"open": "{", "cut": `{"records":[{"data":`, "twice": "{}{}", "comma": "{,}", "trailing": "{} x", "bom": "\xef\xbb\xbf{}",
		"nul": "{\x00}", "utf-8": "{\"records\":[{\"data\":\"\xff\xfe\"}]}", "overlong": "{\"records\":[{\"data\":\"\xc0\xaf\"}]}",
		"lone": `{"records":[{"data":"\ud800"}]}`, "swapped": `{"records":[{"data":"\udc00\ud800"}]}`, "NaN": `{"records":[{"data":NaN}]}`,
		"infinite": `{"records":[{"data":1e999}]}`, "long number": `{"records":[{"data":` + strings.Repeat("9", 100_000) + `}]}`,
		"plus": `{"records":[{"data":+1}]}`, "zeros": `{"records":[{"data":007}]}`, "control": "{\"records\":[{\"data\":\"\n\"}]}",
		"single": `{'records':[]}`, "comment": `{/**/}`, "deep arrays": `{"records":[{"data":` + deep(100_000, "[", "]") + `}]}`,
		"deep objects":  `{"records":[{"data":` + strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000) + `}]}`,
		"deep unclosed": strings.Repeat("[", 500_000), "many commas": `{"records":[` + strings.Repeat(",", 100_000) + `]}`,
		"doubled": `{"records":[],"records":[],"node":"a","node":"b","seqs":[],"seqs":[]}`, "wrong types": `{"records":{},"node":1,"seqs":"x","from_seq":"1","max":"1","before_seq":[]}`,
		"negative": `{"from_seq":-1,"limit":-1,"seqs":[-1],"node":"w","max":-1,"before_seq":-1,"lease_ms":-1}`,
		"fraction": `{"from_seq":1.5,"seqs":[1.5],"node":"w","max":1.0,"before_seq":5e0}`,
		"huge":     `{"from_seq":18446744073709551616,"seqs":[18446744073709551616],"node":"w","max":4294967296,"before_seq":99999999999999999999}`,
		"nulls":    `{"records":null,"node":null,"seqs":null,"lease_ids":null,"from_seq":null,"max":null,"before_seq":null,"match":null}`,
		"leases":   `{"node":"w","seqs":[1],"lease_ids":["lease_zz"],"lease_ms":1}`, "many seqs": `{"node":"w","seqs":[` + strings.Repeat("1,", 5000) + `1],"lease_ms":1}`,
		"long node": `{"node":"` + strings.Repeat("n", 1<<20) + `","records":[{"data":1}],"seqs":[],"lease_ms":1}`,
		"predicate": `{"match":["tag","Glob","a"]}`, "predicate arity": `{"match":["tag"]}`, "predicate op": `{"match":["tag","eq","a"]}`,
		"config": `{"type":"heap","ttl_ms":-1}`, "config self": `{"type":"queue","dead_letter":"h"}`, "config name": `{"dead_letter":"../x"}`,
		"many keys": `{` + strings.Repeat(`"k":1,`, 50_000) + `"z":1}`, "empty records": `{"records":[{}]}`, "meta": `{"records":[{"data":1,"meta":[1]}]}`,
		"reserved": `{"records":[{"data":1,"$seq":5,"$ts":1,"$node":"x"}]}`, "surrogate key": `{"\ud800":1}`, "escapes": `{"records":[{"data":"\q"}]}`,
	}
}

func hostileRequests(t *testing.T) []hostile {
	var all []hostile
	add := func(name, text string) { all = append(all, hostile{name: name, text: text}) }
	for _, verb := range []string{"", "/diff", "/delete", "/claim", "/ack", "/nack", "/extend"} {
		for name, body := range hostileBodies() {
			add(name+" to "+verb, jsonRequest("/v0/topics/h"+verb, body))
		}
	}
	for name, body := range hostileBodies() {
		add(name+" as config", request("PUT", "/v0/topics/h2", fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body)), body))
	}
	for _, p := range []string{
		"//", "/../../etc/passwd", "/v0/topics/..%2f..%2fetc", "/v0/topics/%00", "/v0/topics/%0d%0aX:1", "/v0/topics/%ff", "/v0/topics/%F0%9F%92%A9",
		"/v0/topics/" + strings.Repeat("a", 20_000), "/" + strings.Repeat("/", 5000), "/v0/topics/h;x=1", "/v0/topics/h?touch=%00", "/v0/topics?page_size=1e9",
		"/v0/topics?page_size=-1", "/v0/topics?cursor=%00%ff", "/v0/topics?cursor=" + strings.Repeat("A", 9000), "/v0/topics?" + strings.Repeat("a=1&", 5000),
		"/v0/topics?prefix=%", "/v0/topics?a;b;c", "/v0/topics/h?if_empty=2", "/.git/config", "/v0/topics/%2e%2e/diff", "/debug/pprof/", "/v0/routers/x", "/v0/ws",
		"http://evil.example/v0/topics", "http://localhost/v0/topics/%2F", "*", "/v0/watch/x?token=" + strings.Repeat("t", 9000),
	} {
		for _, m := range []string{"GET", "DELETE", "OPTIONS"} {
			all = append(all, hostile{name: m + " " + p[:min(40, len(p))], text: request(m, p, "", ""), bare: strings.Contains(p, "prefix=%") || p == "*"})
		}
	}
	for _, m := range []string{"TRACE", "PATCH", "get", "PROPFIND", strings.Repeat("M", 5000), "A!B", "CONNECT"} {
		add("method "+m[:min(10, len(m))], request(m, "/v0/topics/h", "", ""))
	}
	bomb := pack(t, 200<<20)
	for name, head := range map[string]string{
		"foreign host": "Host: evil.example\r\n", "origin": "Origin: http://evil.example\r\n", "no type": "", "wrong type": "Content-Type: text/html\r\n",
		"long key": "Content-Type: application/json\r\nIdempotency-Key: " + strings.Repeat("k", 9000) + "\r\n",
		"deflate":  "Content-Type: application/json\r\nContent-Encoding: deflate\r\n", "bad gzip": "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
		"auth": "Authorization: Bearer " + strings.Repeat("x", 9000) + "\r\n", "accept": "Accept-Encoding: gzip;q=a;;;,,,*;q=\r\n", "upgrade": "Upgrade: websocket\r\n",
	} {
		all = append(all, hostile{name: name, text: request("POST", "/v0/topics/h", head+"Content-Length: 2\r\n", "{}"), bare: name == "foreign host"})
	}
	add("gzip bomb", request("POST", "/v0/topics/h", fmt.Sprintf("Content-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n", len(bomb)), bomb))
	for name, text := range map[string]string{
		"no version": "GET /\r\n\r\n", "HTTP/0.9": "GET / HTTP/0.9\r\n\r\n", "HTTP/3": "GET / HTTP/3.0\r\nHost: x\r\n\r\n", "no host": "GET / HTTP/1.1\r\n\r\n",
		"two hosts": "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "garbage": "\x00\x01\x02\x03\r\n\r\n", "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"folded": "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", "nul header": "GET / HTTP/1.1\r\nHost: localhost\r\nX: \x00\r\n\r\n",
		"no colon": "GET / HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n", "blank name": "GET / HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n",
		"space name": "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", "long header": "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 100_000) + "\r\n\r\n",
		"many headers": "GET / HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: y\r\n", 20_000) + "\r\n", "bad escape": "GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"negative length": request("POST", "/v0/topics/h", "Content-Length: -1\r\n", ""), "two lengths": request("POST", "/v0/topics/h", "Content-Length: 1\r\nContent-Length: 2\r\n", "{}"),
		"length of words": request("POST", "/v0/topics/h", "Content-Length: ten\r\n", ""), "huge length": request("POST", "/v0/topics/h", "Content-Length: 99999999999999999999\r\n", ""),
		"expect": request("POST", "/v0/topics/h", "Expect: 200-ok\r\nContent-Length: 2\r\n", "{}"), "coding": request("POST", "/v0/topics/h", "Transfer-Encoding: gzip\r\n", ""),
		"two codings": request("POST", "/v0/topics/h", "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), "h2 preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + strings.Repeat("\xff", 100),
		"h2 half": "PRI * HTTP/2.0\r\n\r\n", "bare LF": "GET /healthz HTTP/1.1\nHost: localhost\n\n",
	} {
		all = append(all, hostile{name: name, text: text, bare: true, half: true})
	}
	chunks := "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
	for name, body := range map[string]string{
		"no chunk size": "\r\n\r\n", "bad chunk size": "zz\r\n", "negative chunk": "-1\r\n{\r\n", "huge chunk": "ffffffffffffffff\r\n{", "chunk extension": "2;" + strings.Repeat("x", 9000) + "\r\n{}\r\n0\r\n\r\n",
		"cut chunk": "5\r\n{", "long trailer": "2\r\n{}\r\n0\r\n" + strings.Repeat("T: x\r\n", 9000) + "\r\n", "missing end": "2\r\n{}",
	} {
		all = append(all, hostile{name: name, text: request("POST", "/v0/topics/h", chunks, body), half: true})
	}
	all = append(all, hostile{name: "both lengths", text: request("POST", "/v0/topics/h", chunks+"Content-Length: 2\r\n", "2\r\n{}\r\n0\r\n\r\n"), half: true},
		hostile{name: "cut body", text: request("POST", "/v0/topics/h", "Content-Type: application/json\r\nContent-Length: 1000\r\n", "{"), half: true})
	return all
}

func pack(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	if _, err := zw.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHostileRequestsAreAnsweredAndHarmNothing(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	send := func(method, target, body string, want int) {
		t.Helper()
		r := bufio.NewReader(strings.NewReader(exchange(t, s.Addr, hostile{name: target,
			text: request(method, target, fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body)), body)})))
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%s %s: %v, %v", method, target, res, err)
		}
	}
	send("PUT", "/v0/topics/kept", `{"type":"queue"}`, 201)
	send("POST", "/v0/topics/kept", `{"records":[{"data":"safe"}]}`, 200)
	send("PUT", "/v0/topics/h", `{"type":"queue"}`, 201)
	before := s.RSS()
	all := hostileRequests(t)
	for _, h := range all {
		judge(t, h, exchange(t, s.Addr, h))
	}
	if len(all) < leastHostile {
		t.Errorf("only %d hostile requests", len(all))
	}
	growth := s.PeakRSS() - before
	t.Logf("%d hostile requests, memory grew by %d MiB at most", len(all), growth>>20)
	if growth > mostGrowth {
		t.Errorf("memory grew by %d MiB", growth>>20)
	}
	if !s.Running() {
		t.Fatal("the server has ended")
	}
	send("POST", "/v0/topics/kept/claim", `{"node":"w"}`, 200)
	send("POST", "/v0/topics/kept/ack", `{"node":"w","seqs":[1]}`, 200)
	if strings.Contains(s.Stderr(), "panic") {
		t.Errorf("a request panicked:\n%s", s.Stderr())
	}
	if code := s.Stop(); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// exchange sends a request and returns what came back until the server closed
// the connection; one that takes too long fails the test.
func exchange(t *testing.T, addr string, h hostile) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatalf("%s: %v", h.name, err)
	}
	defer c.Close()
	begin, stalled := time.Now(), stall.Watch()
	if err := c.SetDeadline(begin.Add(6 * longestReply)); err != nil {
		t.Fatal(err)
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		// The server may refuse and close before it has taken everything.
		_, _ = io.WriteString(c, h.text)
		if h.half {
			_ = c.(*net.TCPConn).CloseWrite()
		}
	}()
	back, _ := io.ReadAll(c) // a reset behind the answer is as good as an end
	if took := time.Since(begin); took > longestReply+stalled() {
		t.Errorf("%s: no end for %v", h.name, took)
	}
	c.Close()
	<-sent
	return string(back)
}

// judge checks the answer to a hostile request.
func judge(t *testing.T, h hostile, back string) {
	t.Helper()
	if h.bare && !strings.HasPrefix(back, "HTTP/1.") {
		return // closed, or HTTP/2 frames
	}
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(back)), nil)
	if err != nil {
		t.Errorf("%s: no answer: %v in %.80q", h.name, err, back)
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Errorf("%s: %v", h.name, err)
	}
	if res.StatusCode == 500 {
		t.Errorf("%s: 500 %s", h.name, body)
	}
	if res.StatusCode < 400 || h.bare && res.Header.Get("Content-Type") != "application/json" {
		return
	}
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		t.Errorf("%s: %d without the canonical body: %.120q", h.name, res.StatusCode, body)
	}
}
