package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/weirtest"
)

// row is what the dashboard says of one stream, as far as the tests look.
type row struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Group   string `json:"group"`
	Lag     *int64 `json:"lag"`
	Pending *int64 `json:"pending"`
	Workers *int64 `json:"workers"`
	Signal  *int64 `json:"signal"`
	Dead    *int64 `json:"dead_letters"`
	Error   string `json:"error"`
}

// page is a dashboard in another process.
type page struct {
	t   *testing.T
	url string
	*weirtest.Process
}

var dashAt = regexp.MustCompile(`(http://127\.0\.0\.1:\d+)\n`)

func startDash(t *testing.T, env []string, urls ...string) *page {
	t.Helper()
	p := &page{t: t, Process: weirtest.Go(t, env, append([]string{"dash", "--listen=127.0.0.1:0"}, urls...)...)}
	eventually(t, "the address of the dashboard", func() bool {
		found := dashAt.FindStringSubmatch(p.Stdout.String())
		if found != nil {
			p.url = found[1]
		}
		return found != nil
	})
	return p
}

// ask sends a request as the page would, or as head says.
func (p *page) ask(method, path, body string, head map[string]string) (status int, text string, header http.Header) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", p.url)
	for name, v := range head {
		if name == "Host" {
			req.Host = v
		}
		req.Header.Set(name, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, string(all), resp.Header
}

// until follows the numbers until they are as wanted.
func (p *page) until(what string, ok func(rows map[string]row) bool) {
	p.t.Helper()
	p.live(what, func(text string) bool {
		var state struct{ Streams []row }
		if err := json.Unmarshal([]byte(text), &state); err != nil {
			p.t.Fatalf("%q: %v", text, err)
		}
		rows := map[string]row{}
		for _, r := range state.Streams {
			rows[r.ID] = r
		}
		return ok(rows)
	})
}

// live is until for the text that is sent.
func (p *page) live(what string, ok func(text string) bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/ui/live", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	var last string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "data: "); found {
			if last = text; ok(text) {
				return
			}
		}
	}
	p.t.Fatalf("%s: the numbers ended at %s", what, last)
}

// One page shows streams of several kinds, from no worker to one that holds something;
// what cannot be reached says so, and has no numbers.
func TestDashShowsStreamsOfAnyKind(t *testing.T) {
	t.Parallel()
	server, weir := redistest.Start(t, redistest.Options{}), weirtest.Start(t, weirtest.Options{})
	redis, http := redisURL(server.Addr(), "jobs", "weir"), weir.URL+"/mails"
	for _, url := range []string{redis, http} {
		if _, err := openStream(t, url).Backend().Append(t.Context(), []backend.Message{{Data: []byte("a")}, {Data: []byte("b")}}); err != nil {
			t.Fatal(err)
		}
	}
	p := startDash(t, nil, redis, http, redisURL(server.Addr(), "jobs", "others"), redisURL("127.0.0.1:1", "away", "weir"))
	p.until("no worker anywhere", func(rows map[string]row) bool {
		away := rows["away"]
		if away.Lag != nil || away.Signal != nil || away.Error == "" {
			t.Fatalf("a server that is away has numbers: %+v", away)
		}
		for _, id := range []string{"jobs", "mails", "jobs · others"} {
			if r := rows[id]; r.Lag == nil || *r.Lag != 2 || r.Signal != nil || r.Error != "" {
				return false
			}
		}
		return true
	})
	for _, url := range []string{redis, http} {
		s := openStream(t, url)
		take(t, s, 2)
		if err := s.Backend().(backend.Signaler).PublishSignal(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	p.until("a worker that holds a message", func(rows map[string]row) bool {
		jobs, mails := rows["jobs"], rows["mails"]
		return jobs.Signal != nil && *jobs.Signal == 2 && mails.Signal != nil && *mails.Signal == 2 && rows["jobs · others"].Signal == nil
	})
	for what, c := range map[string]struct{ path, want string }{
		"who holds what on Redis": {"/ui/streams/jobs", `"workers":[{"name":"w","holds":2,`},
		"deliveries on Redis":     {"/ui/streams/jobs", `"worker":"w","deliveries":1,`},
		"the groups":              {"/ui/streams/jobs", `"groups":[{"name":"weir","workers":1,"pending":2,"lag":0}]`},
		"the newest on Redis":     {"/ui/streams/jobs", `"data":"b"`},
		"the newest on a server":  {"/ui/streams/mails", `"data":"b"`},
	} {
		if status, body, _ := p.ask("GET", c.path, "", nil); status != 200 || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	for _, command := range [][]string{{"tail", p.url + "/mails"}, {"topic", "ls", p.url}, {"work", p.url + "/mails", "--", "true"}} {
		if _, stderr, code := weirtest.Run(t, nil, command...); code != 1 || !strings.Contains(stderr, "the page of weir dash") {
			t.Errorf("weir %v, with the address of the page: exit code %d, %s", command, code, stderr)
		}
	}
	p.Process.Signal(syscall.SIGTERM)
	p.Succeed()
}

func TestDashIsAsClosedAsTheServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	url := redisURL(server.Addr(), "jobs", "weir")
	open := startDash(t, nil, url)
	for what, c := range map[string]struct {
		path string
		head map[string]string
		want int
	}{
		"the page":       {"/", nil, 200},
		"a foreign host": {"/", map[string]string{"Host": "evil.example"}, 403},
		"no API":         {"/v0/topics", nil, 404},
	} {
		status, _, header := open.ask("GET", c.path, "", c.head)
		if status != c.want || status == 200 && !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", what, status, header)
		}
	}
	closed := startDash(t, []string{"WEIR_API_KEYS=look:r,act:rw+d,theirs:r:mails"}, url)
	for what, c := range map[string]struct {
		key  string
		want int
	}{
		"no key":         {"", 401},
		"a wrong key":    {"x", 401},
		"a key":          {"look", 200},
		"another prefix": {"theirs", 403},
	} {
		if status, body, _ := closed.ask("GET", "/ui/letters/jobs", "", map[string]string{"Authorization": "Bearer " + c.key}); status != c.want {
			t.Errorf("%s: %d %s", what, status, body)
		}
	}
	if _, stderr, code := weirtest.Run(t, nil, "dash", "--listen=0.0.0.0", url); code != 2 || !strings.Contains(stderr, "without keys") {
		t.Errorf("beyond loopback without keys: exit code %d, %s", code, stderr)
	}
	if _, stderr, code := weirtest.Run(t, nil, "dash", url, "redis://127.0.0.1/0?nope=1"); code != 2 || !strings.Contains(stderr, "URL 2:") {
		t.Errorf("a URL that is wrong: exit code %d, %s", code, stderr)
	}
}

// Dead letters go back, or away, where the stream is.
func TestDashActsOnDeadLetters(t *testing.T) {
	t.Parallel()
	eachBackend(t, func(t *testing.T, url string) {
		s := openStream(t, url)
		bury(t, s, 4, backend.ReasonPoison)
		p := startDash(t, []string{"WEIR_API_KEYS=act:rw+d,look:r"}, url)
		letters := lettersOf(t, url)
		key := map[string]string{"Authorization": "Bearer act"}
		look := map[string]string{"Authorization": "Bearer look"}
		if status, body, _ := p.ask("GET", "/ui/letters/jobs/"+letters[1]["id"].(string), "", look); status != 200 || !strings.Contains(body, `"data":"m1"`) || !strings.Contains(body, `"error":"cannot do m1"`) {
			t.Errorf("a letter: %d %s", status, body)
		}
		one := `{"ids":["` + letters[1]["id"].(string) + `"]}`
		for _, path := range []string{"/ui/redrive/jobs", "/ui/purge/jobs"} {
			if status, body, _ := p.ask("POST", path, one, look); status != 403 {
				t.Errorf("%s with a key that may only read: %d %s", path, status, body)
			}
		}
		if _, body, _ := p.ask("POST", "/ui/redrive/jobs", one, key); !strings.Contains(body, `"sent":1,"failed":0,"done":true`) {
			t.Errorf("redrive: %s", body)
		}
		if d := take(t, s, 1)[0]; string(d.Data) != "m1" || d.Headers["weir-redrives"] != "1" {
			t.Errorf("back came %s %v", d.Data, d.Headers)
		}
		if _, body, _ := p.ask("POST", "/ui/purge/jobs", `{"all":true}`, key); !strings.Contains(body, `"removed":3`) || len(lettersOf(t, url)) != 0 {
			t.Errorf("purge: %s", body)
		}
		p.Process.Signal(syscall.SIGTERM)
		p.Succeed()
		if log := p.Stderr.String(); !strings.Contains(log, `"dead letters are sent back" key="entry 1 (read+write+delete)" stream=jobs`) || !strings.Contains(log, "removed=3") || strings.Contains(log, "Bearer") {
			t.Errorf("the log says\n%s", log)
		}
	})
}
