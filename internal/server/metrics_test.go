package server

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/api"
)

func TestMetricsBeforeTheServerIsReady(t *testing.T) {
	s := serveTest(t, nil)
	s.SetProgress(0.5)
	r := s.ask("GET", "/v0/metrics", "", nil)
	if r.status != 200 || r.header.Get("Content-Type") != "text/plain; version=0.0.4" {
		t.Fatalf("got %d %q", r.status, r.header.Get("Content-Type"))
	}
	for _, line := range []string{
		"# TYPE weir_topics gauge", "# TYPE weir_routers gauge", "# TYPE weir_records_live gauge", "# TYPE weir_bytes_live gauge",
		"# TYPE weir_queue_topics gauge", "# TYPE weir_queue_leases_in_flight gauge", "# TYPE weir_sse_connections gauge",
		"# TYPE weir_watch_sessions gauge", "# TYPE weir_uptime_ms counter", "# TYPE weir_topics_by_class gauge",
		"# TYPE weir_wal_frames_total counter", "# TYPE weir_wal_batches_total counter", "# TYPE weir_wal_fsyncs_total counter",
		"# TYPE weir_wal_bytes_written_total counter", "# TYPE weir_wal_rotations_total counter", "# TYPE weir_wal_submit_full_total counter",
		"# TYPE weir_wal_queue_depth gauge", "# TYPE weir_wal_queue_depth_peak gauge", "# TYPE weir_wal_fsync_latency_us histogram",
		"weir_ready 0", "weir_recovery_progress 0.5", "weir_topic_metrics_truncated 0", "weir_wal_read_only 0",
		`weir_topics_by_class{class="ephemeral"} 0`, `weir_topics_by_class{class="memory"} 0`,
		`weir_topics_by_class{class="disk"} 0`, `weir_topics_by_class{class="fsync"} 0`,
		`weir_wal_fsync_latency_us_bucket{le="50"} 0`, `weir_wal_fsync_latency_us_bucket{le="100000"} 0`,
		`weir_wal_fsync_latency_us_bucket{le="+Inf"} 0`, "weir_wal_fsync_latency_us_sum 0", "weir_wal_fsync_latency_us_count 0",
	} {
		if !strings.Contains(r.body, line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
	for line := range strings.Lines(r.body) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "weir_") {
			t.Errorf("a foreign metric: %s", line)
		}
	}
}

func TestMetricsAsJSON(t *testing.T) {
	s := serveTest(t, nil)
	r := s.ask("GET", "/v0/metrics", "", header{"Accept": "text/html, application/json;q=0.9"})
	var m map[string]any
	if err := json.Unmarshal([]byte(r.body), &m); err != nil || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v: %q %s", err, r.header.Get("Content-Type"), r.body)
	}
	for _, name := range strings.Fields("topics topics_ephemeral topics_memory topics_disk topics_fsync routers records_live bytes_live " +
		"queue_topics queue_leases_in_flight sse_connections watch_sessions ready replay_progress uptime_ms") {
		if _, ok := m[name]; !ok {
			t.Errorf("%s is missing", name)
		}
	}
	wal, _ := m["wal"].(map[string]any)
	for _, name := range strings.Fields("fsyncs frames batches bytes_written rotations queue_depth queue_depth_peak submit_full_total " +
		"read_only fsync_count fsync_micros_total") {
		if _, ok := wal[name]; !ok {
			t.Errorf("wal.%s is missing", name)
		}
	}
}

func TestHealthNamesVersionAndUptime(t *testing.T) {
	s := serveTest(t, nil)
	r := s.ask("GET", "/v0/health", "", nil)
	if !strings.HasPrefix(r.body, `{"status":"ok","version":"test","uptime_ms":`) {
		t.Errorf("got %s", r.body)
	}
}

func TestTheNumbersOfTheSchedulerAreThereBeforeAnythingHappened(t *testing.T) {
	s := serveEngine(t, nil)
	text := s.ask("GET", "/v0/metrics", "", nil).body
	for _, name := range []string{
		"weir_pressure", `weir_pressure_signal{signal="depth"}`, `weir_pressure_signal{signal="latency"}`, `weir_pressure_signal{signal="pool"}`,
		"weir_governor_rung", "weir_coalesce_window_ms", "weir_commit_window_ms", `weir_sched_ready{band="B4"}`, "weir_sched_deferred",
		`weir_sched_visits_total{band="B0"}`, "weir_sched_promotions_total", "weir_sched_wait_ms_count", `weir_throttled_total{reason="pressure"}`,
		`weir_throttled_total{reason="max_topics"}`, "weir_sse_lagged", "weir_sse_lagged_total", "weir_sse_dropped_slow_total",
	} {
		if !strings.Contains(text, "\n"+name+" ") {
			t.Errorf("the metrics lack %s", name)
		}
	}
}

func TestAStoppedRouterIsInTheMetrics(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/out", `{"cap_bytes":10,"discard":"reject"}`, nil)
	s.expect(201, "PUT", "/v0/routers/r", `{"source":"in","dest":"out"}`, nil)
	asJSON := header{"Accept": "application/json"}
	for _, step := range []struct{ data, stopped string }{{`"small"`, "0"}, {`"larger than ten bytes"`, "1"}} {
		s.expect(200, "POST", "/v0/topics/in", `{"records":[{"data":`+step.data+`}]}`, nil)
		s.expect(200, "POST", "/v0/topics/out/diff", `{}`, nil)
		if page := s.ask("GET", "/v0/metrics", "", nil).body; !strings.Contains(page, "\nweir_routers_stopped "+step.stopped+"\n") {
			t.Errorf("after %s: %s is missing", step.data, "weir_routers_stopped "+step.stopped)
		}
		if snap := s.ask("GET", "/v0/metrics", "", asJSON).body; !strings.Contains(snap, `"routers_stopped":`+step.stopped+`,`) {
			t.Errorf("after %s, as JSON: %s", step.data, snap)
		}
	}
}

// Whoever is told of pressure looks for load.
func TestNoCapCountsAsPressure(t *testing.T) {
	root := os.DirFS("..")
	named := regexp.MustCompile(`api\.Over(?:Limit|Fixed)\("(\w+)"`)
	found := map[string]bool{}
	err := fs.WalkDir(root, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := fs.ReadFile(root, path)
		for _, m := range named.FindAllSubmatch(text, -1) {
			found[string(m[1])] = true
		}
		return err
	})
	if err != nil || len(found) < len(throttleReasons)-2 {
		t.Fatalf("found only %v, %v", found, err)
	}
	for name := range found {
		if !slices.Contains(throttleReasons, name) {
			t.Errorf("a 429 for %s counts as %s", name, byPressure)
		}
	}
}

// Every 429 counts under its reason, and what names none is the governor's.
func TestEachRefusalCountsUnderItsReason(t *testing.T) {
	s := serveTest(t, nil)
	for _, e := range []*api.Error{
		api.Errorf(api.CodeThrottled, "the ingest queue is full").After(time.Second),
		api.OverLimit("max_topics", 1),
		api.OverFixed("max_waiting_claims_per_socket", 1),
		api.Errorf(api.CodeThrottled, "the queue has more to do").With(api.DetailReason, api.ReasonLoadShedding),
		api.Errorf(api.CodeTopicFull, "the topic is full"),
	} {
		s.answerTo(t.Context(), e)
	}
	page := s.ask("GET", "/v0/metrics", "", nil).body
	for _, reason := range throttleReasons {
		want := 0
		switch reason {
		case byPressure, "max_topics", "max_waiting_claims_per_socket", api.ReasonLoadShedding:
			want = 1
		}
		if row := fmt.Sprintf("weir_throttled_total{reason=%q} %d", reason, want); !strings.Contains(page, "\n"+row+"\n") {
			t.Errorf("%s is missing:\n%s", row, linesWith(page, "weir_throttled"))
		}
	}
}

// The documents' metrics of queues: what a publisher of the library counts for
// itself, the server counts for everybody who writes.
func TestQueuesHaveDepthAndCountsOfWrites(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue","cap_records":3,"discard":"reject"}`, nil)
	s.expect(200, "POST", "/v0/topics/jobs", `{"records":[{"data":1},{"data":2}]}`, nil)
	s.want(s.ask("POST", "/v0/topics/jobs", `{"records":[{"data":1},{"data":2}]}`, nil), 422, "topic_full")
	s.expect(201, "POST", "/v0/topics/log", `{"records":[{"data":1}]}`, nil)
	for range 3 {
		s.ask("POST", "/v0/topics/0bad%20name", `{"records":[{"data":1}]}`, nil)
	}
	page := s.ask("GET", "/v0/metrics", "", nil).body
	for _, row := range []string{
		`sse_queue_depth{queue_name="jobs"} 2`,
		`sse_queue_produce_attempts_total{queue_type="weir",stream="jobs"} 4`,
		`sse_queue_produce_success_total{queue_type="weir",stream="jobs"} 2`,
		`sse_queue_produce_failures_total{queue_type="weir",reason="queue_full",stream="jobs"} 2`,
		`sse_queue_produce_failures_total{queue_type="weir",reason="load_shedding",stream="jobs"} 0`,
	} {
		if !strings.Contains(page, "\n"+row+"\n") {
			t.Errorf("%s is missing:\n%s", row, linesWith(page, "sse_queue"))
		}
	}
	if strings.Contains(page, `queue_name="log"`) || strings.Contains(page, `stream="log"`) {
		t.Errorf("a log has a queue's metrics: %s", linesWith(page, "log"))
	}
	s.expect(200, "DELETE", "/v0/topics/jobs", "", nil)
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue"}`, nil)
	if page = s.ask("GET", "/v0/metrics", "", nil).body; !strings.Contains(page, `sse_queue_produce_attempts_total{queue_type="weir",stream="jobs"} 0`+"\n") {
		t.Errorf("a queue that was made again: %s", linesWith(page, "jobs"))
	}
}
