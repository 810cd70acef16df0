package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/internal/replica/replicatest"
)

// scraped returns the page /metrics.
func (s *testServer) scraped() string {
	s.t.Helper()
	return s.ask("GET", "/metrics", "", nil).body
}

// shows fails the test if the page lacks a row; a row that ends with a blank may have any
// value.
func shows(t *testing.T, page string, rows ...string) {
	t.Helper()
	for _, row := range rows {
		if !strings.HasSuffix(row, " ") {
			row += "\n"
		}
		if !strings.Contains(page, "\n"+row) {
			t.Errorf("%q is missing; there is\n%s", row, linesWith(page, regexp.MustCompile(`^\w+`).FindString(row)))
		}
	}
}

func TestPromtoolHasNothingToSayAboutThePage(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue","wait_slo_ms":1000}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs", `{"records":[{"data":1}]}`, nil)
	s.eventually(func() bool { return strings.Contains(s.scraped(), "\nweir_pressure ") })
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(s.scraped())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// The page has every number of the contract, in base units, and the same value.
func TestThePageHasTheContractsMetricsInBaseUnits(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue","wait_slo_ms":1000}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs", `{"records":[{"data":1},{"data":2}]}`, nil)
	s.eventually(func() bool { return strings.Contains(s.scraped(), "\nweir_pressure ") })
	names := func(page string) map[string]bool {
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(page, -1) {
			all[m[1]] = true
		}
		return all
	}
	old, now := names(s.ask("GET", "/v0/metrics", "", nil).body), names(s.scraped())
	for name := range old {
		if unit, ok := inBaseUnits[name]; ok {
			name = unit.name
		}
		if !now[name] {
			t.Errorf("/metrics lacks %s", name)
		}
	}
	for name := range inBaseUnits {
		if now[name] {
			t.Errorf("/metrics has %s", name)
		}
	}
	shows(t, s.scraped(), `weir_topic_queue_wait_objective_seconds{topic="jobs"} 1`, `weir_wal_fsync_duration_seconds_bucket{le="5e-05"} `,
		`weir_build_info{version="test"} 1`, "go_goroutines ", "process_start_time_seconds ", "# TYPE go_build_info gauge", "weir_disk_used_bytes ")
}

func TestJobsAreCountedOnThePage(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue","dead_letter":"dead","max_deliveries":1}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs", `{"records":[{"data":1},{"data":2},{"data":3}]}`, nil)
	shows(t, s.scraped(), `weir_topic_queue_attended{topic="jobs"} 0`)
	s.expect(200, "POST", "/v0/topics/jobs/claim", `{"node":"n","max":2}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs/ack", `{"node":"n","seqs":[1]}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs/nack", `{"node":"n","seqs":[2]}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs/claim", `{"node":"n","max":1}`, nil)
	shows(t, s.scraped(),
		"weir_records_appended_total 4", "weir_jobs_claimed_total 3", "weir_jobs_acked_total 1", "weir_jobs_nacked_total 1", "weir_jobs_dead_total 1",
		`weir_topic_queue_claimed_total{topic="jobs"} 3`, `weir_topic_queue_acked_total{topic="jobs"} 1`,
		`weir_topic_queue_nacked_total{topic="jobs"} 1`, `weir_topic_queue_dead_total{topic="jobs"} 1`,
		`weir_topic_queue_dead_letters{topic="jobs"} 1`, `weir_topic_queue_attended{topic="jobs"} 1`)
	if page := s.scraped(); strings.Contains(page, "weir_topic_queue_oldest_ready_seconds{") {
		t.Error("there is an oldest ready job while all are with a worker")
	}
	s.expect(200, "POST", "/v0/topics/jobs", `{"records":[{"data":4}]}`, nil)
	shows(t, s.scraped(), `weir_topic_queue_oldest_ready_seconds{topic="jobs"} `)
}

// What is not known has no sample: a zero would look like all is well.
func TestThePageOfAServerWithoutAnEngineClaimsNothing(t *testing.T) {
	s := serveTest(t, nil)
	s.SetProgress(0.5)
	page := s.scraped()
	shows(t, page, "weir_ready 0", "weir_recovery_progress 0.5", `weir_throttled_total{reason="pressure"} 0`)
	for line := range strings.Lines(page) {
		for _, unknown := range []string{"weir_pressure", "weir_governor_rung", "weir_topics", "weir_wal_", "weir_disk_", "weir_records", "weir_jobs", "weir_last_backup"} {
			if strings.HasPrefix(line, unknown) {
				t.Errorf("before the engine is there: %s", line)
			}
		}
	}
}

func TestRequestsAreCountedByRouteAndCode(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "k") })
	k := header{"Authorization": "Bearer k"}
	traced := header{"Authorization": "Bearer k", "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	for _, name := range []string{"one", "two"} {
		s.want(s.ask("PUT", "/v0/topics/"+name, `{}`, k), 201, "")
	}
	s.want(s.ask("POST", "/v0/topics/one", `{"records":[{"data":1}]}`, traced), 200, "")
	s.ask("GET", "/v0/topics/three", "", k)
	s.ask("GET", "/v0/topics/one", "", nil)
	s.ask("BREW", "/coffee/1234", "", k)
	s.ask("HEAD", "/v0/topics/one", "", k)
	page := s.ask("GET", "/metrics", "", k).body
	shows(t, page,
		`weir_http_requests_total{code="201",method="PUT",route="/v0/topics/:topic"} 2`,
		`weir_http_requests_total{code="200",method="POST",route="/v0/topics/:topic"} 1`,
		`weir_http_requests_total{code="404",method="GET",route="/v0/topics/:topic"} 1`,
		`weir_http_requests_total{code="401",method="GET",route="/v0/topics/:topic"} 1`,
		`weir_http_requests_total{code="404",method="other",route="other"} 1`,
		`weir_http_request_duration_seconds_count{method="GET",route="/v0/topics/:topic"} 3`,
		"weir_logins_refused_total 1")
	if strings.Contains(page, "coffee") || strings.Contains(page, "BREW") {
		t.Error("what a client sends is in a label")
	}
	page = s.ask("GET", "/metrics", "", header{"Authorization": "Bearer k", "Accept": "application/openmetrics-text; version=1.0.0"}).body
	if !regexp.MustCompile(`weir_http_request_duration_seconds_bucket\{method="POST",route="/v0/topics/:topic",le="\S+"\} 1 # \{trace_id="4bf92f3577b34da6a3ce929d0e0e4736"\} `).MatchString(page) {
		t.Errorf("no exemplar:\n%s", linesWith(page, "duration_seconds_bucket{method=\"POST\""))
	}
}

func TestATraceIsReadFromTheW3CHeaderOnly(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for value, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01": id,
		"":                                  "",
		"00-" + strings.ToUpper(id) + "-00f067aa0ba902b7-01":     "",
		"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01": "",
		"00-" + strings.Repeat("\"", 32) + "-00f067aa0ba902b7-1": "",
		"00-" + id: "",
	} {
		r := request{r: newGet(t)}
		r.r.Header.Set("Traceparent", value)
		if got := traceOf(r.r); got != want {
			t.Errorf("%q: %q", value, got)
		}
	}
}

func TestABackupLeavesItsTime(t *testing.T) {
	s := serveEngine(t, nil)
	if strings.Contains(s.scraped(), "weir_last_backup") {
		t.Error("there was no backup yet")
	}
	if r := s.ask("POST", "/admin/backup", "", nil); r.status != 200 {
		t.Fatal(r.status)
	}
	s.eventually(func() bool { return strings.Contains(s.scraped(), "\nweir_last_backup_timestamp_seconds ") })
}

// A key sees the rows of its own topics, and nothing of the others' names.
func TestThePageShowsAKeyItsTopicsOnly(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,some:read:mine") })
	for _, name := range []string{"mine-1", "other-1"} {
		s.want(s.ask("PUT", "/v0/topics/"+name, `{"type":"queue"}`, header{"Authorization": "Bearer all"}), 201, "")
	}
	page := s.ask("GET", "/metrics", "", header{"Authorization": "Bearer some"}).body
	shows(t, page, `weir_topic_queue_ready{topic="mine-1"} 0`, "go_goroutines ")
	if strings.Contains(page, "other-1") {
		t.Error(linesWith(page, "other-1"))
	}
}

// A queue is attended by who streams its jobs, holds some or has asked for some lately.
func TestAQueueIsAttendedForAWhileAfterAClaim(t *testing.T) {
	for _, c := range []struct {
		row  engine.TopicRow
		want bool
	}{
		{engine.TopicRow{Asked: -1}, false},
		{engine.TopicRow{Asked: 0}, true},
		{engine.TopicRow{Asked: attendedFor - 1}, true},
		{engine.TopicRow{Asked: attendedFor}, false},
		{engine.TopicRow{Asked: attendedFor, Streams: 1}, true},
		{engine.TopicRow{Asked: attendedFor, Jobs: api.QueueCounters{InFlight: 1}}, true},
	} {
		if got := isAttended(&c.row); got != c.want {
			t.Errorf("asked %v ago, %d streams, %d in flight: %v", c.row.Asked, c.row.Streams, c.row.Jobs.InFlight, got)
		}
	}
}

// manyTopics returns a server with n queues, each with a wait_slo_ms and a job.
func manyTopics(t testing.TB, s *Server, n int) {
	t.Helper()
	e, err := engine.Open(t.Context(), engine.Options{Dir: "/data", FS: vfs.NewMem(), DiskFlush: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	cfg := api.DefaultConfig()
	cfg.Type, cfg.Durability, cfg.WaitSLOMS = api.TypeQueue, api.Memory, 1000
	for i := range n {
		name := fmt.Sprintf("tenant-%05d.orders.created", i)
		if _, err := e.PutTopic(t.Context(), name, cfg); err != nil {
			t.Fatal(err)
		}
	}
	s.SetEngine(e)
}

// A page has the rows of at most 1,000 topics, the busiest ones, so ten thousand cost no
// more than those.
func TestThePageOfTenThousandTopicsIsBounded(t *testing.T) {
	s := serveTest(t, nil)
	manyTopics(t, s.Server, 10_000)
	s.expect(200, "POST", "/v0/topics/tenant-09999.orders.created", `{"records":[{"data":1}]}`, nil)
	page := s.scraped()
	t.Logf("%d bytes, %d lines", len(page), strings.Count(page, "\n"))
	if len(page) > 5_000_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if n := strings.Count(page, "\nweir_topic_queue_ready{"); n != maxTopicRows {
		t.Errorf("%d topics have rows", n)
	}
	shows(t, page, "weir_topic_metrics_truncated 1", "weir_topics 10000", `weir_topic_queue_ready{topic="tenant-09999.orders.created"} 1`)
}

func BenchmarkScrapeOfTenThousandTopics(b *testing.B) {
	s := New(Config{Limits: api.DefaultLimits()}, Options{Version: "test"})
	manyTopics(b, s, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		page := &pageBuffer{head: map[string][]string{}}
		s.scrapes.ServeHTTP(page, newGet(b))
		b.ReportMetric(float64(page.Len()), "B/page")
	}
}

func newGet(t testing.TB) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCountingARequestAllocatesNothing(t *testing.T) {
	c := newCalls(routes)
	q := &request{r: newGet(t), route: &routes[0], status: 200, start: time.Now()}
	c.count(q)
	if n := testing.AllocsPerRun(100, func() { c.count(q) }); n != 0 {
		t.Errorf("%v allocations for each request", n)
	}
}

func BenchmarkCountingARequest(b *testing.B) {
	c := newCalls(routes)
	b.RunParallel(func(pb *testing.PB) {
		q := &request{r: newGet(b), route: &routes[0], status: 200, start: time.Now()}
		for pb.Next() {
			c.count(q)
		}
	})
}

// relayNames are the metrics of a relay.
func relayNames(t *testing.T) (names []string) {
	r, err := relay.New(relay.Options{Upstream: "http://127.0.0.1:1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(r)
	all, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		names = append(names, m.GetName())
	}
	return names
}

// The page about what to watch names every number of the page, and no other.
func TestEveryNumberOfThePageIsDescribed(t *testing.T) {
	s, store := serveTest(t, func(c *Config) { c.Webhooks.On = true }), replicatest.NewMemory().Open()
	lead, err := store.Lead(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	s.SetEngine(openEngine(t, engine.Options{Dir: s.dataDir + "/data", Limits: s.limits,
		Replica: &engine.Replica{Log: store, Files: store.Files(), Term: lead.Term, End: lead.End}}))
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue","wait_slo_ms":1000}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs", `{"records":[{"data":1}]}`, nil)
	s.expect(201, "PUT", "/v0/topics/pushed", `{"type":"queue"}`, nil)
	if r := s.ask("PUT", "/v0/webhooks/hook", `{"topic":"pushed","url":"https://example.com/"}`, nil); r.status != 201 {
		t.Fatal(r.status, r.body)
	}
	defer s.hooks.Stop(0)
	if r := s.ask("POST", "/admin/backup", "", nil); r.status != 200 {
		t.Fatal(r.status)
	}
	s.eventually(func() bool { return strings.Contains(s.scraped(), "\nweir_last_backup_timestamp_seconds ") })
	s.eventually(func() bool { return strings.Contains(s.scraped(), "\nweir_pressure ") })
	s.eventually(func() bool { return strings.Contains(s.scraped(), "\nweir_replica_base_age_seconds ") })
	have := map[string]bool{"weir_topic_queue_wait_seconds": true, "weir_topic_queue_drain_per_second": true, // known under load only
		"weir_tls_certificate_end_timestamp_seconds": true, // with TLS only
		"weir_backup_failures_total":                 true} // of weir backup --every
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+) `).FindAllStringSubmatch(s.scraped(), -1) {
		have[m[1]] = true
	}
	for name := range inBaseUnits {
		have[name] = true
	}
	for _, name := range relayNames(t) {
		have[name] = true
	}
	text, err := os.ReadFile("../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range have {
		ours := strings.HasPrefix(name, "weir_") || strings.HasPrefix(name, "sse_")
		if ours && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/OPERATIONS.md does not say when to look at %s", name)
		}
	}
	for _, m := range regexp.MustCompile("`((?:weir|sse|go|process)_[a-z0-9_]*[a-z0-9])`").FindAllStringSubmatch(string(text), -1) {
		stream := strings.HasPrefix(m[1], "weir_stream_") || m[1] == "sse_queue_backpressure_retries_total" // see package telemetry
		if !stream && !have[m[1]] {
			t.Errorf("docs/OPERATIONS.md names %s, which is not on the page", m[1])
		}
	}
}

// A standby is not ready for as long as another leads, and says why to whoever is alarmed.
func TestAStandbySaysThatItIsOne(t *testing.T) {
	s := serveTest(t, nil)
	s.SetStandby(true)
	shows(t, s.scraped(), "weir_ready 0", `weir_replica_role{role="standby"} 1`)
	s.SetStandby(false)
	if page := s.scraped(); strings.Contains(page, "standby") {
		t.Error("it stands by no more")
	}
}
