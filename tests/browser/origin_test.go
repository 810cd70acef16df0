package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// The keys of the server that pages of other origins use.
const (
	ownerKey = "owner"
	pageKey  = "page-of-jobs"
)

// page serves examples/browser on a port of its own, which is another origin than any server's.
func page(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewServer(http.FileServer(http.Dir(filepath.Join("..", "..", "examples", "browser"))))
	t.Cleanup(s.Close)
	return s.URL
}

// owned sends JSON with the owner's key. It is sent again until there is an answer: the server
// may be away.
func owned(url string, body any, idempotencyKey string) (answer string, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	deadline := time.Now().Add(patience)
	for {
		req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(text))
		if err != nil {
			return "", err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+ownerKey)
		if idempotencyKey != "" {
			req.Header.Set("Idempotency-Key", idempotencyKey)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			got, readErr := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if readErr == nil && resp.StatusCode < 300 {
				return string(got), nil
			}
			err = fmt.Errorf("%s: %d %s (%v)", url, resp.StatusCode, got, readErr)
		}
		if time.Now().After(deadline) {
			return "", err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func mustOwned(t *testing.T, url string, body any, idempotencyKey string) string {
	t.Helper()
	answer, err := owned(url, body, idempotencyKey)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// start fills in the form of the page and sends it.
func (b *tab) start(url string, s *weirtest.Server, token string) {
	b.t.Helper()
	b.open(url)
	b.holds("the page has its script", `document.querySelector("form") && performance.getEntriesByName(location.origin + "/app.js").length > 0`)
	eval[any](b, `(() => {
		const form = document.querySelector("form");
		Object.entries(%s).forEach(([name, value]) => { form.elements[name].value = value; });
		form.requestSubmit();
	})()`, jsOf(map[string]string{"server": s.URL, "topic": "news", "token": token, "queue": "jobs", "key": pageKey}))
}

// jsOf is any Go value as JavaScript.
func jsOf(v any) string {
	b, _ := json.Marshal(v) // of strings
	return string(b)
}

// numbers are those of 0 to n-1 as the page shows them, one a line.
func numbers(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i)
	}
	return strings.Join(all, "\n")
}

const lines = `[...document.querySelectorAll(%q)].map((e) => e.innerText)`

func TestAPageOfAnotherOriginMissesNothingOverKills(t *testing.T) {
	t.Parallel()
	url := page(t)
	s := weirtest.Start(t, weirtest.Options{Stays: true, Env: []string{"WEIR_API_KEYS=" + ownerKey + "," + pageKey + ":rw:jobs", "WEIR_CORS_ORIGINS=" + url}})
	mustOwned(t, s.URL+"/v0/topics/news", object{"records": []object{{"data": 0}}, "config": object{"durability": "fsync"}}, "0")
	mustOwned(t, s.URL+"/v0/topics/jobs", object{"records": []object{{"data": 0}}, "config": object{"type": "queue", "durability": "fsync"}}, "0")
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(mustOwned(t, s.URL+"/v0/tokens", object{"topics": []string{"news"}}, "")), &made); err != nil {
		t.Fatal(err)
	}
	b := newTab(t)
	b.start(url, s, made.Token)
	b.sees("#records li", "0")
	b.sees("#jobs li", "0")

	const n = 120
	var publishing sync.WaitGroup
	var failed error
	at := make(chan int, n)
	address := s.URL
	publishing.Go(func() {
		defer close(at)
		for i := 1; i < n && failed == nil; i++ {
			for _, topic := range []string{"news", "jobs"} {
				if _, err := owned(address+"/v0/topics/"+topic, object{"records": []object{{"data": i}}}, fmt.Sprint(i)); err != nil {
					failed = err
				}
			}
			at <- i
		}
	})
	for i := range at { // publishing goes on while the server is away
		if i == n/4 || i == n/2 {
			s.Kill()
			s.Restart()
		}
	}
	publishing.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	b.holds("the last record is there", `document.querySelectorAll("#records li").length >= %d`, n)
	if got := strings.Join(eval[[]string](b, lines, "#records li"), "\n"); got != numbers(n) {
		t.Errorf("the page shows %q", got)
	}
	weirtest.Eventually(t, "each job is acked", func() bool {
		return strings.Contains(mustOwned(t, s.URL+"/v0/topics/jobs/diff", object{"from_seq": 0}, ""), `"records":[]`)
	})
	// A job is acked once. A kill may take the answer to one ack with it, and its job is not shown then.
	b.holds("the jobs that were acked are shown", lines+`.length >= %d`, "#jobs li", n-2)
	done := map[string]bool{}
	for _, job := range eval[[]string](b, lines, "#jobs li") {
		if done[job] {
			t.Errorf("job %s was acked twice", job)
		}
		done[job] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		// That nobody answers is the browser's own line; no page can avoid it.
		if !strings.Contains(e, "net::ERR_") && !strings.Contains(e, "WebSocket connection to") {
			t.Errorf("the console says: %s", e)
		}
	}
	for _, asked := range b.asked {
		if strings.Contains(asked, pageKey) {
			t.Errorf("the key is in an address: %s", asked)
		}
	}
}

func TestAPageOfAnOriginThatIsNotListedGetsNothing(t *testing.T) {
	t.Parallel()
	listed, other := page(t), page(t)
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=" + ownerKey + "," + pageKey + ":rw:jobs", "WEIR_CORS_ORIGINS=" + listed}})
	mustOwned(t, s.URL+"/v0/topics/news", object{"records": []object{{"data": 0}}}, "")
	mustOwned(t, s.URL+"/v0/topics/jobs", object{"records": []object{{"data": 0}}, "config": object{"type": "queue"}}, "")
	var made struct{ Token, WID string }
	for _, call := range []struct {
		path string
		body object
	}{{"/v0/tokens", object{"topics": []string{"news"}}}, {"/v0/watch", object{"topics": object{"news": object{}}}}} {
		if err := json.Unmarshal([]byte(mustOwned(t, s.URL+call.path, call.body, "")), &made); err != nil {
			t.Fatal(err)
		}
	}
	b := newTab(t)
	b.start(other, s, made.Token)
	b.sees("[role=status]", "no answer")
	for what, attempt := range map[string]string{
		"reads a topic":      `fetch("%[1]s/v0/topics/news", {headers: {Authorization: "Bearer owner"}}).then(() => "read", () => "nothing")`,
		"reads with a token": `fetch("%[1]s/v0/watch/%[2]s?token=owner").then(() => "read", () => "nothing")`,
		"follows a stream":   `new Promise((done) => { const s = new EventSource("%[1]s/v0/watch/%[2]s?token=owner"); s.onopen = () => done("read"); s.onerror = () => { s.close(); done("nothing"); }; })`,
		"opens a WebSocket":  `new Promise((done) => { const s = new WebSocket("%[1]s/v0/ws?token=owner".replace("http", "ws")); s.onopen = () => done("read"); s.onerror = () => done("nothing"); })`,
		"writes":             `fetch("%[1]s/v0/topics/news?token=%[2]s", {method: "POST", mode: "no-cors", body: '{"records":[{"data":1}]}'}).then((r) => r.type === "opaque" ? "nothing" : "read", () => "nothing")`,
	} {
		if got := eval[string](b, attempt, s.URL, made.WID); got != "nothing" {
			t.Errorf("a page that is not listed %s", what)
		}
	}
	if text := b.text("#records li") + b.text("#jobs li"); text != "" {
		t.Errorf("a page that is not listed shows %q", text)
	}
	if answer := mustOwned(t, s.URL+"/v0/topics/jobs/diff", object{"from_seq": 0}, ""); strings.Contains(answer, `"records":[]`) {
		t.Error("a page that is not listed took a job")
	}
	if answer := mustOwned(t, s.URL+"/v0/topics/news/diff", object{"from_seq": 0}, ""); !strings.Contains(answer, `"head_seq":1`) {
		t.Errorf("a page that is not listed wrote: %s", answer)
	}
}

// A cookie of the dashboard counts for no page of another port, though browsers send it along.
func TestACookieOfTheDashboardOpensNoSocketForAnotherOrigin(t *testing.T) {
	t.Parallel()
	other := page(t)
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=" + ownerKey}})
	b := newTab(t)
	b.open(s.URL)
	b.sees("h1", "Sign in")
	eval[any](b, `fetch("/ui/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"key":"owner"}' })`)
	socket := fmt.Sprintf(`new Promise((done) => { const s = new WebSocket(%s); s.onopen = () => done("open"); s.onerror = () => done("refused"); })`, js("ws://"+s.Addr+"/v0/ws"))
	if got := eval[string](b, "%s", socket); got != "open" {
		t.Errorf("the server's own page finds the WebSocket %s", got)
	}
	b.open(other)
	if got := eval[string](b, "%s", socket); got != "refused" {
		t.Errorf("a page of another port finds the WebSocket %s", got)
	}
}
