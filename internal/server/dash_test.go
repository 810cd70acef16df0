package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/internal/board"
	"github.com/weirmq/weir/internal/dash"
	"github.com/weirmq/weir/internal/webhook"
	"github.com/weirmq/weir/tests/bubble"
)

// What the page loads is there, is the server's own, and is small.
func TestThePageLoadsItsOwnFilesOnly(t *testing.T) {
	s := serveTest(t, func(c *Config) { c.Keys = parseKeys(t, "k:r") })
	seen, todo, size := map[string]bool{"/": true}, []string{"/"}, 0
	named := regexp.MustCompile(`(?:src|href|from|import)[=( ]*"(/[^"#]*)"`)
	for len(todo) > 0 {
		r := s.ask("GET", todo[0], "", nil)
		if r.status != 200 || !strings.Contains(r.header.Get("Content-Security-Policy"), "default-src 'none'") || r.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Fatalf("%s: %d %v", todo[0], r.status, r.header)
		}
		packed := s.ask("GET", todo[0], "", header{"Accept-Encoding": "gzip"})
		size += len(packed.body)
		if again := s.ask("GET", todo[0], "", header{"If-None-Match": r.header.Get("ETag")}); again.status != http.StatusNotModified {
			t.Errorf("%s is sent again: %d", todo[0], again.status)
		}
		if strings.Contains(r.body, "https://") || strings.Contains(r.body, "style=") || strings.Contains(r.body, "innerHTML") {
			t.Errorf("%s names another host, or has what its policy forbids", todo[0])
		}
		for _, m := range named.FindAllStringSubmatch(r.body, -1) {
			if !seen[m[1]] {
				seen[m[1]] = true
				todo = append(todo, m[1])
			}
		}
		todo = todo[1:]
	}
	if len(seen) < 9 || size > 150<<10 {
		t.Errorf("the page is %d files of %d bytes: %v", len(seen), size, seen)
	}
}

// A session counts as its key where a page of the server asks, and nowhere else.
func TestABrowserSignsInAndOut(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "secret:rw:in.,other") })
	s.want(s.ask("POST", "/ui/session", `{"key":"wrong"}`, nil), 401, "unauthorized")
	s.want(s.ask("POST", "/ui/session", `{"key":7}`, nil), 400, "invalid_request")
	r := s.ask("POST", "/ui/session", `{"key":"secret"}`, nil)
	c, err := http.ParseSetCookie(r.header.Get("Set-Cookie"))
	if err != nil || r.status != 204 || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.MaxAge <= 0 || strings.Contains(c.Value, "secret") {
		t.Fatalf("%d %v %v", r.status, r.header, err)
	}
	cookie := c.Name + "=" + c.Value
	body := `{"records":[{"data":1}]}`
	own := "http://" + s.addr
	for name, c := range map[string]struct {
		method, target, body string
		head                 header
		want                 int
	}{
		"reading":                     {"GET", "/v0/topics", "", nil, 200},
		"changing without an origin":  {"POST", "/v0/topics/in.x", body, nil, 401},
		"changing from its own page":  {"POST", "/v0/topics/in.x", body, header{"Origin": own}, 200},
		"the same, said by a browser": {"POST", "/v0/topics/in.x", body, header{"Sec-Fetch-Site": "same-origin", "Origin": own}, 200},
		"changing from another page":  {"POST", "/v0/topics/in.x", body, header{"Origin": "http://evil.example"}, 403},
		"from a sibling":              {"POST", "/v0/topics/in.x", body, header{"Sec-Fetch-Site": "same-site"}, 403},
		"beyond its prefix":           {"POST", "/v0/topics/out.x", body, header{"Origin": own}, 403},
		"a wrong key beside it":       {"GET", "/v0/topics", "", header{"Authorization": "Bearer no"}, 401},
		"history beyond its prefix":   {"GET", "/ui/history/out.x", "", nil, 403},
		"history of nothing":          {"GET", "/ui/history/in.none", "", nil, 404},
	} {
		head := header{"Cookie": cookie}
		for k, v := range c.head {
			head[k] = v
		}
		if r := s.ask(c.method, c.target, c.body, head); r.status != c.want && (c.want != 200 || r.status != 201) {
			t.Errorf("%s: %d, want %d: %s", name, r.status, c.want, r.body)
		}
	}
	s.want(s.ask("GET", "/v0/topics", "", header{"Cookie": c.Name + "=nothing"}), 401, "unauthorized")
	live := s.stream(&http.Transport{}, "/ui/live", header{"Cookie": cookie})
	if r := s.ask("DELETE", "/ui/session", "", header{"Cookie": cookie}); r.status != 204 {
		t.Errorf("signing out: %d %s", r.status, r.body)
	}
	for live.block() != "" {
		continue // the stream of the session ends with it
	}
	s.want(s.ask("GET", "/v0/topics", "", header{"Cookie": cookie}), 401, "unauthorized")
}

// Nobody stays signed in for ever.
func TestASessionEndsByItself(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var all sessions
		id := all.open(&apiKey{})
		r := httptest.NewRequest("GET", "/", nil)
		r.AddCookie(&http.Cookie{Name: sessionCookie, Value: id})
		s, ok := all.find(r)
		if !ok || s.life.Err() != nil {
			t.Errorf("a new session: %v %v", ok, s.life.Err())
		}
		time.Sleep(sessionLasts)
		synctest.Wait()
		if _, ok := all.find(r); ok || s.life.Err() == nil {
			t.Errorf("a session is open after %v: %v", sessionLasts, s.life.Err())
		}
		all.close(id)
	})
}

// However often somebody has signed in, the next one can, and is not signed out by the one after.
func TestManySignInsKeepNobodyOut(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var all sessions
		one, two, three := &apiKey{name: "one"}, &apiKey{name: "two"}, &apiKey{name: "three"}
		find := func(id string) (session, bool) {
			r := httptest.NewRequest("GET", "/", nil)
			r.AddCookie(&http.Cookie{Name: sessionCookie, Value: id})
			return all.find(r)
		}
		has := func(id string) bool {
			_, ok := find(id)
			return ok
		}
		count := func() int {
			synctest.Wait() // those that have ended go by themselves
			all.mu.Lock()
			defer all.mu.Unlock()
			return len(all.all)
		}
		open := func(k *apiKey) string {
			time.Sleep(time.Millisecond)
			return all.open(k)
		}
		person := open(two)
		first := open(one)
		begun, _ := find(first)
		for range 2 * maxSessions {
			open(one)
		}
		if has(first) || begun.life.Err() == nil {
			t.Error("the oldest sign-in of the key goes on")
		}
		if !has(person) {
			t.Error("the sign-ins of one key have ended that of another")
		}
		late := open(three)
		if !has(late) || has(person) {
			t.Error("of a key that has none, the oldest of all makes room")
		}
		if n := count(); n != maxSessions {
			t.Errorf("%d sign-ins", n)
		}
		time.Sleep(sessionLasts + time.Second)
		if n := count(); n != 0 {
			t.Errorf("%d are left after their time", n)
		}
	})
}

// The lag card shows a dash until a worker asks, and then what it holds; whoever may see
// some names sees those alone.
func TestTheDashboardIsLive(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,some:r:in.") })
	all := header{"Authorization": "Bearer all"}
	for _, name := range []string{"in.q", "out.q"} {
		s.ask("POST", "/v0/topics/"+name, `{"records":[{"data":1},{"data":2}],"config":{"type":"queue"}}`, all)
	}
	live := s.stream(&http.Transport{}, "/ui/live", header{"Authorization": "Bearer some"})
	next := func(ok func(dash.Stream) bool) dash.State {
		t.Helper()
		for {
			_, data, _ := live.event()
			if data == "" {
				continue
			}
			var state dash.State
			if err := json.Unmarshal([]byte(data), &state); err != nil {
				t.Fatalf("%v: %s", err, data)
			}
			if len(state.Streams) == 1 && ok(state.Streams[0]) {
				return state
			}
		}
	}
	off := next(func(d dash.Stream) bool { return d.Lag != nil && *d.Lag == 2 })
	if d := off.Streams[0]; d.Name != "in.q" || d.Signal != nil || len(off.Findings) != 1 || off.Findings[0].Stream != "in.q" || off.LagPause != 200 {
		t.Errorf("without a worker: %+v", off)
	}
	s.ask("POST", "/v0/topics/in.q/claim", `{"node":"w"}`, all)
	on := next(func(d dash.Stream) bool { return d.Signal != nil })
	if d := on.Streams[0]; *d.Signal != 1 || *d.Lag != 1 || d.OldestMS == nil || len(on.Findings) != 0 {
		t.Errorf("with a worker: %+v", on)
	}
}

// A job that is not due is nobody's wait: the age that is shown is that of the others, whatever
// was written first.
func TestTheDashboardCountsNoAgeOfJobsThatAreNotDue(t *testing.T) {
	s := serveEngine(t, nil)
	const path, later = "/v0/topics/jobs", `{"records":[{"data":1,"delay_ms":3600000}]`
	age := func() *int64 {
		t.Helper()
		got, err := s.readDash(t.Context())
		if err != nil || len(got.Streams) != 1 {
			t.Fatalf("%d streams, %v", len(got.Streams), err)
		}
		return got.Streams[0].OldestMS
	}
	s.ask("POST", path, later+`,"config":{"type":"queue"}}`, nil)
	if ms := age(); ms != nil {
		t.Errorf("with a job for later alone, the oldest has waited for %d ms", *ms)
	}
	s.ask("POST", path, `{"records":[{"data":2}]}`, nil)
	if age() == nil {
		t.Error("a job waits, and its age is not known")
	}
	s.ask("POST", path+"/claim", `{"node":"w"}`, nil)
	if ms := age(); ms != nil {
		t.Errorf("nothing waits but the job for later, and the oldest has waited for %d ms", *ms)
	}
}

// Once a job for later is due its age counts from then, as /metrics has it.
func TestTheDashboardCountsTheAgeOfAJobForLaterFromItsTime(t *testing.T) {
	const delay = 1000
	s := serveEngine(t, nil)
	written := time.Now().UnixMilli()
	s.ask("POST", "/v0/topics/jobs", fmt.Sprintf(`{"records":[{"data":1,"delay_ms":%d}],"config":{"type":"queue"}}`, delay), nil)
	var d dash.Stream
	s.eventually(func() bool {
		got, err := s.readDash(t.Context())
		if err != nil || len(got.Streams) != 1 {
			t.Fatalf("%d streams, %v", len(got.Streams), err)
		}
		d = got.Streams[0]
		return *d.Lag == 1
	})
	if d.OldestMS == nil {
		t.Fatal("a job waits, and its age is not known")
	}
	if since := time.Now().UnixMilli() - *d.OldestMS; since < written+delay-2 { // two clocks in whole ms
		t.Errorf("it waits since %d ms after it was written, and was for %d ms later", since-written, delay)
	}
}

// With more topics than it reads, the dashboard has the queues that wait, and what died of them.
func TestTheDashboardOfManyTopicsHasTheQueuesThatWait(t *testing.T) {
	s := serveEngine(t, nil)
	for i := range maxDashTopics {
		s.ask("POST", fmt.Sprintf("/v0/topics/a%d", i), `{"records":[{"data":1},{"data":2}]}`, nil)
	}
	s.ask("POST", "/v0/topics/z.dead", `{"records":[{"data":1}]}`, nil)
	s.ask("POST", "/v0/topics/z.jobs", `{"records":[{"data":1},{"data":2},{"data":3}],"config":{"type":"queue","dead_letter":"z.dead"}}`, nil)
	got, err := s.readDash(t.Context())
	if err != nil || !got.More || len(got.Streams) != maxDashTopics {
		t.Fatalf("%d streams, more: %v, %v", len(got.Streams), got.More, err)
	}
	i := slices.IndexFunc(got.Streams, func(d dash.Stream) bool { return d.ID == "z.jobs" })
	if i < 0 {
		t.Fatal("a queue with jobs is not there, but logs in which nothing waits are")
	}
	if d := got.Streams[i]; *d.Lag != 3 || *d.Dead != 1 || d.OldestMS == nil {
		t.Errorf("%d wait, %d are dead, the oldest: %v", *d.Lag, *d.Dead, d.OldestMS)
	}
	for i := range maxDashTopics {
		name := fmt.Sprintf("a%d", i)
		if slices.ContainsFunc(got.Streams, func(d dash.Stream) bool { return d.ID == name }) {
			continue
		}
		if r := s.ask("GET", "/ui/history/"+name, "", nil); r.status != 404 || !strings.Contains(r.body, "busiest") {
			t.Errorf("the history of a topic that is not read: %d %s", r.status, r.body)
		}
		return
	}
	t.Error("every log is there")
}

// A topic's page says who holds what, shows the beginning of what is large and what is no
// text, and leaves out routers that the key may not see.
func TestThePageOfATopicShowsWhoHoldsWhat(t *testing.T) {
	s := serveEngine(t, func(c *Config) { c.Keys = parseKeys(t, "all,some:r:in.") })
	all, some := header{"Authorization": "Bearer all"}, header{"Authorization": "Bearer some"}
	large, _ := json.Marshal(strings.Repeat("ü", 3000))
	s.ask("POST", "/v0/topics/in.q", `{"records":[{"data":{"n":1}},{"data":`+string(large)+`},{"data":"AP8=","meta":{"weir-encoding":"base64"}}],"config":{"type":"queue"}}`, all)
	s.ask("POST", "/v0/topics/in.q/claim", `{"node":"w1","max":2}`, all)
	for name, ends := range map[string]string{"in.r": `"source":"in.q","dest":"in.copy"`, "in.s": `"source":"in.copy","dest":"in.end"`, "in.t": `"source":"in.copy","dest":"out.x"`, "in.far": `"source":"in.a","dest":"in.b"`} {
		if r := s.ask("PUT", "/v0/routers/"+name, "{"+ends+`,"create_dest":true}`, all); r.status != 201 && name != "in.far" {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	read := func(head header) (d board.Detail) {
		t.Helper()
		r := s.ask("GET", "/ui/streams/in.q", "", head)
		if err := json.Unmarshal([]byte(r.body), &d); err != nil || r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		return d
	}
	d := read(some)
	if r := s.ask("GET", "/ui/streams/in.copy", "", all); r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	if r := s.ask("GET", "/v0/topics/in.copy?touch=false", "", all); !strings.Contains(r.body, `"last_read_ts":null`) {
		t.Errorf("looking at a topic counts as reading it: %s", r.body)
	}
	if len(d.Workers) != 1 || d.Workers[0].Name != "w1" || d.Workers[0].Holds != 2 || len(d.Held) != 2 || d.Held[0].ID != "1" || d.Held[0].Deliveries != 1 || *d.Held[0].LeaseMS <= 0 {
		t.Errorf("workers %+v hold %+v", d.Workers, d.Held)
	}
	if len(d.Records) != 3 || d.Records[0].Data != nil || string(d.Records[0].Base64) != "\x00\xff" || !d.Records[1].Cut || d.Records[1].Bytes != 6000 || *d.Records[1].Data != strings.Repeat("ü", 1000) {
		t.Errorf("records %+v", d.Records)
	}
	if len(d.Routers) != 2 || len(read(all).Routers) != 3 {
		t.Errorf("routers %+v and %+v", d.Routers, read(all).Routers)
	}
}

// A webhook that fails is found as workers that are missing are.
func TestTheDashboardNamesAWebhookThatFails(t *testing.T) {
	var mended atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !mended.Load() {
			w.WriteHeader(http.StatusGone)
		}
	}))
	defer receiver.Close()
	s := serveEngine(t, func(c *Config) {
		c.Webhooks.On, c.Webhooks.Reach = true, webhook.Reach{HTTP: true, Private: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	})
	defer s.hooks.Stop(0)
	s.expect(201, "PUT", "/v0/topics/q", `{"type":"queue"}`, nil)
	put := func(status int) {
		if r := s.ask("PUT", "/v0/webhooks/w", `{"topic":"q","concurrency":8,"url":"`+receiver.URL+`"}`, nil); r.status != status {
			t.Fatal(r.status, r.body)
		}
	}
	put(201)
	s.expect(200, "POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2},{"data":3},{"data":4},{"data":5}]}`, nil)
	live := s.stream(&http.Transport{}, "/ui/live", nil)
	says := func(want bool) {
		t.Helper()
		for range 20 {
			_, data, _ := live.event()
			if strings.Contains(data, `"stream":"q","what":"1 webhook of it fails`) == want && data != "" {
				return
			}
		}
		t.Errorf("the dashboard says that a webhook fails: %v, want %v", !want, want)
	}
	says(true)
	mended.Store(true)
	put(200)
	says(false)
}

// What is refused is counted by reason and by priority, and its share is of what came.
func TestTheDashboardSaysWhatIsRefusedAndWhy(t *testing.T) {
	s := serveEngine(t, nil)
	s.ask("PUT", "/v0/topics/q", `{"type":"queue","wait_slo_ms":1000,"cap_records":2,"discard":"reject"}`, nil)
	live := s.stream(&http.Transport{}, "/ui/live", nil)
	for n := 0; ; n++ {
		s.ask("POST", "/v0/topics/q", `{"records":[{"data":1},{"data":2}]}`, nil)
		_, data, _ := live.event()
		var state dash.State
		if data == "" || json.Unmarshal([]byte(data), &state) != nil || len(state.Streams) == 0 {
			continue
		}
		d := state.Streams[0]
		if d.Control == nil || len(d.Control.Tiers) != 6 || d.Control.Tiers[0].Name != "critical" {
			t.Fatalf("%s", data)
		}
		if d.RefusedBy["queue_full"] > 0 {
			break
		}
		if n > 20 {
			t.Fatalf("nothing is refused: %s", data)
		}
	}
}
