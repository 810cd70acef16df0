package library

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// serverTrouble is weir servers as the alerts about servers want them.
type serverTrouble struct {
	m                      *monitor
	queues, loaded, broken *weirtest.Server
	copied                 *weirtest.Server // its copy is in a directory
	hooked                 *weirtest.Server // it has webhooks
	hook                   string           // one that delivers
	copyDir                string
	gone, recovering       string // addresses
	stops                  []func()
}

// newServerTrouble makes trouble with the queues of a server that is well, and with
// servers that are not.
func newServerTrouble(m *monitor, queues *weirtest.Server) *serverTrouble {
	m.t.Helper()
	s := &serverTrouble{m: m, queues: queues}
	s.loaded = weirtest.Start(m.t, weirtest.Options{Env: []string{"WEIR_TEST_PRESSURE=0.9", "WEIR_API_KEYS=key", fmt.Sprint("WEIR_DISK_RESERVE=", 2*freeBytes(m.t))}})
	s.broken = weirtest.Start(m.t, weirtest.Options{Args: []string{"--disk-reserve=3MiB", "--max-topics=3"}})
	s.breakCopy()
	s.startRecovering()
	gone := weirtest.Start(m.t, weirtest.Options{})
	s.gone = gone.Addr
	gone.Kill()
	for _, addr := range []string{s.loaded.Addr, s.broken.Addr, s.copied.Addr, s.recovering, s.gone} {
		m.serve(addr, "")
	}
	s.failBackups()
	s.deliver()
	s.neglectQueues()
	s.stops = append(s.stops, again(m.t, 50*time.Millisecond, func(ctx context.Context) {
		_, _ = call(ctx, "GET", s.loaded.URL+"/v0/topics", "wrong", "")
	}))
	s.damageRecords()
	s.breakServer()
	return s
}

// large is a record of half a log file.
var large = `{"records":[{"data":"` + strings.Repeat("x", 500_000) + `"}]}`

func (s *serverTrouble) alerts() []string {
	return []string{
		"ServerDown ", "ServerNotReady ", "PressureUnknown ", "LogReadOnly ", "WritesRefused ", "DiskLow ", "RecordsDamaged ", "RungRaised ",
		"RequestsRefused ", "LoginsRefused ", "OldestJobOverObjective late", "WorkersGone left", "DeadLettersRising late", "RouterStopped ", "ReplicaBehind ",
		"CertificateEnds ", "BackupOld ", "WebhookFailing ",
	}
}

// breakCopy starts a server and takes the place of its copy away.
func (s *serverTrouble) breakCopy() {
	t := s.m.t
	t.Helper()
	s.copyDir = t.TempDir()
	s.copied = weirtest.Start(t, weirtest.Options{Args: []string{"--replica=file://" + s.copyDir}})
	s.do(s.copied, "PUT", "/v0/topics/jobs", `{"type":"queue"}`)
	weirtest.Eventually(t, "nothing can be written to the copy", func() bool {
		_ = os.RemoveAll(filepath.Join(s.copyDir, "tmp")) // the server may be making it again
		return os.WriteFile(filepath.Join(s.copyDir, "tmp"), nil, 0o600) == nil
	})
	s.stops = append(s.stops, again(t, 100*time.Millisecond, func(ctx context.Context) {
		_, _ = call(ctx, "POST", s.copied.URL+"/v0/topics/jobs", "", `{"records":[{"data":1}]}`)
	}))
}

// doctor sees that the copy is behind, as the alert does.
func (s *serverTrouble) doctor() {
	t := s.m.t
	t.Helper()
	out, _, code := weirtest.Run(t, nil, "doctor", s.copied.URL+"/jobs")
	if code != 1 || !strings.Contains(out, "replica_behind: the copy of the server's log is ") {
		t.Errorf("weir doctor ended with %d and says\n%s", code, out)
	}
}

// startRecovering serves what a server's page says before it is ready; its recovery would be
// over too soon to be seen. Its certificate ends in a week, and its last backup is two days old.
func (s *serverTrouble) startRecovering() {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Now()
		// Prometheus comes again.
		_, _ = fmt.Fprintf(w, "weir_ready 0\nweir_recovery_progress 0.5\nweir_tls_certificate_end_timestamp_seconds %d\nweir_last_backup_timestamp_seconds %d\n",
			now.AddDate(0, 0, 7).Unix(), now.AddDate(0, 0, -2).Unix())
	}))
	s.m.t.Cleanup(page.Close)
	s.recovering = strings.TrimPrefix(page.URL, "http://")
}

// failBackups makes backups of the server that is gone, which shows on the page of that command.
func (s *serverTrouble) failBackups() {
	t := s.m.t
	backups := weirtest.Go(t, nil, "backup", "--every=1h", "--metrics=127.0.0.1:0", "http://"+s.gone, t.TempDir())
	var addr string
	weirtest.Eventually(t, "a backup has failed", func() bool {
		_, page, _ := strings.Cut(backups.Stderr.String(), "metrics at http://")
		addr, _, _ = strings.Cut(page, "/")
		return strings.Contains(page, "the backup failed")
	})
	s.m.serve(addr, "")
}

// deliver starts a server that has a webhook, whose numbers only then are on its page. It fails.
func (s *serverTrouble) deliver() {
	t := s.m.t
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(receiver.Close)
	refusing := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refusing.Close)
	server := weirtest.Start(t, weirtest.Options{Args: []string{"--webhooks=on", "--webhook-allow-http", "--webhook-allow-private=127.0.0.0/8"}})
	hook := func(url string) string { return `{"topic":"mails","concurrency":8,"url":"` + url + `"}` }
	s.hooked, s.hook = server, hook(receiver.URL)
	s.do(server, "PUT", "/v0/topics/mails", `{"type":"queue"}`)
	s.do(server, "PUT", "/v0/webhooks/mailer", hook(refusing.URL))
	s.do(server, "POST", "/v0/topics/mails", `{"records":[{"data":1},{"data":2},{"data":3},{"data":4},{"data":5}]}`)
	s.m.serve(server.Addr, "")
}

// neglectQueues makes queues that nobody works on.
func (s *serverTrouble) neglectQueues() {
	s.do(s.queues, "PUT", "/v0/topics/late", `{"type":"queue","wait_slo_ms":200}`)
	s.do(s.queues, "PUT", "/v0/topics/left", `{"type":"queue"}`)
	s.do(s.queues, "POST", "/v0/topics/late", `{"records":[{"data":1}]}`)
	s.do(s.queues, "POST", "/admin/backup", ``)
	weirtest.Go(s.m.t, nil, "tail", s.queues.URL+"/left")
	one := `{"records":[{"data":1}]}`
	s.stops = append(s.stops, again(s.m.t, 100*time.Millisecond, func(ctx context.Context) {
		_, _ = call(ctx, "POST", s.queues.URL+"/v0/topics/left", "", one)
		_, _ = call(ctx, "POST", s.queues.URL+"/v0/topics/late.dlq", "", one)
	}))
}

// damageRecords changes records on the disk, and fills the files that they are in, so that
// the server reads them to move them.
func (s *serverTrouble) damageRecords() {
	s.do(s.queues, "PUT", "/v0/topics/filler", `{"cap_records":1}`)
	url := s.queues.URL + "/v0/topics/rotten"
	s.stops = append(s.stops, again(s.m.t, 500*time.Millisecond, func(ctx context.Context) {
		_, _ = call(ctx, "POST", url, "", `{"records":[{"data":"rotten"}]}`)
		spoil(s.m.t, filepath.Join(s.queues.Dir, "wal"), "rotten\"")
		_, _ = call(ctx, "POST", s.queues.URL+"/v0/topics/filler", "", large)
		_, _ = call(ctx, "POST", url+"/diff", "", `{}`)
	}))
}

// breakServer stops a router and takes the log's directory away.
func (s *serverTrouble) breakServer() {
	t, b := s.m.t, s.broken
	t.Helper()
	s.do(b, "PUT", "/v0/topics/out", `{"cap_bytes":10,"discard":"reject"}`)
	s.do(b, "PUT", "/v0/routers/r", `{"source":"in","dest":"out"}`)
	s.do(b, "POST", "/v0/topics/in", `{"records":[{"data":"larger than ten bytes"}]}`)
	s.do(b, "POST", "/v0/topics/out/diff", `{}`)
	s.do(b, "PUT", "/v0/topics/full", `{"cap_records":1}`)
	s.stops = append(s.stops, again(t, 100*time.Millisecond, func(ctx context.Context) { // after the three that there may be
		_, _ = call(ctx, "PUT", b.URL+"/v0/topics/one-too-many", "", `{}`)
	}))
	if err := os.Rename(filepath.Join(b.Dir, "wal"), filepath.Join(b.Dir, "away")); err != nil {
		t.Fatal(err)
	}
	s.stops = append(s.stops, again(t, 10*time.Millisecond, func(ctx context.Context) {
		_, _ = call(ctx, "POST", b.URL+"/v0/topics/full", "", large)
	}))
}

// end ends all of it.
func (s *serverTrouble) end() {
	t := s.m.t
	t.Helper()
	for _, stop := range s.stops {
		stop()
	}
	if err := os.Remove(filepath.Join(s.copyDir, "tmp")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(s.broken.Dir, "away"), filepath.Join(s.broken.Dir, "wal")); err != nil {
		t.Fatal(err)
	}
	s.do(s.hooked, "PUT", "/v0/webhooks/mailer", s.hook)
	s.loaded.SetEnv([]string{"WEIR_API_KEYS=key"})
	old := s.loaded.Addr
	s.loaded.Restart()
	s.m.serve(s.loaded.Addr, old)
	s.m.serve("", s.gone)
	s.m.serve("", s.recovering)
	s.m.watch("work", s.queues.URL+"/left", "--", "true")
	s.do(s.queues, "POST", "/v0/topics/late/claim", `{"node":"n","lease_ms":600000}`)
	weirtest.Eventually(t, "the log can be written again", func() bool {
		code, _ := call(t.Context(), "PUT", s.broken.URL+"/v0/topics/out", "", `{"cap_bytes":1000,"discard":"reject"}`)
		return code == http.StatusOK
	})
	s.do(s.broken, "POST", "/v0/topics/out/diff", `{}`)
}

// do makes a call that has to succeed.
func (s *serverTrouble) do(server *weirtest.Server, method, path, body string) {
	s.m.t.Helper()
	if code, answer := call(s.m.t.Context(), method, server.URL+path, "", body); code/100 != 2 {
		s.m.t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

// call makes a call of /v0 and returns the status, 0 if there is none, and the answer.
func call(ctx context.Context, method, url, key, body string) (code int, answer string) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body) // a part will do
	return resp.StatusCode, string(text)
}

// spoil changes every place of the files of a directory that has the text.
func spoil(t *testing.T, dir, text string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil {
		t.Error(err)
	}
	for _, name := range files {
		if err := spoilFile(name, []byte(text)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

func spoilFile(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	for at := 0; err == nil; at++ {
		i := bytes.Index(content[at:], text)
		if i < 0 {
			break
		}
		at += i
		_, err = f.WriteAt([]byte("#"), int64(at))
	}
	return err
}

func freeBytes(t *testing.T) int64 {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(t.TempDir(), &disk); err != nil {
		t.Fatal(err)
	}
	return int64(disk.Bavail) * int64(disk.Bsize)
}
