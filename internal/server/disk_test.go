package server

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/engine"
)

// A full disk is an answer of its own, and not a reason to take the server out
// of service: what frees space has to come through.
func TestAFullDiskIsA507AndTheServerStaysReady(t *testing.T) {
	fs := vfs.NewMem()
	free := func(mib uint64) {
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: mib << 20, TotalBytes: 1000 << 20})
	}
	free(500)
	s := serveTest(t, nil)
	e, err := engine.Open(t.Context(), engine.Options{Dir: "/data", FS: fs, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.SetEngine(e)
	s.expect(201, "POST", "/v0/topics/t", `{"records":[{"data":1},{"data":2}]}`, nil)
	s.expect(201, "PUT", "/v0/topics/jobs", `{"type":"queue"}`, nil)
	r := s.ask("GET", "/v0/ready", "", nil)
	if r.body != `{"status":"ready","wal_replay_complete":true,"topics":2}` {
		t.Errorf("ready with room on the disk: %s", r.body)
	}
	free(99)
	s.eventually(func() bool {
		r = s.ask("POST", "/v0/topics/t", `{"records":[{"data":3}]}`, nil)
		return r.status == 507
	})
	if s.want(r, 507, "disk_full"); r.header.Get("Retry-After") != "5" || !strings.Contains(r.body, `"free_bytes":103809024,"reserve_bytes":104857600`) {
		t.Errorf("Retry-After %q: %s", r.header.Get("Retry-After"), r.body)
	}
	r = s.ask("GET", "/v0/ready", "", nil)
	if r.status != 200 || r.body != `{"status":"ready","wal_replay_complete":true,"topics":2,"writable":false,`+
		`"reason":"the disk has 99.0 MiB free and 100.0 MiB are reserved for operations that free space (--disk-reserve)"}` {
		t.Errorf("ready: %d %s", r.status, r.body)
	}
	s.want(s.ask("POST", "/v0/topics/jobs", `{"records":[{"data":1}]}`, nil), 507, "disk_full")
	page := s.ask("GET", "/v0/metrics", "", nil).body
	for _, line := range []string{`sse_queue_produce_failures_total{queue_type="weir",reason="buffer_full",stream="jobs"} 1`, "weir_writable 0", "weir_disk_free_bytes 1.03809024e+08", "weir_disk_reserve_bytes 1.048576e+08", "weir_ready 1"} {
		if !strings.Contains(page, "\n"+line+"\n") {
			t.Errorf("%q is missing", line)
		}
	}
	snap := s.ask("GET", "/v0/metrics", "", header{"Accept": "application/json"}).body
	if !strings.Contains(snap, `"disk_free_bytes":103809024,"disk_reserve_bytes":104857600,"writable":false`) {
		t.Errorf("the JSON form: %s", snap)
	}
	s.expect(200, "POST", "/v0/topics/t/delete", `{"before_seq":2}`, header{"deleted": "1"})
	s.expect(200, "PUT", "/v0/topics/t", `{"cap_records":1}`, nil)
	free(500)
	s.eventually(func() bool { return s.ask("POST", "/v0/topics/t", `{"records":[{"data":3}]}`, nil).status == 200 })
}

// eventually waits for ok.
func (s *testServer) eventually(ok func() bool) {
	s.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatal("not within 30 s")
		}
	}
}
