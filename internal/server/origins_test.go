package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func TestListsOfOriginsThatMatchNoPageAreRefused(t *testing.T) {
	for list, want := range map[string]string{
		"app.example":             "is no origin",
		"https://app.example/":    "without a path",
		"https://*.example":       "wildcard",
		"https://u:p@app.example": "is no origin",
		"https://app.example?x":   "is no origin",
		"null":                    "is no origin",
		"https://App.example":     "small letters",
		"https://bücher.example":  "ASCII",
		"https://app.example:443": "leave out the port",
		"http://localhost:80":     "leave out the port",
		"*":                       "without keys",
	} {
		if err := CheckOrigins([]string{"https://good.example", list}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", list, err, want)
		}
	}
	if err := CheckOrigins([]string{"http://localhost:3000", "https://app.example:8443", "http://[::1]:80", "capacitor://localhost", "*"}[3:], true); err != nil {
		t.Error(err)
	}
	if err := CheckOrigins([]string{"http://localhost:3000", "https://app.example:8443"}, false); err != nil {
		t.Error(err)
	}
}

const listedPage = "https://app.example"

func serveListed(t *testing.T, change func(*Config)) *testServer {
	return serveEngine(t, func(c *Config) {
		c.Keys, c.CORSOrigins = parseKeys(t, "root,ro:r"), []string{listedPage}
		if change != nil {
			change(c)
		}
	})
}

// Whatever goes wrong, the page that asks can read it.
func TestEveryErrorCanBeReadByAListedPage(t *testing.T) {
	s := serveListed(t, func(c *Config) { c.Limits.MaxInflightPerKey, c.Limits.MaxBodyBytes = 1, 1000 })
	ask := func(key, method, path, body string, status int) {
		t.Helper()
		r := s.ask(method, path, body, header{"Origin": listedPage, "Authorization": "Bearer " + key})
		if r.status != status || r.header.Get("Access-Control-Allow-Origin") != listedPage || !strings.Contains(r.header.Get("Vary"), "Origin") {
			t.Errorf("%s %s: %d %v %s, want %d", method, path, r.status, r.header, r.body, status)
		}
	}
	ask("wrong", "GET", "/v0/topics", "", 401)
	ask("ro", "DELETE", "/v0/topics/a", "", 403)
	ask("root", "GET", "/v0/nothing", "", 404)
	ask("root", "PATCH", "/v0/watch", "", 405)
	ask("root", "POST", "/v0/topics/a", `{"records":[{"data":"`+strings.Repeat("x", 1000)+`"}]}`, 413)
	k := s.keys.list[0]
	k.inflight.take(1, 1)
	ask("root", "GET", "/v0/topics", "", 429)
	k.inflight.give(1)
	s.Drain()
	ask("root", "GET", "/v0/topics", "", 503)
	r := s.ask("OPTIONS", "/v0/topics", "", header{"Origin": listedPage, "Access-Control-Request-Method": "GET"})
	if r.status != 204 {
		t.Errorf("a preflight while the server drains: %d", r.status)
	}
}

// Browsers send the cookie of the dashboard to every port of its host.
func TestACookieCountsForNoOtherOrigin(t *testing.T) {
	s := serveListed(t, nil)
	r := s.ask("POST", "/ui/session", `{"key":"root"}`, nil)
	cookie, _, _ := strings.Cut(r.header.Get("Set-Cookie"), ";")
	for _, c := range []struct {
		head header
		want int
	}{
		{header{}, 200},
		{header{"Sec-Fetch-Site": "same-origin"}, 200},
		{header{"Sec-Fetch-Site": "none"}, 200},
		{header{"Origin": "http://" + s.addr}, 200},
		{header{"Origin": listedPage}, 401},
		{header{"Origin": "http://127.0.0.1:1"}, 401},
		{header{"Origin": listedPage, "Sec-Fetch-Site": "cross-site"}, 401},
		{header{"Sec-Fetch-Site": "same-site"}, 401},
	} {
		c.head["Cookie"] = cookie
		if r := s.ask("GET", "/v0/topics", "", c.head); r.status != c.want {
			t.Errorf("%v: %d, want %d", c.head, r.status, c.want)
		}
	}
	r = s.ask("PUT", "/v0/topics/a", "{}", header{"Cookie": cookie, "Origin": listedPage})
	s.want(r, 401, "unauthorized")
}

func TestALoneKeyAmongTheProtocolsOpensASocketToo(t *testing.T) {
	s := serveListed(t, nil)
	dial := func(words ...string) (*websocket.Conn, *http.Response, error) {
		return websocket.Dial(t.Context(), "ws://"+s.addr+"/v0/ws", &websocket.DialOptions{Subprotocols: words, HTTPHeader: http.Header{"Origin": {listedPage}}})
	}
	conn, _, err := dial("weir.token.ro", "weir")
	if err != nil {
		t.Fatal(err)
	}
	if conn.Subprotocol() != "weir" {
		t.Errorf("the protocol is %q", conn.Subprotocol())
	}
	_ = conn.CloseNow()
	if _, r, err := dial("weir", "weir.token.no"); err == nil || r.StatusCode != 401 {
		t.Errorf("a wrong key: %v", err)
	}
	if _, r, err := dial("weir"); err == nil || r.StatusCode != 401 {
		t.Errorf("no key: %v", err)
	}
}

// What a socket was dealt and never told of goes back, when its client goes and when the
// server stops.
func TestJobsThatASocketWasNotToldOfGoBack(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2}],"config":{"type":"queue"}}`, nil)
	k := &socket{s: s.Server, eng: s.engine.Load(), ctx: context.Background(), more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	k.handle(t.Context(), []byte(`{"op":"claim","topic":"q","node":"n","max":2,"lease_ms":60000}`))
	if r := s.ask("POST", "/v0/topics/q/claim", `{"node":"m"}`, nil); !strings.Contains(r.body, `"count":0`) {
		t.Fatalf("the jobs are not leased: %s", r.body)
	}
	k.takeBack()
	if r := s.ask("POST", "/v0/topics/q/claim", `{"node":"m","max":2}`, nil); !strings.Contains(r.body, `"count":2`) || strings.Contains(r.body, `"deliveries":2`) {
		t.Errorf("the jobs are not back, uncounted: %s", r.body)
	}
}

func TestClaimsOfASocketEndWithTheServer(t *testing.T) {
	s := serveEngine(t, nil)
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue"}`, nil)
	c := s.socket(nil)
	for range socketClaims {
		c.say(`{"op":"claim","topic":"q","node":"n","wait_ms":30000}`)
	}
	c.say(`{"op":"ping"}`)
	c.want(`"op":"pong"`)
	stopped := make(chan struct{})
	go func() { s.Stop(); close(stopped) }()
	for {
		if _, _, err := c.conn.Read(c.ctx); err != nil {
			var closed websocket.CloseError
			if !errors.As(err, &closed) || closed.Code != websocket.StatusGoingAway {
				t.Errorf("the socket ended with %v", err)
			}
			break
		}
	}
	<-stopped
}

// A claim that waits counts as a request of its key, and ends with the key's place.
func TestClaimsThatWaitCountForTheirKey(t *testing.T) {
	s := serveListed(t, func(c *Config) { c.Limits.MaxInflightPerKey = 1 })
	s.want(s.ask("PUT", "/v0/topics/q", `{"type":"queue"}`, header{"Authorization": "Bearer root"}), 201, "")
	c := s.socket(header{"Authorization": "Bearer root"})
	c.say(`{"op":"claim","topic":"q","node":"n","wait_ms":30000,"request_id":1}`)
	c.say(`{"op":"claim","topic":"q","node":"n","wait_ms":30000,"request_id":2}`)
	c.want(`"request_id":2`, `"code":"throttled"`, `max_inflight_per_key`)
	c.say(`{"op":"publish","topic":"q","records":[{"data":1}]}`)
	c.want(`"op":`)
	c.want(`"op":`)
	c.say(`{"op":"claim","topic":"q","node":"n","wait_ms":1,"max":2,"request_id":3}`)
	c.want(`"op":"claimed"`, `"request_id":3`)
}
