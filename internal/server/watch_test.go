package server

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/stall"
)

// streamReader reads an event stream block by block.
type streamReader struct {
	t   *testing.T
	res *http.Response
	in  *bufio.Reader
}

// stream opens an event stream that the test's end closes.
func (s *testServer) stream(tr *http.Transport, target string, head header) *streamReader {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.addr+target, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range head {
		req.Header.Set(k, v)
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %d", target, res.StatusCode)
	}
	return &streamReader{t: s.t, res: res, in: bufio.NewReader(res.Body)}
}

// block returns the next block without its blank line, empty at the end.
func (r *streamReader) block() string {
	var b strings.Builder
	for {
		line, err := r.in.ReadString('\n')
		if err != nil || line == "\n" {
			return strings.TrimSuffix(b.String(), "\n")
		}
		b.WriteString(line)
	}
}

// event returns the next event and its id, passing over heartbeats.
func (r *streamReader) event() (name, data, id string) {
	r.t.Helper()
	for {
		block := r.block()
		if strings.HasPrefix(block, ": hb ") {
			continue
		}
		for line := range strings.SplitSeq(block, "\n") {
			field, value, _ := strings.Cut(line, ": ")
			switch field {
			case "event":
				name = value
			case "data":
				data = value
			case "id":
				id = value
			}
		}
		return name, data, id
	}
}

func (r *streamReader) want(name string, parts ...string) (id string) {
	r.t.Helper()
	got, data, id := r.event()
	if got != name {
		r.t.Fatalf("got event %q with %s, want %q", got, data, name)
	}
	for _, part := range parts {
		if !strings.Contains(data, part) {
			r.t.Errorf("event %s: %s lacks %s", name, data, part)
		}
	}
	return id
}

// watch makes a lenient session and returns the path of its stream.
func (s *testServer) watch(body string, head header) string {
	s.t.Helper()
	r := s.ask("POST", "/v0/watch?lenient=true", body, head)
	var got struct {
		URL string `json:"stream_url"`
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || r.status != 200 || got.URL == "" {
		s.t.Fatalf("watch %s: %d %s", body, r.status, r.body)
	}
	return got.URL
}

func plainHTTP2() *http.Transport {
	tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return tr
}

func TestAStreamSendsWhatIsThereAndThenWhatComes(t *testing.T) {
	for name, tr := range map[string]*http.Transport{"http1": {DisableCompression: true}, "http2": plainHTTP2()} {
		t.Run(name, func(t *testing.T) {
			s := serveEngine(t, nil)
			defer tr.CloseIdleConnections()
			s.expect(201, "POST", "/v0/topics/a", `{"records":[{"data":1},{"data":2}]}`, nil)
			r := s.stream(tr, s.watch(`{"topics":{"a":{}}}`, nil), header{"Accept": "text/event-stream"})
			for name, want := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
				if got := r.res.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			if got := r.block(); got != "retry: 2000" {
				t.Errorf("the stream begins with %q", got)
			}
			r.want("record", `"from_seq":0`, `"data":1`, `"data":2`, `"to_seq":2`)
			r.want("caught-up", `"head_seq":2`)
			s.expect(200, "POST", "/v0/topics/a", `{"records":[{"data":3}]}`, nil)
			r.want("record", `"from_seq":2`, `"data":3`)
			r.want("caught-up", `"head_seq":3`)
			s.expect(200, "DELETE", "/v0/topics/a", "", nil)
			r.want("topic-deleted", `"reason":"deleted"`)
			if end := r.block(); end != "" {
				t.Errorf("after its last topic the stream goes on with %q", end)
			}
		})
	}
}

func TestAStreamGoesOnBehindTheIDItIsGiven(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "POST", "/v0/topics/a", `{"records":[{"data":1},{"data":2},{"data":3}]}`, nil)
	url := s.watch(`{"topics":{"a":{}},"limit":1}`, nil)
	r := s.stream(&http.Transport{}, url, nil)
	r.block()
	id := r.want("record", `"to_seq":1`)
	r.want("record", `"to_seq":2`)
	r.want("record", `"to_seq":3`)
	r.want("caught-up")
	again := s.stream(&http.Transport{}, url, header{"Last-Event-ID": id})
	again.block()
	again.want("record", `"from_seq":1`, `"data":2`)
}

func TestAnIdleStreamBeats(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.MinHeartbeatMS = 20 })
	s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
	r := s.stream(&http.Transport{}, s.watch(`{"topics":{"a":{}},"heartbeat_ms":20}`, nil), nil)
	r.block()
	r.want("caught-up")
	for range 3 {
		if b := r.block(); !strings.HasPrefix(b, ": hb 1") {
			t.Fatalf("got %q instead of a heartbeat", b)
		}
	}
}

func TestOnlyTheKeyOfASessionOpensIt(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "one:rw+a:a,two,three:w") })
	one, two := header{"Authorization": "Bearer one"}, header{"Authorization": "Bearer two"}
	s.want(s.ask("PUT", "/v0/topics/a", `{}`, two), 201, "")
	s.want(s.ask("PUT", "/v0/topics/b", `{}`, two), 201, "")
	s.want(s.ask("POST", "/v0/watch", `{"topics":{"a":{}}}`, nil), 401, "unauthorized")
	s.want(s.ask("POST", "/v0/watch", `{"topics":{"a":{}}}`, header{"Authorization": "Bearer three"}), 403, "forbidden")
	s.want(s.ask("POST", "/v0/watch", `{"topics":{"a":{},"b":{}}}`, one), 403, "forbidden")
	url := s.watch(`{"topics":{"a":{}}}`, one)
	s.want(s.ask("GET", url, "", header{"Accept": "text/*", "Authorization": "Bearer two"}), 406, "not_acceptable")
	s.want(s.ask("GET", "/v0/watch/wid_none", "", nil), 404, "not_found")
	s.want(s.ask("GET", url, "", nil), 401, "unauthorized")
	s.want(s.ask("GET", url, "", two), 401, "unauthorized")
	s.want(s.ask("GET", url+"?token=one", "", two), 401, "unauthorized")
	s.want(s.ask("POST", url, `{}`, nil), 401, "unauthorized")
	for _, r := range []*streamReader{s.stream(&http.Transport{}, url, one), s.stream(&http.Transport{}, url+"?token=on%65&token=x", nil)} {
		r.block()
		r.want("caught-up")
	}
}

func TestStreamsAreCountedExactlyAndHoldNoRequestSlot(t *testing.T) {
	s := serveEngine(t, func(c *Config) {
		c.Keys = parseKeys(t, "one,two,three")
		c.Limits.MaxSSEConnections, c.Limits.MaxSSEConnectionsPerKey, c.Limits.MaxInflightPerKey = 3, 2, 1
	})
	head := func(key string) header { return header{"Authorization": "Bearer " + key} }
	s.want(s.ask("PUT", "/v0/topics/a", `{}`, head("one")), 201, "")
	one, two := s.watch(`{"topics":{"a":{}}}`, head("one")), s.watch(`{"topics":{"a":{}}}`, head("two"))
	open := func(url, key string) *streamReader {
		r := s.stream(&http.Transport{}, url, head(key))
		r.block()
		return r
	}
	first := open(one, "one")
	open(one, "one")
	full := s.ask("GET", one, "", head("one"))
	s.want(full, 429, "throttled")
	if !strings.Contains(full.body, `"limit":"max_sse_connections_per_key","max":2`) || full.header.Get("Retry-After") != "1" {
		t.Errorf("got %v %s", full.header, full.body)
	}
	if r := s.ask("HEAD", two, "", head("two")); r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" || r.body != "" {
		t.Errorf("HEAD: %+v", r)
	}
	open(two, "two")
	full = s.ask("GET", two, "", head("two"))
	s.want(full, 429, "throttled")
	if !strings.Contains(full.body, `"limit":"max_sse_connections","max":3`) {
		t.Errorf("got %s", full.body)
	}
	s.want(s.ask("GET", "/v0/ws", "", head("three")), 400, "invalid_request")
	text := s.ask("GET", "/v0/metrics", "", head("three")).body
	for _, line := range []string{"weir_sse_connections 3", "weir_watch_sessions 2", `weir_throttled_total{reason="max_sse_connections"} 1`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	first.res.Body.Close()
	for deadline := time.Now().Add(30 * time.Second); s.streams.count() != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the place of a client that left stays taken")
		}
	}
	open(two, "two")
}

func TestStoppingTellsEveryStreamAndWaitsForThem(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", `{}`, nil)
	url := s.watch(`{"topics":{"a":{}}}`, nil)
	var all []*streamReader
	for _, tr := range []*http.Transport{{}, plainHTTP2()} {
		r := s.stream(tr, url, nil)
		r.block()
		r.want("caught-up")
		all = append(all, r)
	}
	stopped := make(chan struct{})
	begin, stalled := time.Now(), stall.Watch()
	go func() { s.Stop(); close(stopped) }()
	for _, r := range all {
		r.want("error", `"code":"server_shutting_down"`, `"message":"`)
		if end := r.block(); end != "" {
			t.Errorf("the stream goes on with %q", end)
		}
	}
	<-stopped
	if took := time.Since(begin); took > 9*time.Second+stalled() {
		t.Error("stopping takes as long as if the streams had not ended")
	}
	if n := s.streams.count(); n != 0 {
		t.Errorf("%d streams are still open", n)
	}
}

func TestAWatchOfWhatIsNotThereIsRefusedUnlessItIsLenient(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxWatchSessions = 1 })
	s.want(s.ask("POST", "/v0/watch", `{"topics":{"no":{}}}`, nil), 404, api.CodeTopicNotFound)
	s.want(s.ask("POST", "/v0/watch?lenient=maybe", `{"topics":{"no":{}}}`, nil), 400, api.CodeInvalidRequest)
	r := s.stream(&http.Transport{}, s.watch(`{"topics":{"no":{}}}`, nil), nil)
	if got := r.block(); got != "retry: 2000" {
		t.Errorf("got %q", got)
	}
	if end := r.block(); end != "" {
		t.Errorf("a stream of no topics goes on with %q", end)
	}
	full := s.ask("POST", "/v0/watch?lenient=1", `{"topics":{"no":{}}}`, nil)
	if s.want(full, 429, api.CodeThrottled); !strings.Contains(full.body, `"limit":"max_watch_sessions","max":1`) {
		t.Errorf("got %s", full.body)
	}
}
