package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestUnknownPathsAndMethods(t *testing.T) {
	s := serveTest(t, nil)
	for _, path := range []string{
		"/v0", "/v0/", "/ui", "/ui/", "/ui/nothing.js", "/index.html", "/v0//topics", "/v0/topics/", "/v0/topics/x/", "/v0/topics//diff", "/v0/topics/x/diff/",
		"/v0/topics/x/diff/y", "/v0/topics/x/nope", "/v1/topics", "/topics", "/v0/./topics", "/v0/x/../topics", "//v0/topics",
		"/v0/routers/", "/v0/routers/x/y", "/v0/watch/", "/V0/topics", "/v0/health/", "/admin", "/metrics/",
		"/v0%2Ftopics", "/a/b/c/d/e/f/g/h/i/j",
	} {
		r := s.ask("GET", path, "", nil)
		s.want(r, 404, "not_found")
		if r.header.Get("Location") != "" || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: headers %v", path, r.header)
		}
	}
	for _, c := range []struct{ method, path, allow string }{
		{"PATCH", "/v0/topics/x", "DELETE, GET, HEAD, POST, PUT"},
		{"OPTIONS", "/v0/topics/x", "DELETE, GET, HEAD, POST, PUT"},
		{"GET", "/v0/topics/x/diff", "POST"},
		{"HEAD", "/v0/topics/x/diff", "POST"},
		{"POST", "/v0/topics", "GET, HEAD"},
		{"POST", "/healthz", "GET, HEAD"},
		{"TRACE", "/v0/metrics", "GET, HEAD"},
		{"get", "/v0/metrics", "GET, HEAD"},
		{"GET", "/admin/backup", "POST"},
	} {
		r := s.ask(c.method, c.path, "", nil)
		if got := r.header.Get("Allow"); r.status != 405 || got != c.allow {
			t.Errorf("%s %s: got %d Allow %q, want 405 %q", c.method, c.path, r.status, got, c.allow)
		}
		if c.method != "HEAD" {
			s.want(r, 405, "method_not_allowed")
		}
	}
	if got := replies(t, s.raw("OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")); got[0].status != 404 {
		t.Errorf("OPTIONS *: %d", got[0].status)
	}
}

func TestHeadHasTheHeadersOfGetAndNoBody(t *testing.T) {
	s := serveTest(t, nil)
	for _, path := range []string{"/v0/ready", "/v0/nothing", "/v0/topics"} {
		get, head := s.ask("GET", path, "", nil), s.ask("HEAD", path, "", nil)
		if head.body != "" || head.status != get.status || head.header.Get("Content-Length") != get.header.Get("Content-Length") ||
			head.header.Get("Content-Type") != get.header.Get("Content-Type") || head.header.Get("Retry-After") != get.header.Get("Retry-After") {
			t.Errorf("%s: HEAD gave %d %v %q, GET %d %v", path, head.status, head.header, head.body, get.status, get.header)
		}
	}
}

func TestSegmentsAreDecodedOnce(t *testing.T) {
	for raw, want := range map[string][]string{
		"/v0/topics/a%3Ab":        {"v0", "topics", "a:b"},
		"/v0/topics/a%2Fb":        {"v0", "topics", "a/b"},
		"/v0/topics/a%252Fb/diff": {"v0", "topics", "a%2Fb", "diff"},
		"/v0/topics/orders->x":    {"v0", "topics", "orders->x"},
		"/v0/topics/%C3%BC":       {"v0", "topics", "ü"},
		"/v0/topics/a+b":          {"v0", "topics", "a+b"},
		"/":                       {""},
		"//":                      {"", ""},
	} {
		r, err := http.NewRequest("GET", raw, nil)
		if raw == "//" {
			r, err = http.NewRequest("GET", "http://h//", nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		var p path
		p.split(r.URL)
		if got := strings.Join(p.seg[:p.n], "|"); got != strings.Join(want, "|") {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

func TestBothProtocolsOnOnePort(t *testing.T) {
	s := serveTest(t, nil)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	if r := s.askWith(h2, "GET", "/v0/health", "", nil); r.status != 200 || r.proto != "HTTP/2.0" {
		t.Errorf("prior knowledge: %d %s", r.status, r.proto)
	}
	if r := s.ask("GET", "/v0/health", "", nil); r.status != 200 || r.proto != "HTTP/1.1" {
		t.Errorf("HTTP/1.1: %d %s", r.status, r.proto)
	}
	r := s.askWith(h2, "POST", "/v0/topics/x", "{}", header{"Content-Type": "text/css"})
	s.want(r, 503, "not_ready")
}

func TestTheOrderOfTheChecks(t *testing.T) {
	const ok, weak, lim = "Bearer all", "Bearer weak", "Bearer lim"
	change := func(c *Config) {
		c.Keys = parseKeys(t, "all,weak:r,lim::in.")
		c.Limits.MaxBodyBytes = 20
	}
	recovering, ready := serveTest(t, change), serveReady(t, change)
	big, badType := strings.Repeat(" ", 21), header{"Content-Type": "text/css"}
	for _, c := range []struct {
		name   string
		s      *testServer
		method string
		path   string
		key    string
		head   header
		body   string
		status int
		code   string
	}{
		{"foreign origin before auth", ready, "POST", "/v0/topics/in.x", "", header{"Origin": "http://evil.example"}, big, 403, "forbidden"},
		{"auth before the route", ready, "POST", "/v0/nothing", "", nil, big, 401, "unauthorized"},
		{"scope before the prefix", ready, "POST", "/v0/topics/x", weak, nil, big, 403, "forbidden"},
		{"scope before 404", ready, "GET", "/v0/topics/x/nope", weak, nil, "", 403, "forbidden"},
		{"scope before 405", ready, "PATCH", "/v0/topics/x", weak, nil, "", 403, "forbidden"},
		{"prefix before 404", ready, "GET", "/v0/topics/x/nope", lim, nil, "", 403, "forbidden"},
		{"prefix before 405", ready, "PATCH", "/v0/topics/x", lim, nil, "", 403, "forbidden"},
		{"prefix before readiness", recovering, "POST", "/v0/topics/x", lim, nil, big, 403, "forbidden"},
		{"route before readiness", recovering, "PATCH", "/v0/topics/x", ok, nil, big, 405, "method_not_allowed"},
		{"404 before readiness", recovering, "POST", "/v0/nothing", ok, nil, big, 404, "not_found"},
		{"readiness before size", recovering, "POST", "/v0/topics/x", ok, badType, big, 503, "not_ready"},
		{"size before type", ready, "POST", "/v0/topics/x", ok, badType, big, 413, "payload_too_large"},
		{"type before JSON", ready, "POST", "/v0/topics/x", ok, badType, "nonsense", 415, "unsupported_media_type"},
		{"JSON", ready, "POST", "/v0/topics/x", ok, header{"Content-Type": "application/json"}, "nonsense", 400, "invalid_request"},
		{"JSON before the verb's checks", ready, "POST", "/v0/topics/x", ok, nil, `{"records":[]`, 400, "invalid_request"},
	} {
		head := header{}
		for k, v := range c.head {
			head[k] = v
		}
		if c.key != "" {
			head["Authorization"] = c.key
		}
		t.Run(c.name, func(t *testing.T) {
			r := c.s.ask(c.method, c.path, c.body, head)
			if got := r.code(t); r.status != c.status || got != c.code {
				t.Errorf("got %d %q, want %d %q: %s", r.status, got, c.status, c.code, r.body)
			}
		})
	}
}

func TestBeforeAndAfterTheServerIsReady(t *testing.T) {
	s := serveTest(t, nil)
	s.SetProgress(0.25)
	for _, path := range []string{"/v0/ready", "/readyz", "/v0/topics", "/v0/topics/x"} {
		r := s.ask("GET", path, "", nil)
		s.want(r, 503, "not_ready")
		if !strings.Contains(r.body, `"replay_progress":0.25`) || r.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %v %s", path, r.header, r.body)
		}
	}
	for _, path := range []string{"/v0/health", "/healthz", "/v0/metrics"} {
		s.want(s.ask("GET", path, "", nil), 200, "")
	}
	again := header{"Accept": "text/event-stream", "Last-Event-ID": "0:5"}
	s.want(s.ask("GET", "/v0/watch/wid_x", "", again), 503, "not_ready")
	again["Sec-Fetch-Mode"] = "cors" // a browser, which would stay away after an error
	comesBack := func() {
		t.Helper()
		r := s.ask("GET", "/v0/watch/wid_x", "", again)
		if r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" || r.body != "retry: 2000\n\n" {
			t.Errorf("an EventSource that connects again: %d %v %q", r.status, r.header, r.body)
		}
	}
	comesBack()
	s.draining.Store(true)
	comesBack()
	for _, path := range []string{"/v0/ready", "/v0/topics"} {
		r := s.ask("GET", path, "", nil)
		s.want(r, 503, "shutting_down")
		if r.header.Get("Retry-After") != "1" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	s.want(s.ask("GET", "/v0/health", "", nil), 200, "")
}

func TestForeignHostsAndOrigins(t *testing.T) {
	own := header{}
	open := serveTest(t, func(c *Config) { c.AllowedHosts = []string{"weir.example", "other.example:8080"} })
	keyed := serveTest(t, func(c *Config) { c.Keys = parseKeys(t, "k") })
	auth := func(h header) header {
		h["Authorization"] = "Bearer k"
		return h
	}
	for _, c := range []struct {
		s    *testServer
		head header
		get  int
		post int
	}{
		{open, own, 404, 404},
		{open, header{"Host": "localhost:4000"}, 404, 404},
		{open, header{"Host": "LOCALHOST"}, 404, 404},
		{open, header{"Host": "127.8.9.1:1"}, 404, 404},
		{open, header{"Host": "[::1]:4000"}, 404, 404},
		{open, header{"Host": "Weir.Example:99"}, 404, 404},
		{open, header{"Host": "other.example"}, 404, 404},
		{open, header{"Host": "evil.example"}, 403, 403},
		{open, header{"Host": "localhost.evil.example"}, 403, 403},
		{open, header{"Host": "127.0.0.1.evil.example"}, 403, 403},
		{open, header{"Host": "192.168.0.1:4000"}, 403, 403},
		{open, header{"Host": "weir.example.evil"}, 403, 403},
		{open, header{"Origin": "http://evil.example"}, 404, 403},
		{open, header{"Origin": "null"}, 404, 403},
		{open, header{"Origin": "http://" + open.addr}, 404, 404},
		{open, header{"Origin": "http://127.0.0.1:1"}, 404, 403},
		{open, header{"Origin": "https://weir.example"}, 404, 404},
		{open, header{"Sec-Fetch-Site": "cross-site"}, 404, 403},
		{open, header{"Sec-Fetch-Site": "same-site", "Origin": "http://" + open.addr}, 404, 403},
		{open, header{"Sec-Fetch-Site": "same-origin", "Origin": "http://" + open.addr}, 404, 404},
		{open, header{"Sec-Fetch-Site": "none"}, 404, 404},
		{keyed, auth(header{"Host": "evil.example"}), 404, 404},
		{keyed, auth(header{"Origin": "http://evil.example"}), 404, 403},
		{keyed, header{"Origin": "http://evil.example"}, 401, 403},
	} {
		if r := c.s.ask("GET", "/v0/nothing", "", c.head); r.status != c.get {
			t.Errorf("GET with %v: got %d, want %d", c.head, r.status, c.get)
		}
		if r := c.s.ask("POST", "/v0/nothing", "", c.head); r.status != c.post {
			t.Errorf("POST with %v: got %d, want %d", c.head, r.status, c.post)
		}
	}
	open.want(open.ask("GET", "/healthz", "", header{"Host": "evil.example"}), 403, "forbidden")
}

func TestTheLimitsOfAConnectionAreSet(t *testing.T) {
	h := serveTest(t, nil).http
	if h.ReadHeaderTimeout != 10*time.Second || h.ReadTimeout != 10*time.Second || h.IdleTimeout != 120*time.Second {
		t.Errorf("timeouts: header %v, read %v, idle %v", h.ReadHeaderTimeout, h.ReadTimeout, h.IdleTimeout)
	}
	if h.MaxHeaderBytes != 32<<10 || h.HTTP2.MaxConcurrentStreams != 250 || h.HTTP2.SendPingTimeout != 20*time.Second {
		t.Errorf("header bytes %d, HTTP/2 %+v", h.MaxHeaderBytes, h.HTTP2)
	}
	if h.DisableGeneralOptionsHandler != true {
		t.Error("net/http answers OPTIONS * by itself")
	}
}

func TestAHeaderThatIsTooLongIsRefused(t *testing.T) {
	s := serveTest(t, nil)
	r := replies(t, s.raw("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"))
	if r[0].status != 431 {
		t.Errorf("got %d, want 431", r[0].status)
	}
}

func TestAPanicIsA500AndTheServerGoesOn(t *testing.T) {
	s := serveTest(t, nil)
	s.table = newTable([]route{
		{method: "GET", path: "/boom", early: true, do: func(*request) error { panic("boom") }},
		{method: "GET", path: "/late", early: true, do: func(q *request) error {
			q.out = append(q.out[:0], strings.Repeat(" ", 1<<20)...)
			if err := q.send(200); err != nil {
				return err
			}
			panic("late")
		}},
		{method: "GET", path: "/v0/health", early: true, do: (*request).getHealth},
	})
	r := s.ask("GET", "/boom", "", nil)
	s.want(r, 500, "internal")
	if strings.Contains(r.body, "boom") {
		t.Errorf("the answer tells too much: %s", r.body)
	}
	res, err := http.Get("http://" + s.addr + "/late")
	if err == nil {
		defer res.Body.Close()
		_, err = io.Copy(io.Discard, res.Body)
	}
	if err == nil {
		t.Error("an answer that broke off looks whole")
	}
	s.want(s.ask("GET", "/v0/health", "", nil), 200, "")
	if s.running.Load() != 0 {
		t.Errorf("%d requests count as running", s.running.Load())
	}
}
