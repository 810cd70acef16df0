package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/stall"
)

// workClient is an open work stream as its client sees it.
type workClient struct {
	t     *testing.T
	lines *bufio.Scanner
	leave context.CancelFunc
	head  http.Header
}

func (s *testServer) work(query string) *workClient {
	s.t.Helper()
	ctx, leave := context.WithTimeout(s.t.Context(), time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+"/v0/topics/"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { leave(); res.Body.Close() })
	if res.StatusCode != 200 {
		s.t.Fatalf("GET %s: %d", query, res.StatusCode)
	}
	c := &workClient{t: s.t, lines: bufio.NewScanner(res.Body), leave: leave, head: res.Header}
	if got := c.frame(); got != "retry: 2000" {
		s.t.Fatalf("the stream opens with %q", got)
	}
	return c
}

// frame returns the next block of lines; empty is the end of the stream.
func (c *workClient) frame() string {
	c.t.Helper()
	var lines []string
	for c.lines.Scan() {
		if c.lines.Text() == "" {
			return strings.Join(lines, "\n")
		}
		lines = append(lines, c.lines.Text())
	}
	if err := c.lines.Err(); err != nil {
		c.t.Fatalf("after %q: %v", lines, err)
	}
	return ""
}

type workEvent struct {
	Topic      string
	Seq        uint64 `json:"$seq"`
	LeaseID    string `json:"lease_id"`
	Deliveries int
	Data       json.RawMessage
	Code       any
	Error      string
}

// event returns the data of the next frame, which is of that type.
func (c *workClient) event(name string) (e workEvent) {
	c.t.Helper()
	frame := c.frame()
	_, data, ok := strings.Cut(frame, "event: "+name+"\ndata: ")
	if !ok {
		c.t.Fatalf("got %q, want an event %s", frame, name)
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		c.t.Fatalf("%v in %q", err, data)
	}
	return e
}

func (c *workClient) job(seq uint64, deliveries int) workEvent {
	c.t.Helper()
	e := c.event("job")
	if e.Seq != seq || e.Deliveries != deliveries {
		c.t.Fatalf("got job %d in delivery %d, want %d in %d", e.Seq, e.Deliveries, seq, deliveries)
	}
	return e
}

func serveQueue(t *testing.T) *testServer {
	t.Helper()
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue"}`, nil)
	return s
}

func TestJobsArePushedAndSettled(t *testing.T) {
	s := serveQueue(t)
	c := s.work("q/work?node=w&max=2")
	if c.head.Get("Content-Type") != "text/event-stream" || c.head.Get("Cache-Control") != "no-store" || c.head.Get("X-Accel-Buffering") != "no" {
		t.Errorf("headers %v", c.head)
	}
	s.expect(200, "POST", "/v0/topics/q", `{"records":[{"data":{"n":1}},{"data":2},{"data":3}]}`, nil)
	first := c.job(1, 1)
	if first.Topic != "q" || string(first.Data) != `{"n":1}` || !strings.HasPrefix(first.LeaseID, "lease_") {
		t.Errorf("%+v", first)
	}
	c.job(2, 1)
	s.expect(200, "GET", "/v0/topics/q", "", header{"queue": `{"ready":1,"in_flight":2,"delayed":0,"scheduled":0,"dead_lettered":0}`})
	s.expect(200, "POST", "/v0/topics/q/ack", `{"node":"w","seqs":[1],"lease_ids":["`+first.LeaseID+`"]}`, header{"acked": "1"})
	c.job(3, 1)
	s.expect(200, "POST", "/v0/topics/q/nack", `{"node":"w","seqs":[2]}`, header{"nacked": "1"})
	c.job(2, 2)
}

func TestTheJobsOfAClientThatLeavesGoToTheNext(t *testing.T) {
	s := serveQueue(t)
	s.expect(200, "POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2}]}`, nil)
	s.expect(200, "POST", "/v0/topics/q/claim", `{"node":"w"}`, header{"count": "1"})
	first := s.work("q/work?node=w")
	first.job(2, 1)
	second := s.work("q/work?node=v&max=9")
	first.leave()
	second.job(2, 2)
	s.expect(200, "POST", "/v0/topics/q/ack", `{"node":"w","seqs":[1,2]}`, header{"acked": "1", "skipped": "[2]"})
}

func TestAWorkStreamSaysWhyItEnds(t *testing.T) {
	s := serveQueue(t)
	s.expect(201, "PUT", "/v0/topics/p", `{"type":"queue"}`, nil)
	gone, stopped := s.work("q/work?node=w"), s.work("p/work?node=w")
	s.expect(200, "DELETE", "/v0/topics/q", "", nil)
	if e := gone.event("error"); e.Code != 409.0 || e.Error == "" || e.Topic != "q" {
		t.Errorf("the end of the queue: %+v", e)
	}
	s.Drain()
	if e := stopped.event("error"); e.Code != "server_shutting_down" || e.Error == "" || e.Topic != "p" {
		t.Errorf("the end of the server: %+v", e)
	}
	for _, c := range []*workClient{gone, stopped} {
		if f := c.frame(); f != "" {
			t.Errorf("after the last event came %q", f)
		}
	}
}

// A claim that waits counts among the running requests of its key, and ends with its
// client and with the server.
func TestAClaimThatWaitsCountsAndEndsWithItsClientAndWithTheStop(t *testing.T) {
	keys := parseKeys(t, "worker:rw,boss:rw+admin")
	s := serveEngine(t, func(c *Config) { c.Keys, c.Limits.MaxInflightPerKey = keys, 1 })
	running := func(n int64) {
		t.Helper()
		await(t, "a claim to come or go", func() bool { return keys.list[0].inflight.n.Load() == n })
	}
	s.want(s.ask("PUT", "/v0/topics/q", `{"type":"queue"}`, header{"Authorization": "Bearer boss"}), 201, "")
	const wait = `{"node":"w","wait_ms":20000}`
	text := post("/v0/topics/q/claim", jsonType+"Authorization: Bearer worker\r\nConnection: close\r\n"+sized(wait), wait)

	gone := s.dial()
	if _, err := io.WriteString(gone, text); err != nil {
		t.Fatal(err)
	}
	running(1)
	s.want(s.ask("POST", "/v0/topics/q/claim", `{"node":"x"}`, header{"Authorization": "Bearer worker"}), 429, api.CodeThrottled)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	running(0)

	half := s.dial()
	if _, err := io.WriteString(half, text); err != nil {
		t.Fatal(err)
	}
	if err := half.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	back, err := io.ReadAll(half)
	if err != nil {
		t.Fatal(err)
	}
	s.want(replies(t, string(back))[0], 200, "")

	running(0)
	waiting := make(chan *reply, 1)
	go func() { waiting <- s.ask("POST", "/v0/topics/q/claim", wait, header{"Authorization": "Bearer worker"}) }()
	running(1)
	begin, stalled := time.Now(), stall.Watch()
	s.Stop()
	if took := time.Since(begin); took > 2*time.Second+stalled() {
		t.Errorf("the stop took %v", took)
	}
	if r := <-waiting; r.status != 200 || !strings.Contains(r.body, `"claimed":[]`) {
		t.Errorf("the claim got %d %s", r.status, r.body)
	}
}

func TestAWorkStreamIsRefusedInTheOrderOfTheChecks(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxSSEConnections = 1 })
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue"}`, nil)
	s.expect(201, "PUT", "/v0/topics/log", "", nil)
	s.expect(200, "POST", "/v0/topics/q", `{"records":[{"data":1}]}`, nil)
	s.want(s.ask("GET", "/v0/topics/none/work", "", header{"Accept": "text/*"}), 406, "not_acceptable")
	s.want(s.ask("GET", "/v0/topics/none/work", "", nil), 400, "invalid_request")
	s.want(s.ask("GET", "/v0/topics/none/work?node=w&max=x", "", nil), 400, "invalid_request")
	s.want(s.ask("GET", "/v0/topics/none/work?node=w", "", nil), 404, "topic_not_found")
	s.want(s.ask("GET", "/v0/topics/log/work?node=w", "", nil), 409, "not_a_queue")
	if r := s.ask("HEAD", "/v0/topics/q/work?node=w", "", nil); r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", r.status, r.header)
	}
	s.expect(200, "GET", "/v0/topics/q", "", header{"queue": `{"ready":1,"in_flight":0,"delayed":0,"scheduled":0,"dead_lettered":0}`})
	s.work("q/work?node=w").job(1, 1)
	s.want(s.ask("GET", "/v0/topics/log/work?node=w", "", nil), 409, "not_a_queue")
	s.want(s.ask("GET", "/v0/topics/q/work?node=w", "", nil), 429, "throttled")
}

func TestAWorkStreamTakesItsKeyFromTheQuery(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,reader:r,other:rw:x") })
	key := header{"Authorization": "Bearer all"}
	if r := s.ask("PUT", "/v0/topics/q", `{"type":"queue"}`, key); r.status != 201 {
		t.Fatal(r.status)
	}
	s.want(s.ask("GET", "/v0/topics/q/work?node=w", "", nil), 401, "unauthorized")
	s.want(s.ask("GET", "/v0/topics/q/work?node=w&token=none", "", nil), 401, "unauthorized")
	s.want(s.ask("GET", "/v0/topics/q/work?node=w&token=reader", "", nil), 403, "forbidden")
	s.want(s.ask("GET", "/v0/topics/q/work?node=w&token=other", "", nil), 403, "forbidden")
	if r := s.ask("POST", "/v0/topics/q", `{"records":[{"data":1}]}`, key); r.status != 200 {
		t.Fatal(r.status)
	}
	s.work("q/work?node=w&token=all").job(1, 1)
}
