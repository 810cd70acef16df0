package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/tests/stall"
)

// webSocket is a client of a WebSocket.
type webSocket struct {
	t    *testing.T
	ctx  context.Context
	conn *websocket.Conn
}

// socket connects; the test's end closes the connection.
func (s *testServer) socket(head header) *webSocket {
	s.t.Helper()
	return s.socketBy(http.DefaultClient, head)
}

// deafSocket opens one whose kernel takes little that is not read: how much it would take
// otherwise is each machine's own.
func (s *testServer) deafSocket() *webSocket {
	s.t.Helper()
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return c, c.(*net.TCPConn).SetReadBuffer(4096)
	}
	return s.socketBy(&http.Client{Transport: &http.Transport{DialContext: dial}}, nil)
}

func (s *testServer) socketBy(client *http.Client, head header) *webSocket {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	h := http.Header{}
	for k, v := range head {
		h.Set(k, v)
	}
	conn, _, err := websocket.Dial(ctx, "ws://"+s.addr+"/v0/ws", &websocket.DialOptions{HTTPClient: client, HTTPHeader: h})
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	s.t.Cleanup(func() { _ = conn.CloseNow() })
	return &webSocket{t: s.t, ctx: ctx, conn: conn}
}

func (c *webSocket) say(text string) {
	c.t.Helper()
	if err := c.conn.Write(c.ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// want reads one message, which has to hold all parts.
func (c *webSocket) want(parts ...string) {
	c.t.Helper()
	_, msg, err := c.conn.Read(c.ctx)
	if err != nil {
		c.t.Fatalf("%v instead of %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(string(msg), part) {
			c.t.Fatalf("%s lacks %s", msg, part)
		}
	}
}

func TestASocketSubscribesPublishesAndUnsubscribes(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "POST", "/v0/topics/a", `{"records":[{"data":1}]}`, nil)
	sub, pub := s.socket(nil), s.socket(nil)
	sub.say(`{"op":"subscribe","request_id":{"k":1},"topic":"a"}`)
	sub.want(`"op":"subscribed"`, `"request_id":{"k":1}`, `"topics":{"a":{"from_seq":0,"head_seq":1,"earliest_seq":1}}`)
	sub.want(`"op":"record"`, `"data":1`)
	sub.want(`"op":"caught_up"`, `"head_seq":1`)
	pub.say(`{"op":"publish","request_id":"p","topic":"a","records":[{"data":2}],"return_seqs":false}`)
	pub.want(`"op":"ack"`, `"request_id":"p"`, `"first_seq":2`, `"seqs":null`, `"count":1`, `"performance":{`)
	sub.want(`"op":"record"`, `"from_seq":1`, `"data":2`)
	sub.want(`"op":"caught_up"`)
	sub.say(`{"op":"unsubscribe","request_id":3,"topics":["a","never"]}`)
	sub.want(`"op":"unsubscribed"`, `"request_id":3`, `"topics":["a","never"]`)
	pub.say(`{"op":"publish","topic":"a","records":[{"data":3}]}`)
	pub.want(`"op":"ack"`, `"request_id":null`, `"seqs":[3]`)
	sub.say(`{"op":"ping","request_id":4}`)
	sub.want(`{"op":"pong","request_id":4}`)
	if err := sub.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("closing: %v", err)
	}
}

func TestErrorsLeaveASocketOpen(t *testing.T) {
	s := serveEngine(t, nil)
	c := s.socket(nil)
	for text, code := range map[string]string{
		`{`:                               "invalid_json",
		`{"op":"fly","request_id":1}`:     "invalid_json",
		`{"op":"subscribe"}`:              "invalid_request",
		`{"op":"subscribe","topic":"no"}`: "topic_not_found",
		`{"op":"publish","topic":"a","records":[]}`:                          "invalid_request",
		`{"op":"publish","topic":"a","create":false,"records":[{"data":1}]}`: "topic_not_found",
	} {
		c.say(text)
		c.want(`"op":"error"`, `"code":"`+code+`"`)
	}
	if err := c.conn.Write(c.ctx, websocket.MessageBinary, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	c.want(`"code":"unsupported_message"`, `"request_id":null`)
	if s.inflight.n.Load() != 0 {
		t.Errorf("%d bytes stay reserved", s.inflight.n.Load())
	}
}

func TestAMessageAboveTheBodyLimitClosesTheSocket(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxBodyBytes = 10_000 })
	c := s.socket(nil)
	c.say(`{"op":"ping","x":"` + strings.Repeat("x", 9_978) + `"}`)
	c.want(`"op":"pong"`)
	c.say(`{"op":"ping","x":"` + strings.Repeat("x", 9_982) + `"}`)
	_, _, err := c.conn.Read(c.ctx)
	var closed websocket.CloseError
	if !errors.As(err, &closed) || closed.Code != websocket.StatusMessageTooBig {
		t.Errorf("got %v, want a close with 1009", err)
	}
}

func TestASocketHasNoMoreRightsThanItsKey(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,r:r,w:w:in,rwa:rw+a:in") })
	with := func(key string) *webSocket { return s.socket(header{"Authorization": "Bearer " + key}) }
	s.want(s.ask("GET", "/v0/ws", "", nil), 401, "unauthorized")
	s.want(s.ask("GET", "/v0/ws?token=al", "", nil), 401, "unauthorized")
	all, r, w, rwa := with("all"), with("r"), with("w"), with("rwa")
	all.say(`{"op":"publish","topic":"in.a","records":[{"data":1}],"config":{"cap_records":5}}`)
	all.want(`"op":"ack"`, `"created":true`)
	r.say(`{"op":"publish","topic":"in.a","records":[{"data":1}]}`)
	r.want(`"code":"forbidden"`)
	w.say(`{"op":"subscribe","topic":"in.a"}`)
	w.want(`"code":"forbidden"`)
	w.say(`{"op":"publish","topic":"out","records":[{"data":1}]}`)
	w.want(`"code":"forbidden"`, `"topic":"out"`)
	w.say(`{"op":"publish","topic":"in.a","records":[{"data":1}],"config":{}}`)
	w.want(`"code":"forbidden"`)
	w.say(`{"op":"publish","topic":"in.a","records":[{"data":2}]}`)
	w.want(`"op":"ack"`)
	rwa.say(`{"op":"subscribe","topics":{"in.a":{},"out":{}}}`)
	rwa.want(`"code":"forbidden"`)
	rwa.say(`{"op":"publish","topic":"in.q","records":[{"data":1}],"config":{"type":"queue","dead_letter":"out"}}`)
	rwa.want(`"code":"forbidden"`)
	r.say(`{"op":"subscribe","topic":"in.a","tail":true}`)
	r.want(`"op":"subscribed"`)
}

func TestOnlyAHandshakeOfTheRightOriginOpensASocket(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.AllowedHosts = []string{"friend.example"} })
	s.want(s.ask("GET", "/v0/ws", "", nil), 400, "invalid_request")
	if r := s.ask("HEAD", "/v0/ws", "", nil); r.status != 400 && r.status != 405 {
		t.Errorf("HEAD: %d", r.status)
	}
	shake := header{"Connection": "keep-alive, Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
	for _, origin := range []string{"http://evil.example", "null", "http://127.0.0.1:1"} {
		shake["Origin"] = origin
		s.want(s.ask("GET", "/v0/ws", "", shake), 403, "forbidden")
	}
	for _, origin := range []string{"http://" + s.addr, "https://friend.example"} {
		c := s.socket(header{"Origin": origin})
		c.say(`{"op":"ping"}`)
		c.want(`"op":"pong"`)
	}
}

func TestStoppingTellsEverySocket(t *testing.T) {
	s := serveEngine(t, nil)
	c := s.socket(nil)
	c.say(`{"op":"ping"}`)
	c.want(`"op":"pong"`)
	stopped := make(chan struct{})
	begin, stalled := time.Now(), stall.Watch()
	go func() { s.Stop(); close(stopped) }()
	c.want(`"op":"error"`, `"code":"server_shutting_down"`)
	if _, _, err := c.conn.Read(c.ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("got %v, want the close of a server that goes away", err)
	}
	<-stopped
	if took := time.Since(begin); took > 9*time.Second+stalled() {
		t.Error("stopping takes as long as if the socket had not ended")
	}
}

func TestASocketThatReadsNothingStopsBeingRead(t *testing.T) {
	s := serveEngine(t, nil)
	c := s.socket(nil)
	id := strings.Repeat("x", 1<<20)
	sent := make(chan int, 1)
	ctx, cancel := context.WithCancel(c.ctx)
	go func() {
		n := 0
		for c.conn.Write(ctx, websocket.MessageText, []byte(`{"op":"ping","request_id":"`+id+`"}`)) == nil {
			n++
			if n == 200 {
				break
			}
		}
		sent <- n
	}()
	select {
	case n := <-sent:
		t.Errorf("the server took %d MiB of messages while nobody read its answers", n)
	case <-time.After(time.Second):
	}
	cancel()
	<-sent
}

// Half a message takes room that others need, so it has to go on.
func TestAMessageThatStallsEndsItsSocket(t *testing.T) {
	t.Parallel()
	s := serveEngine(t, func(c *Config) { c.Limits.MaxInflightBytes = 100_000 })
	c := s.socket(nil)
	w, err := c.conn.Writer(c.ctx, websocket.MessageText)
	if err == nil {
		_, err = io.WriteString(w, `{"op":"ping","x":"`+strings.Repeat("x", 30_000))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.eventually(func() bool { return s.inflight.n.Load() > 60_000 })
	s.want(s.ask("POST", "/v0/topics/a", `{"records":[{"data":"`+strings.Repeat("y", 50_000)+`"}]}`, nil), 429, "throttled")
	stalled, begin := stall.Watch(), time.Now()
	s.eventually(func() bool { return s.inflight.n.Load() == 0 })
	if took := time.Since(begin); took > 13*time.Second+stalled() {
		t.Errorf("the room comes back after %v", took)
	}
}

// What is too much is skipped at any speed, and holds nothing.
func TestAMessageThatFindsNoRoomHoldsNone(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Limits.MaxInflightBytes = 30_000 })
	c := s.socket(nil)
	w, err := c.conn.Writer(c.ctx, websocket.MessageText)
	if err == nil {
		_, err = io.WriteString(w, `{"op":"ping","x":"`+strings.Repeat("x", 40_000))
	}
	if err != nil {
		t.Fatal(err)
	}
	s.expect(201, "POST", "/v0/topics/a", `{"records":[{"data":"`+strings.Repeat("y", 5_000)+`"}]}`, nil)
	s.eventually(func() bool { return s.inflight.n.Load() == 0 })
	if _, err := io.WriteString(w, `"}`); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	c.want(`"limit":"max_inflight_bytes"`)
}
