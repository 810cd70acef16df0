package relay_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/internal/server"
	"github.com/weirmq/weir/tests/crashfs"
)

// wire is a network of pipes with one address, so that virtual time can pass.
type wire struct {
	accepts chan net.Conn

	mu    sync.Mutex
	down  bool
	conns []net.Conn
	limit int // bytes that each new connection brings; 0: all
	rate  int // bytes a second that each new connection takes and brings; 0: any

	refused string // connections end at requests with this in them; empty: none do
}

func newWire() *wire { return &wire{accepts: make(chan net.Conn)} }

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	if w.down {
		return nil, refused
	}
	near, far := net.Pipe()
	select {
	case w.accepts <- far:
	case <-ctx.Done():
		return nil, refused
	}
	w.conns = append(w.conns, near, far)
	if w.limit > 0 {
		return &shortConn{near, w.limit}, nil
	}
	if w.rate > 0 {
		slow := &slowConn{Conn: near, rate: w.rate, closed: make(chan struct{})}
		w.conns = append(w.conns, slow)
		return slow, nil
	}
	return &pickyConn{near, w}, nil
}

// pickyConn ends at what its wire refuses.
type pickyConn struct {
	net.Conn
	wire *wire
}

func (c *pickyConn) Write(b []byte) (int, error) {
	c.wire.mu.Lock()
	refused := c.wire.refused
	c.wire.mu.Unlock()
	if refused != "" && bytes.Contains(b, []byte(refused)) {
		c.Close()
		return 0, errors.New("connection reset")
	}
	return c.Conn.Write(b)
}

// cut breaks all connections; none can be made until up.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// stop has the connections that there are bring and take nothing more.
func (w *wire) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if c, ok := c.(*slowConn); ok {
			c.stopped.Store(true)
		}
	}
}

func (w *wire) up() { w.set(func() { w.down = false }) }

func (w *wire) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// shortConn breaks after so many bytes.
type shortConn struct {
	net.Conn
	left int
}

func (c *shortConn) Read(b []byte) (int, error) {
	if c.left == 0 {
		c.Close()
		return 0, errors.New("connection reset")
	}
	n, err := c.Conn.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// slowConn takes and brings so many bytes a second. Whoever waits for that is let go when it is
// closed: a WebSocket that closes waits for them under a lock, and virtual time for the lock.
type slowConn struct {
	net.Conn
	rate    int
	stopped atomic.Bool
	closed  chan struct{}
	once    sync.Once
}

// slowBeat is how often some bytes get through.
const slowBeat = 50 * time.Millisecond

func (c *slowConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// some is as much of b as goes at once, once anything does.
func (c *slowConn) some(b []byte) []byte {
	if c.stopped.Load() {
		<-c.closed
	}
	return b[:min(len(b), max(1, c.rate/int(time.Second/slowBeat)))]
}

// took takes the time that n bytes take.
func (c *slowConn) took(n int) {
	select {
	case <-time.After(time.Duration(n) * time.Second / time.Duration(c.rate)):
	case <-c.closed:
	}
}

func (c *slowConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(c.some(b))
	c.took(n)
	return n, err
}

func (c *slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var wrote int
		wrote, err = c.Conn.Write(c.some(b[n:]))
		c.took(wrote)
		n += wrote
	}
	return n, err
}

// socket is a listener of a wire.
type socket struct {
	*wire
	closed chan struct{}
	once   sync.Once
}

func (w *wire) listen() *socket { return &socket{wire: w, closed: make(chan struct{})} }

func (s *socket) Accept() (net.Conn, error) {
	select {
	case c := <-s.accepts:
		return c, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

func (s *socket) Close() error   { s.once.Do(func() { close(s.closed) }); return nil }
func (s *socket) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4000} }

// upstream is a server that can be killed and started again.
type upstream struct {
	t     *testing.T
	wire  *wire
	fs    *crashfs.FS
	keys  string
	boots int

	eng    *engine.Engine
	l      *socket
	served chan error
}

const own = "the-relays-own-key"

func (u *upstream) start() {
	u.t.Helper()
	u.boots++
	eng, err := engine.Open(u.t.Context(), engine.Options{Dir: "/data", FS: u.fs, BootID: fmt.Sprint("boot ", u.boots), SegmentBytes: 256 << 10, DiskFlush: time.Hour, DiskReserve: -1})
	if err != nil {
		u.t.Fatal(err)
	}
	keys, err := server.ParseKeys(u.keys)
	if err != nil {
		u.t.Fatal(err)
	}
	s := server.New(server.Config{Limits: api.DefaultLimits(), Keys: keys}, server.Options{Version: "test"})
	s.SetEngine(eng)
	u.eng, u.l, u.served = eng, u.wire.listen(), make(chan error, 1)
	l := u.l
	go func() { u.served <- s.Serve(l) }()
	u.wire.up()
}

// kill ends the server; what was not synced is gone.
func (u *upstream) kill() {
	u.t.Helper()
	after := u.fs.CrashClone(vfs.CrashCloneCfg{})
	u.wire.cut()
	u.l.Close()
	<-u.served
	synctest.Wait()
	if err := u.eng.Close(); err != nil {
		u.t.Error(err)
	}
	u.fs = after
}

// place is an upstream, a relay in front of it, and a client of the relay.
type place struct {
	*upstream
	relay  *relay.Relay
	server *server.Server // of the relay
	client *http.Client
	front  *wire
}

// newPlace starts all that. keys are the upstream's, besides the relay's own; none: it has none.
func newPlace(t *testing.T, keys string, with ...func(*relay.Options)) *place {
	t.Helper()
	if keys != "" {
		keys += "," + own + ":r"
	}
	p := &place{upstream: &upstream{t: t, wire: newWire(), fs: crashfs.New(), keys: keys}, front: newWire()}
	p.start()
	opt := relay.Options{
		Upstream: "http://127.0.0.1:4001", Secret: "shared", BufferBytes: 1 << 20, OpenToAll: true,
		Limits: api.DefaultLimits(), MinHeartbeatMS: api.MinHeartbeatMS, Logger: slog.New(slog.DiscardHandler),
	}
	if keys != "" {
		opt.Key = own
	}
	for _, f := range with {
		f(&opt)
	}
	var err error
	if p.relay, err = relay.New(opt); err != nil {
		t.Fatal(err)
	}
	p.relay.DialWith(p.wire.dial)
	s := server.New(server.Config{Limits: opt.Limits}, server.Options{Version: "test", Relay: p.relay})
	p.server = s
	served := make(chan error, 1)
	l := p.front.listen()
	go func() { served <- s.Serve(l) }()
	p.client = &http.Client{Transport: &http.Transport{DialContext: p.front.dial}}
	t.Cleanup(func() {
		p.client.CloseIdleConnections()
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		p.front.cut()
		p.kill()
	})
	return p
}

// call makes a request of the relay.
func (p *place) call(key, method, path, body string) (status int, answer string) {
	p.t.Helper()
	resp := p.do(key, method, path, body, "")
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func (p *place) do(key, method, path, body, lastID string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, "http://127.0.0.1:4000"+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

// write appends n records to a topic at the upstream itself, each of so many bytes.
func (p *place) write(topic string, n, size int, class api.Durability) {
	p.t.Helper()
	cfg := api.DefaultConfig()
	cfg.Durability, cfg.DedupeNode = class, false
	for range n {
		req := &api.WriteRequest{Config: &cfg, Records: []api.Record{{Data: fmt.Appendf(nil, "%q", strings.Repeat("x", size))}}}
		if _, err := p.eng.Write(context.Background(), topic, req); err != nil {
			p.t.Fatal(err)
		}
	}
}

// watch makes a session of topics, which begin with their first records.
func (p *place) watch(key string, topics ...string) (path string) {
	p.t.Helper()
	all := map[string]any{}
	for _, name := range topics {
		all[name] = map[string]int{"from_seq": 0}
	}
	body, _ := json.Marshal(map[string]any{"topics": all})
	return p.session(key, string(body))
}

// session makes one.
func (p *place) session(key, body string) (path string) {
	p.t.Helper()
	status, answer := p.call(key, "POST", "/v0/watch", body)
	var made struct {
		URL string `json:"stream_url"`
	}
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusOK {
		p.t.Fatalf("watch: %d %s", status, answer)
	}
	return made.URL
}

// backlog reads a stream up to its first caught-up and returns the numbers of its records.
func (p *place) backlog(path string) (seqs []uint64) {
	p.t.Helper()
	resp := p.do("", "GET", path, "", "")
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan() && lines.Text() != "event: caught-up"; {
		var frame struct {
			Records []struct {
				Seq uint64 `json:"$seq"`
			} `json:"records"`
		}
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(data), &frame); err != nil {
			p.t.Fatalf("%s: %v", data, err)
		}
		for _, r := range frame.Records {
			seqs = append(seqs, r.Seq)
		}
	}
	return seqs
}

// listener reads one stream and checks that each topic's sequence is whole: every
// number comes once and in order, or is in a tombstone.
type listener struct {
	body  io.ReadCloser
	ended chan struct{}

	mu    sync.Mutex
	at    map[string]uint64
	gaps  []string
	other []string // events besides records, tombstones and caught-up
	wrong error
}

// listen opens a stream.
func (p *place) listen(key, path, lastID string) *listener {
	p.t.Helper()
	resp := p.do(key, "GET", path, "", lastID)
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		p.t.Fatalf("a stream is answered %d %s", resp.StatusCode, text)
	}
	l := &listener{body: resp.Body, ended: make(chan struct{}), at: map[string]uint64{}}
	p.t.Cleanup(func() { resp.Body.Close(); <-l.ended })
	return l
}

func (p *place) follow(key, path string) *listener {
	l := p.listen(key, path, "")
	go l.read()
	return l
}

func (l *listener) read() {
	defer close(l.ended)
	r := bufio.NewReader(l.body)
	event := ""
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(": "))
		switch string(name) {
		case "event":
			event = string(value)
		case "data":
			l.take(event, value)
		}
	}
}

func (l *listener) take(event string, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var f struct {
		Topic   string `json:"topic"`
		FromSeq uint64 `json:"from_seq"`
		ToSeq   uint64 `json:"to_seq"`
		HeadSeq uint64 `json:"head_seq"`
		GapFrom uint64 `json:"gap_from"`
		GapTo   uint64 `json:"gap_to"`
		Reason  string `json:"reason"`
		Records []struct {
			Seq uint64 `json:"$seq"`
		} `json:"records"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		l.wrong = fmt.Errorf("%s: %w", data, err)
		return
	}
	at := l.at[f.Topic]
	switch event {
	case "record":
		for _, r := range f.Records {
			if r.Seq != at+1 && l.wrong == nil {
				l.wrong = fmt.Errorf("%s: record %d comes behind %d", f.Topic, r.Seq, at)
			}
			at = r.Seq
		}
		if f.HeadSeq < at && l.wrong == nil {
			l.wrong = fmt.Errorf("%s: a frame up to %d says that the head is %d", f.Topic, at, f.HeadSeq)
		}
		if at != f.ToSeq && l.wrong == nil {
			l.wrong = fmt.Errorf("%s: a frame up to %d has records up to %d", f.Topic, f.ToSeq, at)
		}
		l.at[f.Topic] = at
	case "tombstone":
		l.gaps = append(l.gaps, fmt.Sprintf("%s %d-%d %s", f.Topic, f.GapFrom, f.GapTo, f.Reason))
		if f.Reason == "recreated" {
			l.at[f.Topic] = 0
			return
		}
		if f.HeadSeq < f.GapTo && l.wrong == nil {
			l.wrong = fmt.Errorf("%s: a tombstone up to %d says that the head is %d", f.Topic, f.GapTo, f.HeadSeq)
		}
		if f.GapFrom > at+1 && l.wrong == nil {
			l.wrong = fmt.Errorf("%s: a tombstone from %d comes behind %d", f.Topic, f.GapFrom, at)
		}
		l.at[f.Topic] = f.GapTo
	case "caught-up":
	default:
		l.other = append(l.other, event+" "+string(data))
	}
}

// reaches waits until the listener is at a number.
func (l *listener) reaches(t *testing.T, topic string, seq uint64, within time.Duration) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		l.mu.Lock()
		at, wrong := l.at[topic], l.wrong
		l.mu.Unlock()
		if wrong != nil {
			t.Fatal(wrong)
		}
		if at >= seq {
			return
		}
		if time.Since(begin) > within {
			t.Fatalf("a listener of %s is at %d, not %d, after %v", topic, at, seq, within)
		}
	}
}

// told are the tombstones.
func (l *listener) told() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.gaps)
}

// gap returns the first tombstone; none if there is none within so long.
func (l *listener) gap(within time.Duration) string {
	for begin := time.Now(); time.Since(begin) < within; time.Sleep(10 * time.Millisecond) {
		if gaps := l.told(); len(gaps) > 0 {
			return gaps[0]
		}
	}
	return ""
}

// over returns when the stream has ended, measured from begin; 0: it has not within so long.
func (l *listener) over(begin time.Time, within time.Duration) time.Duration {
	select {
	case <-l.ended:
		return time.Since(begin)
	case <-time.After(within):
		return 0
	}
}

// dialSocket opens a WebSocket at the relay, and subscribes to topics.
func (p *place) dialSocket(key string, topics ...string) (conn *websocket.Conn, ended <-chan struct{}) {
	p.t.Helper()
	h := http.Header{}
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
	conn, _, err := websocket.Dial(p.t.Context(), "http://127.0.0.1:4000/v0/ws", &websocket.DialOptions{HTTPClient: p.client, HTTPHeader: h})
	if err != nil {
		p.t.Fatal(err)
	}
	if len(topics) > 0 {
		all := map[string]any{}
		for _, name := range topics {
			all[name] = map[string]any{}
		}
		msg, _ := json.Marshal(map[string]any{"op": "subscribe", "topics": all})
		if err := conn.Write(p.t.Context(), websocket.MessageText, msg); err != nil {
			p.t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, _, err := conn.Read(context.Background()); err != nil {
				return
			}
		}
	}()
	p.t.Cleanup(func() { conn.CloseNow(); <-done })
	return conn, done
}
