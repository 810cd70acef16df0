package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/capture"
)

// page is a log that a test reads while it is written.
type logPage struct{ capture.Buffer }

func (p *logPage) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	for _, raw := range p.Lines("") {
		var l map[string]any
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// logged is a server without a listener, whose log is a page.
func logged(change func(*Config), level slog.Level) (*Server, *logPage) {
	cfg := Config{Limits: api.DefaultLimits()}
	if change != nil {
		change(&cfg)
	}
	page := &logPage{}
	return New(cfg, Options{Logger: slog.New(slog.NewJSONHandler(page, &slog.HandlerOptions{Level: level}))}), page
}

func ask(s *Server, method, target, id string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = "127.0.0.1"
	if id != "" {
		r.Header.Set("X-Request-Id", id)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestARequestIDComesBackAndIsLoggedWithA5xx(t *testing.T) {
	s, page := logged(nil, slog.LevelDebug)
	if w := ask(s, "GET", "/v0/health", "mine-1"); w.Header().Get("X-Request-Id") != "mine-1" {
		t.Errorf("%v", w.Header())
	}
	if w := ask(s, "GET", "/v0/health", ""); w.Header().Get("X-Request-Id") != "" {
		t.Errorf("an answer to a client that asked for none has an id: %v", w.Header())
	}
	for _, bad := range []string{"with blank", "line\nbreak", strings.Repeat("x", 129), "ü"} {
		if w := ask(s, "GET", "/v0/health", bad); w.Header().Get("X-Request-Id") != "" {
			t.Errorf("%q came back", bad)
		}
	}
	if w := ask(s, "GET", "/v0/topics/t", "mine-2"); w.Code != 503 || w.Header().Get("X-Request-Id") != "mine-2" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	own := ask(s, "GET", "/v0/topics/t", "").Header().Get("X-Request-Id")
	all := page.lines(t)
	if len(all) != 2 || all[0]["request_id"] != "mine-2" || own == "" || all[1]["request_id"] != own || all[1]["level"] != "DEBUG" {
		t.Errorf("own %q, log %v", own, all)
	}
}

// brokenDisk is a disk whose files cannot be written once it is told so.
type brokenDisk struct {
	vfs.FS
	mu     sync.Mutex
	broken bool
}

type brokenFile struct {
	vfs.File
	disk *brokenDisk
}

func (f brokenFile) WriteAt(b []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.broken {
		return 0, syscall.EIO
	}
	return f.File.WriteAt(b, off)
}

func (d *brokenDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, o...)
	if err != nil {
		return nil, err
	}
	return brokenFile{f, d}, nil
}

func TestA500IsLoggedWithItsIDAndItsCause(t *testing.T) {
	s, page := logged(nil, slog.LevelInfo)
	disk := &brokenDisk{FS: vfs.NewMem()}
	e, err := engine.Open(t.Context(), engine.Options{Dir: "/data", FS: disk, SegmentBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.SetEngine(e)
	disk.mu.Lock()
	disk.broken = true
	disk.mu.Unlock()
	w := ask(s, "PUT", "/v0/topics/t", "find-me")
	all := page.lines(t)
	if w.Code != http.StatusInternalServerError || len(all) != 1 || all[0]["request_id"] != "find-me" || all[0]["path"] != "/v0/topics/t" ||
		all[0]["level"] != "ERROR" || !strings.Contains(all[0]["cause"].(string), "input/output error") {
		t.Errorf("%d %s\n%v", w.Code, w.Body, all)
	}
	disk.mu.Lock()
	disk.broken = false
	disk.mu.Unlock()
}

// A client that gives up on a busy server is nothing that its operator has to look at.
func TestAClientThatLeavesIsNoFaultOfTheServer(t *testing.T) {
	s, page := logged(nil, slog.LevelInfo)
	e, err := engine.Open(t.Context(), engine.Options{Dir: "/data", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s.SetEngine(e)
	other, err := e.Snapshot(t.Context()) // whose end a backup waits for
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, "POST", "/admin/backup", nil)
	r.Host = "127.0.0.1"
	s.ServeHTTP(httptest.NewRecorder(), r)
	if all := page.lines(t); len(all) != 0 {
		t.Errorf("the log has %v", all)
	}
	shows(t, ask(s, "GET", "/metrics", "").Body.String(), `weir_http_requests_total{code="499",method="POST",route="/admin/backup"} 1`)
}

func TestWhatHTTPReportsIsAWarning(t *testing.T) {
	s, page := logged(nil, slog.LevelInfo)
	s.http.ErrorLog.Print("http: Accept error: accept tcp 127.0.0.1:4000: accept4: too many open files; retrying in 5ms")
	all := page.lines(t)
	if len(all) != 1 || all[0]["level"] != "WARN" || !strings.Contains(all[0]["error"].(string), "too many open files") {
		t.Errorf("%v", all)
	}
}

// A storm of one kind of event is a line a second with a count, nothing of it
// is lost, and it leaves nothing behind.
func TestAStormIsALineASecond(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, page := logged(func(c *Config) { c.Keys = parseKeys(t, "k") }, slog.LevelInfo)
		for range 300 {
			ask(s, "GET", "/v0/topics", "")
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		ask(s, "GET", "/v0/topics", "")
		ask(s, "GET", "/v0/topics", "")
		s.logins.close()
		var counts []float64
		for _, l := range page.lines(t) {
			n, ok := l["count"].(float64)
			if !ok {
				n = 1
			}
			counts = append(counts, n)
		}
		sum := 0.0
		for _, n := range counts {
			sum += n
		}
		if sum != 302 || len(counts) != 6 || counts[0] != 1 || counts[len(counts)-1] != 1 {
			t.Errorf("counts %v", counts)
		}
	})
}
