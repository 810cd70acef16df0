package server

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/stall"
)

// serveEngine starts a server on an engine of its own.
func serveEngine(t *testing.T, change func(*Config)) *testServer {
	t.Helper()
	s := serveTest(t, change)
	s.SetEngine(openEngine(t, engine.Options{Dir: s.dataDir + "/data", Limits: s.limits}))
	return s
}

// openEngine opens an engine for a test.
func openEngine(t *testing.T, opt engine.Options) *engine.Engine {
	t.Helper()
	e, err := engine.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// expect asks and compares status and, where they are given, members of the
// answer; their values are JSON text.
func (s *testServer) expect(status int, method, target, body string, members header) {
	s.t.Helper()
	r := s.ask(method, target, body, nil)
	if r.status != status {
		s.t.Errorf("%s %s %s: got %d, want %d: %s", method, target, body, r.status, status, r.body)
		return
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		s.t.Errorf("%s %s: %v in %s", method, target, err, r.body)
	}
	for name, want := range members {
		if string(got[name]) != want {
			s.t.Errorf("%s %s %s: %s is %s, want %s", method, target, body, name, got[name], want)
		}
	}
	var perf struct {
		Total *float64 `json:"server_total_ms"`
	}
	if status < 400 {
		if err := json.Unmarshal(got["performance"], &perf); err != nil || perf.Total == nil || *perf.Total < 0 {
			s.t.Errorf("%s %s: performance is %s", method, target, got["performance"])
		}
	}
}

func TestARecordGoesInAndComesOut(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", "", header{"topic": `"a"`, "created": "true"})
	s.expect(200, "PUT", "/v0/topics/a", "{}", header{"created": "false"})
	s.expect(200, "POST", "/v0/topics/a", `{"records":[{"data":{"n":1},"tag":"t","node":"n"},{"data":null}]}`,
		header{"first_seq": "1", "last_seq": "2", "seqs": "[1,2]", "count": "2", "created": "false", "deduped": "false"})
	s.expect(201, "POST", "/v0/topics/b?return_seqs=false", `{"records":[{"data":1}]}`, header{"created": "true", "seqs": ""})
	s.expect(200, "POST", "/v0/topics/a/diff", "", header{"next_from_seq": "2", "caught_up": "true", "tombstone": "null", "lag": "0"})
	r := s.ask("POST", "/v0/topics/a/diff", `{"limit":1,"include_tags":true}`, nil)
	if !strings.Contains(r.body, `"$node":"n"`) || !strings.Contains(r.body, `"$tag":"t"`) || !strings.Contains(r.body, `"data":{"n":1}`) {
		t.Errorf("the record came back as %s", r.body)
	}
	s.expect(200, "POST", "/v0/topics/a/delete", `{"match":"t"}`, header{"deleted": "1", "earliest_seq": "2", "count": "1"})
	s.expect(200, "GET", "/v0/topics/a", "", header{"head_seq": "2", "count": "1", "type": `"log"`})
	s.expect(404, "GET", "/v0/topics/c", "", nil)
	s.expect(404, "POST", "/v0/topics/c/diff", "", nil)
	s.expect(409, "DELETE", "/v0/topics/a?if_empty=true", "", nil)
	s.expect(400, "DELETE", "/v0/topics/a?if_empty=yes", "", nil)
	s.expect(200, "DELETE", "/v0/topics/a?if_empty=", "", header{"deleted": "true", "routers_removed": "[]"})
	s.expect(200, "DELETE", "/v0/topics/a", "", header{"deleted": "false"})
}

func TestAnIdempotencyKeyMayComeAsHeader(t *testing.T) {
	s := serveEngine(t, nil)
	write := func(body string, head header) string {
		r := s.ask("POST", "/v0/topics/a", body, head)
		if r.status >= 300 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		if strings.Contains(r.body, `"deduped":true`) {
			return "deduped"
		}
		return "stored"
	}
	plain, keyed := `{"records":[{"data":1}]}`, `{"records":[{"data":1}],"idempotency_key":"other"}`
	for i, c := range []struct {
		body string
		head header
		want string
	}{
		{plain, header{"Idempotency-Key": "k"}, "stored"},
		{plain, header{"Idempotency-Key": "k"}, "deduped"},
		{keyed, header{"Idempotency-Key": "k"}, "stored"},
		{keyed, nil, "deduped"},
		{plain, header{"Idempotency-Key": ""}, "stored"},
		{plain, header{"Idempotency-Key": ""}, "stored"},
	} {
		if got := write(c.body, c.head); got != c.want {
			t.Errorf("write %d: %s, want %s", i, got, c.want)
		}
	}
	s.want(s.ask("POST", "/v0/topics/a", plain, header{"Idempotency-Key": strings.Repeat("k", 257)}), 400, "invalid_request")
}

func TestJobsAreClaimedAndSettled(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue"}`, nil)
	s.expect(200, "POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2},{"data":3}]}`, nil)
	s.expect(200, "POST", "/v0/topics/q/claim", `{"node":"w","max":3}`, header{"count": "3", "ready": "0"})
	s.expect(200, "POST", "/v0/topics/q/extend", `{"node":"w","seqs":[1],"lease_ms":60000}`, header{"extended": "1", "skipped": "[]"})
	s.expect(200, "POST", "/v0/topics/q/nack", `{"node":"w","seqs":[2]}`, header{"nacked": "1", "ready": "1", "in_flight": "2"})
	s.expect(200, "POST", "/v0/topics/q/ack", `{"node":"w","seqs":[1,2]}`, header{"acked": "1", "skipped": "[2]"})
	s.expect(201, "PUT", "/v0/topics/log", "", nil)
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"none/claim", `{"node":""}`, 404}, {"log/claim", `{"node":""}`, 409}, {"q/claim", `{"node":""}`, 400},
		{"none/ack", `{"node":"","seqs":[]}`, 400}, {"none/ack", `{"node":"w","seqs":[]}`, 404}, {"log/nack", `{"node":"w","seqs":[]}`, 409},
	} {
		s.expect(c.status, "POST", "/v0/topics/"+c.path, c.body, nil)
	}
}

func TestTheListShowsWhatTheKeyMaySee(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,lim::b|c") })
	all, lim := header{"Authorization": "Bearer all"}, header{"Authorization": "Bearer lim"}
	for _, name := range []string{"a1", "b1", "b2", "c1"} {
		if r := s.ask("PUT", "/v0/topics/"+name, "", all); r.status != 201 {
			t.Fatal(r.body)
		}
	}
	var next string
	names := func(r *reply) string {
		var l struct {
			Topics []struct{ Topic string }
			Next   string `json:"next_cursor"`
		}
		if err := json.Unmarshal([]byte(r.body), &l); err != nil || r.status != 200 {
			t.Fatalf("%v: %d %s", err, r.status, r.body)
		}
		var out []string
		for _, e := range l.Topics {
			out = append(out, e.Topic)
		}
		next = l.Next
		return strings.Join(out, " ")
	}
	if got := names(s.ask("GET", "/v0/topics", "", all)); got != "a1 b1 b2 c1" {
		t.Errorf("everyone sees %s", got)
	}
	if got := names(s.ask("GET", "/v0/topics", "", lim)); got != "b1 b2 c1" {
		t.Errorf("a limited key sees %s", got)
	}
	if got := names(s.ask("GET", "/v0/topics?page_size=0&prefix=b", "", lim)); got != "b1" || next == "" {
		t.Errorf("the first page is %s, then %q", got, next)
	}
	if got := names(s.ask("GET", "/v0/topics?page_size=1&prefix=b&cursor="+next, "", lim)); got != "b2" || next != "" {
		t.Errorf("the second page is %s, then %q", got, next)
	}
	for _, bad := range []string{"page_size=x", "page_size=-1", "cursor=%21", "touch=maybe"} {
		s.want(s.ask("GET", "/v0/topics?"+bad, "", all), 400, "invalid_request")
	}
}

func TestAnInlineConfigNeedsTheRightToCreate(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,w:w,lim:w+a:in.") })
	key := func(k string) header { return header{"Authorization": "Bearer " + k} }
	const write = `{"records":[{"data":1}],"config":{"type":"queue","dead_letter":"out"}}`
	r := s.ask("POST", "/v0/topics/in.a", write, key("w"))
	s.want(r, 403, "forbidden")
	r = s.ask("POST", "/v0/topics/in.a", write, key("lim"))
	s.want(r, 403, "forbidden")
	if !strings.Contains(r.body, `"detail":{"topic":"out"}`) {
		t.Errorf("the refusal is %s", r.body)
	}
	r = s.ask("PUT", "/v0/topics/in.a", `{"dead_letter":"out"}`, key("lim"))
	s.want(r, 403, "forbidden")
	s.want(s.ask("POST", "/v0/topics/in.a", `{"records":[],"config":{}}`, key("w")), 403, "forbidden")
	s.want(s.ask("POST", "/v0/topics/in.a", write, key("all")), 201, "")
	s.want(s.ask("POST", "/v0/topics/in.a", write, key("w")), 200, "")
	s.want(s.ask("POST", "/v0/topics/in.a", write, key("lim")), 200, "")
	s.want(s.ask("POST", "/v0/topics/in.b", `{"records":[{"data":1}]}`, key("w")), 201, "")
}

func TestALongPollIsAnsweredByAWriteAndByTheStop(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", "", nil)
	poll := func() chan *reply {
		answer := make(chan *reply, 1)
		go func() { answer <- s.ask("POST", "/v0/topics/a/diff", `{"from_seq":0,"wait_ms":20000}`, nil) }()
		return answer
	}
	waiting := poll()
	await(t, "the poll to arrive", func() bool { return s.running.Load() == 1 })
	s.expect(200, "POST", "/v0/topics/a", `{"records":[{"data":"now"}]}`, nil)
	if r := <-waiting; r.status != 200 || !strings.Contains(r.body, `"data":"now"`) {
		t.Errorf("the poll got %d %s", r.status, r.body)
	}

	s.expect(200, "POST", "/v0/topics/a/delete", `{"before_seq":9}`, nil)
	waiting = make(chan *reply, 1)
	go func() { waiting <- s.ask("POST", "/v0/topics/a/diff", `{"from_seq":1,"wait_ms":20000}`, nil) }()
	await(t, "the poll to arrive", func() bool { return s.running.Load() == 1 })
	begin, stalled := time.Now(), stall.Watch()
	s.Stop()
	if took := time.Since(begin); took > 2*time.Second+stalled() {
		t.Errorf("the stop took %v", took)
	}
	if r := <-waiting; r.status != 200 || !strings.Contains(r.body, `"caught_up":true`) {
		t.Errorf("the poll got %d %s", r.status, r.body)
	}
}

func TestALongPollOutlivesTheReadTimeout(t *testing.T) {
	t.Parallel()
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", "", nil)
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan *reply, 1)
	const wait = `{"wait_ms":11500}`
	go func() { done <- s.askWith(h2, "POST", "/v0/topics/a/diff", wait, nil) }()
	for _, poll := range []func() *reply{
		func() *reply { return s.ask("POST", "/v0/topics/a/diff", wait, nil) },
		func() *reply { return <-done },
	} {
		begin := time.Now()
		if r := poll(); r.status != 200 {
			t.Errorf("%d after %v: %s", r.status, time.Since(begin), r.body)
		}
	}
}

func TestALongPollEndsWithItsClient(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/a", "", nil)
	const wait = `{"wait_ms":20000}`
	text := post("/v0/topics/a/diff", jsonType+"Connection: close\r\n"+sized(wait), wait)

	gone := s.dial()
	if _, err := io.WriteString(gone, text); err != nil {
		t.Fatal(err)
	}
	await(t, "the poll to arrive", func() bool { return s.running.Load() == 1 })
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, "the poll to end", func() bool { return s.running.Load() == 0 })

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
}

func TestABackupIsAWholeTar(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,lim:a:x,r:r") })
	s.want(s.ask("POST", "/admin/backup", "", header{"Authorization": "Bearer r"}), 403, "forbidden")
	s.want(s.ask("POST", "/admin/backup", "", header{"Authorization": "Bearer lim"}), 403, "forbidden")
	all := header{"Authorization": "Bearer all"}
	if r := s.ask("POST", "/v0/topics/a", `{"records":[{"data":"kept"}]}`, all); r.status != 201 {
		t.Fatal(r.body)
	}
	r := s.ask("POST", "/admin/backup", "", all)
	if r.status != 200 || r.header.Get("Content-Type") != "application/x-tar" {
		t.Fatalf("%d %v", r.status, r.header)
	}
	found := false
	for in := tar.NewReader(strings.NewReader(r.body)); ; {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found = found || h.Name == engine.ManifestName
	}
	if !found {
		t.Error("the tar has no manifest")
	}
}

func TestMetricsOfTopicsAndQueues(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue","durability":"fsync"}`, nil)
	s.expect(200, "POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2}]}`, nil)
	s.expect(200, "POST", "/v0/topics/q/claim", `{"node":"w"}`, nil)
	s.expect(201, "POST", "/v0/topics/l", `{"records":[{"data":123}]}`, nil)
	text := s.ask("GET", "/v0/metrics", "", nil).body
	for _, line := range []string{
		"weir_ready 1", "weir_topics 2", "weir_records_live 3", "weir_bytes_live 5", "weir_queue_topics 1", "weir_queue_leases_in_flight 1",
		`weir_topics_by_class{class="disk"} 1`, `weir_topics_by_class{class="fsync"} 1`,
		`weir_topic_head_seq{topic="q"} 2`, `weir_topic_earliest_seq{topic="l"} 1`, `weir_topic_records_live{topic="q"} 2`,
		`weir_topic_bytes_live{topic="l"} 3`, `weir_topic_queue_ready{topic="q"} 1`, `weir_topic_queue_in_flight{topic="q"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
	if strings.Contains(text, `weir_topic_queue_ready{topic="l"}`) {
		t.Error("a log has queue metrics")
	}
	r := s.ask("GET", "/v0/ready", "", nil)
	if r.status != 200 || r.body != `{"status":"ready","wal_replay_complete":true,"topics":2}` {
		t.Errorf("ready is %d %s", r.status, r.body)
	}
}

func TestStopWaitsForARunningRequest(t *testing.T) {
	s := serveEngine(t, nil)
	entered, leave := make(chan struct{}), make(chan struct{})
	s.table = newTable([]route{{method: "GET", path: "/slow", do: func(q *request) error {
		close(entered)
		<-leave
		q.out = append(q.out[:0], "{}"...)
		return q.send(200)
	}}})
	answer := make(chan *reply, 1)
	go func() { answer <- s.ask("GET", "/slow", "", nil) }()
	<-entered
	stopped := make(chan struct{})
	go func() { s.Stop(); close(stopped) }()
	await(t, "the stop to begin", s.draining.Load)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	select {
	case <-stopped:
		t.Error("the stop did not wait")
	case <-ctx.Done():
	}
	close(leave)
	if r := <-answer; r.status != 200 {
		t.Errorf("the request got %d", r.status)
	}
	<-stopped
}
