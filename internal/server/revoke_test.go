package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/engine"
)

// stuckDisk is a disk whose writes to the log wait once it is stuck, until it is free.
type stuckDisk struct {
	vfs.FS
	mu   sync.Mutex
	free chan struct{} // nil: it is not stuck
}

func (d *stuckDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, o...)
	if err != nil {
		return nil, err
	}
	return stuckFile{f, d}, nil
}

func (d *stuckDisk) stick() (free func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = make(chan struct{})
	return sync.OnceFunc(func() { close(d.free) })
}

type stuckFile struct {
	vfs.File
	disk *stuckDisk
}

func (f stuckFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	free := f.disk.free
	f.disk.mu.Unlock()
	if free != nil {
		<-free
	}
	return f.File.WriteAt(p, off)
}

// What a key has begun ends with it, however long it takes: a body that is still coming, a write
// that waits for room, a backup that is being read, a bundle.
func TestARevokedKeyHasNothingUnderWay(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *testServer, string) underWay{
		"a body that comes slowly":    slowBody,
		"a write that waits for room": patientWrite(`{"records":[{"data":"late"}],"disable_backpressure":true}`, ""),
		"writes that wait for room":   patientWrite(`{"writes":[{"records":[{"data":"late"}]}],"disable_backpressure":true}`, "/writes"),
		"a backup that is being read": slowBackup,
		"a bundle with a profile":     slowBundle,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "keys.json")
			goes, k := newFileKey("goes", "read", "write", "admin")
			writeKeys(t, file, k)
			keys, err := LoadKeys("stays", file)
			if err != nil {
				t.Fatal(err)
			}
			s := serveTest(t, func(c *Config) { c.Keys = keys })
			it := begin(t, s, goes)
			defer it.clean()
			writeKeys(t, file)
			if _, err := keys.read(); err != nil {
				t.Fatal(err)
			}
			it.goOn()
			select {
			case how := <-it.ended:
				if how != it.want {
					t.Errorf("it ends with %s", how)
				}
			case <-time.After(20 * time.Second):
				t.Error("it goes on")
			}
		})
	}
}

// underWay is what a key has begun: goOn is called once that is revoked, and clean afterwards.
type underWay struct {
	ended       <-chan string
	want        string
	goOn, clean func()
}

// slowBody writes with a body of which the rest comes when the key is gone.
func slowBody(t *testing.T, s *testServer, key string) underWay {
	s.SetEngine(openEngine(t, engine.Options{Dir: s.dataDir + "/data", Limits: s.limits}))
	const body = `{"records":[{"data":"late"}]}`
	c := s.dial()
	if _, err := io.WriteString(c, post("/v0/topics/log", jsonType+"Connection: close\r\nAuthorization: Bearer "+key+"\r\n"+sized(body), body[:10])); err != nil {
		t.Fatal(err)
	}
	await(t, "the body to begin", func() bool { return s.inflight.n.Load() > 0 })
	ended := make(chan string, 1)
	goOn := func() {
		if _, err := io.WriteString(c, body[10:]); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		ended <- refusalIn(replies(t, string(text))[0])
	}
	return underWay{ended, "unauthorized", goOn, func() {}}
}

// refusalIn is unauthorized if that is what an answer, or one of its outcomes, says, or else its status.
func refusalIn(r *reply) string {
	if strings.Contains(r.body, `{"error":{"code":"unauthorized"`) {
		return "unauthorized"
	}
	return fmt.Sprint(r.status)
}

// patientWrite waits for a place in a log whose disk is stuck.
func patientWrite(body, path string) func(*testing.T, *testServer, string) underWay {
	return func(t *testing.T, s *testServer, key string) underWay {
		disk := &stuckDisk{FS: vfs.NewMem()}
		e := openEngine(t, engine.Options{Dir: "/data", FS: disk, IngestSlots: 1, IngestTimeout: 100 * time.Millisecond, Limits: s.limits, DiskReserve: -1})
		s.SetEngine(e)
		stays := header{"Authorization": "Bearer stays"}
		s.ask("PUT", "/v0/topics/log", `{"durability":"fsync"}`, stays)
		free := disk.stick()
		t.Cleanup(free)
		var all sync.WaitGroup
		full := make(chan struct{}, 9)
		for range cap(full) {
			all.Go(func() {
				if r := s.ask("POST", "/v0/topics/log", `{"records":[{"data":1}]}`, stays); r.status == 429 {
					full <- struct{}{}
				}
			})
		}
		<-full
		it := s.keys.find(key)
		ended := make(chan string, 1)
		all.Go(func() {
			r := s.ask("POST", "/v0/topics/log"+path, body, header{"Authorization": "Bearer " + key})
			ended <- refusalIn(r)
		})
		await(t, "the write to wait", func() bool { return it.inflight.n.Load() == 1 })
		return underWay{ended, "unauthorized", func() {}, func() { free(); all.Wait() }}
	}
}

// slowBackup reads one.
func slowBackup(t *testing.T, s *testServer, key string) underWay {
	s.SetEngine(openEngine(t, engine.Options{Dir: s.dataDir + "/data", Limits: s.limits}))
	s.ask("POST", "/v0/topics/log", `{"records":[{"data":"`+strings.Repeat("x", 500_000)+`"}]}`, header{"Authorization": "Bearer stays"})
	c := s.dial()
	if _, err := io.WriteString(c, "POST /admin/backup?rate=1000 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "+key+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, first); err != nil || string(first) != "HTTP/1.1 200" {
		t.Fatalf("%q %v", first, err)
	}
	return underWay{endOf(c), "cut", func() {}, func() {}}
}

// slowBundle has the server's CPU profiled for as long as one may.
func slowBundle(t *testing.T, s *testServer, key string) underWay {
	s.SetEngine(openEngine(t, engine.Options{Dir: s.dataDir + "/data", Limits: s.limits}))
	c := s.dial()
	if _, err := io.WriteString(c, "POST /admin/bundle?profile=1m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "+key+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	it := s.keys.find(key)
	await(t, "the bundle to begin", func() bool { return it.inflight.n.Load() == 1 })
	return underWay{endOf(c), "cut", func() {}, func() {}}
}

// endOf says whether a chunked answer comes to its end.
func endOf(c io.Reader) <-chan string {
	ended := make(chan string, 1)
	go func() {
		rest, _ := io.ReadAll(c) // it may be reset
		how := "cut"
		if strings.HasSuffix(string(rest), "\r\n0\r\n\r\n") {
			how = "its end"
		}
		ended <- how
	}()
	return ended
}

// Signing out ends all that the pages of the session have opened, not only the dashboard's numbers.
func TestWhatASessionHasOpenedEndsWithIt(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "secret") })
	key := header{"Authorization": "Bearer secret"}
	s.ask("PUT", "/v0/topics/jobs", `{"type":"queue"}`, key)
	s.ask("PUT", "/v0/topics/log", "", key)
	in := s.ask("POST", "/ui/session", `{"key":"secret"}`, nil)
	c, err := http.ParseSetCookie(in.header.Get("Set-Cookie"))
	if err != nil {
		t.Fatal(err)
	}
	page := header{"Cookie": c.Name + "=" + c.Value, "Origin": "http://" + s.addr}
	var watch struct {
		URL string `json:"stream_url"`
	}
	if err := json.Unmarshal([]byte(s.ask("POST", "/v0/watch", `{"topics":{"log":{}}}`, page).body), &watch); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if r := s.ask("POST", "/v0/topics/log/diff", `{"wait_ms":30000}`, page); r.status != 200 {
			t.Errorf("a diff that waits: %d %s", r.status, r.body)
		}
	})
	await(t, "the diff to wait", func() bool { return s.running.Load() == 1 })
	for _, target := range []string{"/ui/live", "/v0/topics/jobs/work?node=n", watch.URL} {
		open := s.stream(&http.Transport{}, target, page)
		all.Go(func() {
			for open.block() != "" {
				continue
			}
		})
	}
	head := http.Header{}
	for name, value := range page {
		head.Set(name, value)
	}
	socket, _, err := websocket.Dial(t.Context(), "http://"+s.addr+"/v0/ws", &websocket.DialOptions{HTTPHeader: head})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	all.Go(func() {
		for err = nil; err == nil; {
			_, _, err = socket.Read(t.Context())
		}
	})
	await(t, "all to be open", func() bool { return s.streams.count() == 4 })
	s.want(s.ask("DELETE", "/ui/session", "", page), 204, "")
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Errorf("%d streams and %d requests go on", s.streams.count(), s.running.Load())
	}
}
