package contract

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

func dial(t *testing.T, s *weirtest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// metric reads one unlabelled metric.
func metric(t *testing.T, s *weirtest.Server, name string) (value float64) {
	t.Helper()
	resp, err := http.Get(s.URL + "/v0/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return value
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestAGracefulStopAnswersLongPollsAtOnce(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	p := newPeer(t, s, "")
	p.must(t, "PUT", "/v0/topics/t", `{}`)
	// A server that holds the long poll counts its topic as read.
	waiting := make(chan reply, 1)
	go func() { waiting <- p.do("POST", "/v0/topics/t/diff", `{"wait_ms":30000}`) }()
	awaitRead(t, p)
	begin := time.Now()
	if code := s.Stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("the stop took %v with a long poll open", took)
	}
	if r := <-waiting; r.err != nil || r.status != 200 && r.status != 503 {
		t.Errorf("the long poll got status %d, error %v", r.status, r.err)
	}
}

// awaitRead waits until something has read topic t.
func awaitRead(t *testing.T, p *peer) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; {
		if r := p.must(t, "GET", "/v0/topics/t?touch=false", ""); r.body["last_read_ts"] != nil {
			return
		}
	}
	t.Fatal("the long poll never reached the topic")
}

func TestWhileDrainingRunningRequestsEndAndReadyIsNo(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	p := newPeer(t, s, "")
	p.must(t, "PUT", "/v0/topics/t", `{}`)
	slow, idle := dial(t, s), dial(t, s)
	body := `{"records":[{"data":"last"}]}`
	send(t, slow, fmt.Sprintf("POST /v0/topics/t HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", s.Addr, len(body), body[:5]))
	waiting := make(chan reply, 1)
	go func() { waiting <- p.do("POST", "/v0/topics/t/diff", `{"wait_ms":30000}`) }()
	awaitRead(t, p)
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-waiting // answered: the server drains
	if _, err := io.WriteString(idle, "GET /v0/ready HTTP/1.1\r\nHost: "+s.Addr+"\r\n\r\n"); err == nil {
		if resp, err := http.ReadResponse(bufio.NewReader(idle), nil); err == nil && resp.StatusCode != 503 {
			t.Errorf("/v0/ready answers %d while draining", resp.StatusCode)
		}
	}
	for begin := time.Now(); ; time.Sleep(time.Millisecond) { // the long poll may be answered first
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			break
		}
		conn.Close()
		if time.Since(begin) > patience {
			t.Error("a new connection is accepted while draining")
			break
		}
	}
	send(t, slow, body[5:])
	resp, err := http.ReadResponse(bufio.NewReader(slow), nil)
	if err != nil {
		t.Fatalf("the running write got no answer: %v", err)
	}
	<-s.Exited()
	s.Restart()
	r := newPeer(t, s, "").must(t, "POST", "/v0/topics/t/diff", `{}`)
	records, _ := r.body["records"].([]any)
	if kept := len(records) == 1; kept != (resp.StatusCode == 200) {
		t.Errorf("the running write got %d and left %d records", resp.StatusCode, len(records))
	}
}

func TestUntilRecoveryIsDoneEverythingElseIsNotReady(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	p := newPeer(t, s, "")
	batch := `{"records":[` + strings.Repeat(`{"data":"0123456789012345678901234567890123456789"},`, 9999) + `{"data":1}]}`
	for range 10 {
		p.must(t, "POST", "/v0/topics/t?return_seqs=0", batch)
	}
	s.Kill()
	early := weirtest.Start(t, weirtest.Options{Dir: s.Dir, NoWait: true})
	p = newPeer(t, early, "")
	for begin := time.Now(); time.Since(begin) < patience; {
		r := p.do("GET", "/v0/topics/t", "")
		if r.status == 200 {
			if r.number("count") != 100_000 {
				t.Errorf("count is %v right after recovery, want 100000", r.number("count"))
			}
			return
		}
		progress, _ := r.errorDetail("replay_progress").(float64)
		if r.status != 503 || r.header.Get("Retry-After") == "" || progress < 0 || progress > 1 {
			t.Fatalf("status %d, body %v, error %v, want 503 not_ready", r.status, r.body, r.err)
		}
		if h := p.do("GET", "/v0/health", ""); h.status != 200 {
			t.Fatalf("health answers %d during recovery", h.status)
		}
	}
	t.Error("the server did not get ready")
}

func TestADiskWriteIsSyncedSoonWithoutFsyncTopics(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_DISK_FLUSH_MS=50"}})
	p := newPeer(t, s, "")
	p.must(t, "PUT", "/v0/topics/t", `{}`)
	for range 3 {
		before := metric(t, s, "weir_wal_fsyncs_total")
		p.must(t, "POST", "/v0/topics/t", `{"records":[{"data":1}]}`)
		for begin := time.Now(); metric(t, s, "weir_wal_fsyncs_total") == before; {
			if time.Since(begin) > patience {
				t.Fatal("a disk write was not synced in the background")
			}
		}
	}
}

func TestAnFsyncWriteAndItsAckAreSyncedBeforeTheyAnswer(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_DISK_FLUSH_MS=60000"}})
	p := newPeer(t, s, "")
	p.must(t, "PUT", "/v0/topics/q", `{"type":"queue","durability":"fsync"}`)
	for _, step := range [][2]string{
		{"/v0/topics/q", `{"records":[{"data":1}]}`},
		{"", ""}, // the claim is not durable and needs no sync
		{"/v0/topics/q/ack", `{"node":"w","seqs":[1]}`},
	} {
		if step[0] == "" {
			p.must(t, "POST", "/v0/topics/q/claim", `{"node":"w"}`)
			continue
		}
		before := metric(t, s, "weir_wal_fsyncs_total")
		p.must(t, "POST", step[0], step[1])
		if after := metric(t, s, "weir_wal_fsyncs_total"); after <= before {
			t.Errorf("%s answered without a sync", step[0])
		}
	}
}

func TestSlowBodiesTogetherAreBounded(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_MAX_INFLIGHT_BYTES=3000"}})
	head := "POST /v0/topics/t HTTP/1.1\r\nHost: " + s.Addr + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
	var held []net.Conn
	hold := func() {
		conn := dial(t, s)
		send(t, conn, head)
		held = append(held, conn)
	}
	for range 3 {
		hold()
	}
	p := newPeer(t, s, "")
	body := `{"records":[{"data":"` + strings.Repeat("x", 500) + `"}]}`
	await := func(what string, done func(reply) bool) {
		t.Helper()
		for begin := time.Now(); time.Since(begin) < patience; {
			if r := p.do("POST", "/v0/topics/u", body); r.err == nil && done(r) {
				return
			}
		}
		t.Errorf("never: %s", what)
	}
	await("a refusal while slow bodies hold the bytes", func(r reply) bool {
		if r.status/100 == 2 && len(held) < 100 {
			hold() // this write may have had the room of a slow one
		}
		return r.status == 429 && r.errorDetail("limit") == "max_inflight_bytes"
	})
	for _, conn := range held {
		conn.Close()
	}
	await("room after the slow bodies are gone", func(r reply) bool { return r.status/100 == 2 })
}

func TestAnUnfinishedHeaderIsCutOffAfterTenSeconds(t *testing.T) {
	t.Parallel()
	conn := dial(t, weirtest.Start(t, weirtest.Options{}))
	begin := time.Now()
	send(t, conn, "GET /v0/health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	if err := conn.SetReadDeadline(begin.Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := io.Copy(io.Discard, conn)
	if took := time.Since(begin); err != nil || took < 9*time.Second || took > 20*time.Second {
		t.Errorf("connection ended after %v with %v, want the end after 10 s", took, err)
	}
}

func TestIdleHTTP2ConnectionsArePingedEveryTwentySeconds(t *testing.T) {
	t.Parallel()
	conn := dial(t, weirtest.Start(t, weirtest.Options{}))
	begin := time.Now()
	// The preface and an empty SETTINGS frame.
	send(t, conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	if err := conn.SetReadDeadline(begin.Add(40 * time.Second)); err != nil {
		t.Fatal(err)
	}
	const ping = 6
	for in := bufio.NewReader(conn); ; {
		var head [9]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			t.Fatalf("no ping within %v: %v", time.Since(begin), err)
		}
		length := binary.BigEndian.Uint32(append([]byte{0}, head[:3]...))
		if _, err := in.Discard(int(length)); err != nil {
			t.Fatal(err)
		}
		if head[3] == ping {
			break
		}
	}
	if took := time.Since(begin); took < 15*time.Second || took > 30*time.Second {
		t.Errorf("first ping after %v, want about 20 s", took)
	}
}
