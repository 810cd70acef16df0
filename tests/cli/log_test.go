package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// line is one entry of a server's log.
type line map[string]any

// jsonLines fails the test for output that is not one JSON object a line.
func jsonLines(t *testing.T, text string) (all []line) {
	t.Helper()
	for raw := range strings.Lines(text) {
		var l line
		if err := json.Unmarshal([]byte(raw), &l); err != nil {
			t.Errorf("a line that is not JSON: %q", raw)
			continue
		}
		all = append(all, l)
	}
	return all
}

// One can follow a server's life in its log, every line has the form that was
// asked for, and no secret is in it.
func TestTheLogTellsTheLifeOfAServer(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{
		Env:  []string{"WEIR_API_KEYS=open-sesame,second-secret:r:own.", "WEIR_MAX_TOPICS=7", "WEIR_PROBE_AUTH=0"},
		Args: []string{"--log-format", "json", "--max-limit", "500", "--max-claim", "1000"},
	})
	for range 40 {
		req, err := http.NewRequestWithContext(t.Context(), "GET", srv.URL+"/v0/topics?token=query-secret", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer wrong-secret")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 401 {
			t.Fatal(resp.StatusCode)
		}
	}
	if err := srv.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "SIGHUP is answered in the log", func() bool { return strings.Contains(srv.Stderr(), "SIGHUP") })
	if code := srv.Stop(); code != 0 {
		t.Errorf("the server ends with %d", code)
	}
	text := srv.Stderr()
	if strings.Contains(text, "secret") || strings.Contains(text, "sesame") {
		t.Errorf("a secret is in the log:\n%s", text)
	}
	all := jsonLines(t, text)
	at := 0
	next := func(msg string) line {
		t.Helper()
		for ; at < len(all); at++ {
			if got, _ := all[at]["msg"].(string); strings.HasPrefix(got, msg) {
				at++
				return all[at-1]
			}
		}
		t.Fatalf("no line %q, or not in this order, in:\n%s", msg, text)
		return nil
	}
	start := next("weir starts")
	if s, _ := json.Marshal(start["settings"]); string(s) != `["WEIR_PORT=0","WEIR_MAX_TOPICS=7","WEIR_MAX_LIMIT=500"]` || start["version"] == "" || start["data_dir"] != srv.Dir {
		t.Errorf("%v", start)
	}
	if l := next("auth is on"); l["keys"] != 2.0 || l["limited_to_prefixes"] != 1.0 {
		t.Errorf("%v", l)
	}
	if l := next("listening"); l["address"] != srv.Addr {
		t.Errorf("%v", l)
	}
	if l := next("the data directory is open"); l["topics"] != 0.0 || l["records"] != 0.0 || l["lost_numbers"] != 0.0 || l["seconds"] == nil || l["replayed_operations"] == nil {
		t.Errorf("%v", l)
	}
	next("ready")
	next("SIGHUP: there is no --config file")
	next("stopping")
	next("stopped")
	refused, lines := 0.0, 0
	for _, l := range all {
		if l["msg"] == "a login was refused" {
			lines++
			if n, ok := l["count"].(float64); ok {
				refused += n
			} else {
				refused++
			}
			if l["level"] != "WARN" || l["from"] != "127.0.0.1" {
				t.Errorf("%v", l)
			}
		}
	}
	if refused != 40 || lines > 10 {
		t.Errorf("%v refused logins in %d lines, want 40 in a few", refused, lines)
	}
}

// What a crash took is said at the next start.
func TestTheLogSaysWhatACrashTook(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{})
	if a := ask(t, "POST", srv.URL+"/v0/topics/m", `{"records":[{"data":1}],"config":{"durability":"ephemeral"}}`); a.status != 201 {
		t.Fatal(a)
	}
	if a := ask(t, "POST", srv.URL+"/v0/topics/d", `{"records":[{"data":1},{"data":2}]}`); a.status != 201 {
		t.Fatal(a)
	}
	srv.Kill()
	srv.Restart()
	text := srv.Stderr()
	last := text[strings.LastIndex(text, `msg="the data directory is open"`):]
	if !strings.Contains(last, "topics=2 records=2 ") || !strings.Contains(last, "closed_cleanly=false") || strings.Contains(last, "lost_numbers=0") {
		t.Errorf("%s", last)
	}
}

// A server that cannot start says why in the form that was asked for, and how
// much it says can be chosen.
func TestTheLogHasOneFormAndALevel(t *testing.T) {
	t.Parallel()
	srv, err := weirtest.TryStart(t, weirtest.Options{Env: []string{"WEIR_MAX_TOPICS=many"}, Args: []string{"--log-format", "json"}})
	if err == nil {
		t.Fatal("it started")
	}
	if all := jsonLines(t, srv.Stderr()); len(all) != 1 || !strings.Contains(all[0]["error"].(string), "WEIR_MAX_TOPICS") || all[0]["level"] != "ERROR" {
		t.Errorf("%v", all)
	}
	if _, err := weirtest.TryStart(t, weirtest.Options{Args: []string{"--log-level", "loud"}}); err == nil || !strings.Contains(err.Error(), `flag --log-level: "loud" is not debug, info, warn or error`) {
		t.Errorf("%v", err)
	}
	quiet := weirtest.Start(t, weirtest.Options{Args: []string{"--log-level", "warn"}})
	if code := quiet.Stop(); code != 0 || strings.Contains(quiet.Stderr(), "level=INFO") {
		t.Errorf("%d\n%s", code, quiet.Stderr())
	}
}

// SIGHUP never ends a server, also not one that is starting or stopping.
func TestSIGHUPNeverEndsAServer(t *testing.T) {
	t.Parallel()
	srv := weirtest.Start(t, weirtest.Options{NoWait: true})
	for range 20 {
		if err := srv.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if err := srv.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	if a := ask(t, "POST", srv.URL+"/v0/topics/t", `{"records":[{"data":1}]}`); a.status != 201 {
		t.Error(a)
	}
	if code := srv.Stop(); code != 0 {
		t.Errorf("the server ends with %d", code)
	}
}
