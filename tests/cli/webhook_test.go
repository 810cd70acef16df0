package cli

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

const hookSecret = "secret-of-the-receiver"

// receiver is a server that webhooks deliver to. It handles what it answers with 200 and
// lies about some of it.
type receiver struct {
	t *testing.T
	*httptest.Server
	elsewhere *httptest.Server // where a redirect leads

	mu      sync.Mutex
	tries   map[int]int
	handled map[int]bool
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, tries: make(map[int]int), handled: make(map[int]bool)}
	r.elsewhere = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Server.Close)
	t.Cleanup(r.elsewhere.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the server was killed
	}
	mac := hmac.New(sha256.New, []byte(hookSecret))
	fmt.Fprintf(mac, "%s.%s", req.Header.Get("Weir-Timestamp"), body)
	var job struct{ N int }
	if want := "v1=" + hex.EncodeToString(mac.Sum(nil)); !hmac.Equal([]byte(want), []byte(req.Header.Get("Weir-Signature"))) ||
		json.Unmarshal(body, &job) != nil || req.Header.Get("Weir-Seq") != fmt.Sprint(job.N) || req.Header.Get("Weir-Webhook") != "ship" {
		r.t.Errorf("a delivery that is not what it says: %v %s", req.Header, body)
	}
	r.mu.Lock()
	r.tries[job.N]++
	first := r.tries[job.N] == 1
	r.mu.Unlock()
	if !r.answer(w, req, job.N%20, job.N%100 == 18, first) {
		return
	}
	r.mu.Lock()
	r.handled[job.N] = true
	r.mu.Unlock()
}

// answer answers a job of some kind and reports whether it is handled.
func (r *receiver) answer(w http.ResponseWriter, req *http.Request, kind int, poison, first bool) bool {
	switch {
	case poison: // always fails
		w.WriteHeader(http.StatusInternalServerError)
		return false
	case kind == 9:
		part := strings.Repeat("endless ", 1000)
		for req.Context().Err() == nil {
			if _, err := io.WriteString(w, part); err != nil {
				break
			}
		}
		return true
	case !first:
		return true
	case kind == 1: // nothing within the time
		<-req.Context().Done()
		return false
	case kind == 4 || kind == 7: // a body that breaks off
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, "200 and then nothing")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case kind == 12:
		http.Redirect(w, req, r.elsewhere.URL+"/metadata", http.StatusFound)
		return false
	case kind == 15: // no answer
		panic(http.ErrAbortHandler)
	}
	return true
}

func (r *receiver) done() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.handled)
}

// What is delivered to a receiver that is slow, dead at times and lies, by a server that
// is killed, is handled at least once or becomes a dead letter; another webhook, whose
// receiver is gone, changes nothing about that.
func TestEveryJobIsDeliveredOrDeadThoughTheReceiverLiesAndTheServerIsKilled(t *testing.T) {
	t.Parallel()
	const jobs = 200
	to := newReceiver(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	srv := weirtest.Start(t, weirtest.Options{Stays: true, Env: []string{"WEIR_WEBHOOKS=on", "WEIR_WEBHOOK_ALLOW_HTTP=true", "WEIR_WEBHOOK_ALLOW_PRIVATE=127.0.0.1"}})
	call := func(method, path, body string) (answer struct {
		State      string
		Deliveries int
		Failures   int
	}) {
		t.Helper()
		if !request(t, method, srv.URL+path, body, &answer) {
			t.Fatalf("%s %s is refused", method, path)
		}
		return answer
	}
	for _, queue := range []string{"orders", "stuck"} {
		call("PUT", "/v0/topics/"+queue, `{"type":"queue","max_deliveries":3,"dead_letter":"`+queue+`.dead"}`)
	}
	call("PUT", "/v0/webhooks/ship", fmt.Sprintf(`{"topic":"orders","url":%q,"secret":%q,"timeout_ms":500,"concurrency":8}`, to.URL, hookSecret))
	call("PUT", "/v0/webhooks/stuck", fmt.Sprintf(`{"topic":"stuck","url":%q,"concurrency":64}`, gone.URL))
	var records []string
	for n := range jobs {
		records = append(records, fmt.Sprintf(`{"data":{"n":%d}}`, n+1))
	}
	batch := `{"records":[` + strings.Join(records, ",") + `]}`
	call("POST", "/v0/topics/stuck", batch)
	call("POST", "/v0/topics/orders", batch)
	eventually(t, "a third is delivered", func() bool { return to.done() >= jobs/3 })
	srv.Kill()
	srv.Restart()
	eventually(t, "all is done", func() bool { return topicState(t, srv, "orders").Count == 0 })

	var dead struct {
		Records []struct{ Data struct{ N int } }
	}
	request(t, "POST", srv.URL+"/v0/topics/orders.dead/diff", `{"limit":1000}`, &dead)
	letters := make(map[int]bool)
	for _, l := range dead.Records {
		letters[l.Data.N] = true
	}
	for n := 1; n <= jobs; n++ {
		if !to.handled[n] && !letters[n] {
			t.Errorf("job %d was neither handled nor is it a dead letter", n)
		}
		if n%100 == 18 && !letters[n] {
			t.Errorf("job %d, which always fails, is no dead letter", n)
		}
	}
	eventually(t, "the webhook without a receiver is failing", func() bool { // also for the server that was started last
		return call("GET", "/v0/webhooks/stuck", "").State == "failing"
	})
	if st := call("GET", "/v0/webhooks/stuck", ""); st.Failures > 100 {
		t.Errorf("the webhook without a receiver: %+v", st)
	}
	if code := srv.Stop(); code != 0 {
		t.Errorf("the server ended with code %d", code)
	}
	if all := srv.Stderr(); strings.Contains(all, hookSecret) || strings.Contains(all, "whsec_") {
		t.Error("a secret is in the log")
	}
}

// A server that is stopped lets the delivery under way end.
func TestAStopWaitsForTheDeliveryUnderWay(t *testing.T) {
	t.Parallel()
	began, end := make(chan struct{}), make(chan struct{})
	to := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-end
	}))
	defer to.Close()
	finish := sync.OnceFunc(func() { close(end) })
	defer finish() // also if the test fails, or the receiver would not close
	srv := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_WEBHOOKS=on", "WEIR_WEBHOOK_ALLOW_HTTP=true", "WEIR_WEBHOOK_ALLOW_PRIVATE=127.0.0.1"}})
	var none struct{}
	request(t, "PUT", srv.URL+"/v0/topics/orders", `{"type":"queue"}`, &none)
	request(t, "PUT", srv.URL+"/v0/webhooks/w", fmt.Sprintf(`{"topic":"orders","url":%q,"timeout_ms":60000,"concurrency":1}`, to.URL), &none)
	request(t, "POST", srv.URL+"/v0/topics/orders", `{"records":[{"data":1},{"data":2}]}`, &none)
	<-began
	if err := srv.Signal(15); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it stops", func() bool { return strings.Contains(srv.Stderr(), "stopping: new requests are refused") })
	finish()
	<-srv.Exited()
	srv.SetEnv([]string{"WEIR_WEBHOOKS=off"})
	srv.Restart()
	if st := topicState(t, srv, "orders"); st.Count != 1 || st.Queue.Ready != 1 {
		t.Errorf("after the stop: %+v, want the job that was not begun", st)
	}
}
