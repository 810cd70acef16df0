package remote_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/backend/remote"
	"github.com/weirmq/weir/tests/weirtest"
)

func open(t *testing.T, raw string) *queue.Backend {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := remote.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b.(*queue.Backend)
}

var message = []backend.Message{{Data: []byte("x")}}

func claim(b backend.Backend, block time.Duration) (backend.Claimed, error) {
	return b.Claim(context.Background(), backend.ClaimRequest{Consumer: "w", Max: 10, Block: block, ReclaimAfter: time.Minute})
}

// answer is a server that says the same to every call.
func answer(t *testing.T, status int, header, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/jobs"
}

func body(code, detail string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":"so it is","detail":{%s}}}`, code, detail)
}

func TestWhatTheServerAnswersBecomesAnErrorOfTheSeam(t *testing.T) {
	for name, c := range map[string]struct {
		status       int
		header, body string
		write, read  error // nil: neither retryable nor one of the seam
		full         time.Duration
		reason       string // of full, by default queue_full
	}{
		"shedding":     {status: 429, header: "2", body: body("throttled", `"reason":"load_shedding","retry_after_ms":1500`), full: 1500 * time.Millisecond, reason: backend.ReasonLoadShedding},
		"overload":     {status: 429, header: "2", body: body("throttled", `"retry_after_ms":1500`), full: 1500 * time.Millisecond},
		"cap":          {status: 429, header: "1", body: body("throttled", `"limit":"max_topics","max":5`), full: time.Second},
		"disk full":    {status: 507, header: "5", body: body("disk_full", `"free_bytes":1,"reserve_bytes":2`), full: 5 * time.Second},
		"topic full":   {status: 422, body: body("topic_full", `"topic":"jobs"`), full: -1},
		"not ready":    {status: 503, header: "1", body: body("not_ready", ""), write: backend.ErrUnavailable, read: backend.ErrUnavailable},
		"draining":     {status: 503, header: "1", body: body("shutting_down", ""), write: backend.ErrUnavailable, read: backend.ErrUnavailable},
		"disk failure": {status: 500, body: body("internal", ""), write: backend.ErrOutcomeUnknown, read: backend.ErrUnavailable},
		"proxy":        {status: 502, body: "<html>bad gateway</html>", write: backend.ErrOutcomeUnknown, read: backend.ErrUnavailable},
		"no key":       {status: 401, body: body("unauthorized", ""), write: backend.ErrForbidden, read: backend.ErrForbidden},
		"weak key":     {status: 403, body: body("forbidden", ""), write: backend.ErrForbidden, read: backend.ErrForbidden},
		"too large":    {status: 400, body: body("record_too_large", "")},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, answer(t, c.status, c.header, c.body))
			_, write := b.Append(t.Context(), message)
			_, read := b.Stats(t.Context())
			var full *backend.FullError
			switch {
			case c.full != 0:
				if !errors.As(write, &full) || full.RetryAfter != max(c.full, 0) || full.Reason != cmp.Or(c.reason, backend.ReasonQueueFull) || !backend.Retryable(write) {
					t.Errorf("append: %v", write)
				}
			case c.write != nil:
				forGood := c.write == backend.ErrForbidden
				if !errors.Is(write, c.write) || !errors.Is(read, c.read) || backend.Retryable(write) == forGood || backend.Retryable(read) == forGood {
					t.Errorf("append: %v; stats: %v", write, read)
				}
			default:
				if write == nil || backend.Retryable(write) || read == nil || backend.Retryable(read) {
					t.Errorf("append: %v; stats: %v", write, read)
				}
			}
		})
	}
}

func TestAnAgeIsByTheServersClock(t *testing.T) {
	ahead := time.Now().Add(time.Hour)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", ahead.UTC().Format(http.TimeFormat))
		if strings.HasSuffix(r.URL.Path, "/diff") {
			fmt.Fprintf(w, `{"topic":"jobs","records":[{"$seq":1,"$ts":%d,"data":1}],"next_from_seq":1,"head_seq":1,"earliest_seq":1,"caught_up":true,"tombstone":null}`, ahead.Add(-time.Minute).UnixMilli())
			return
		}
		fmt.Fprint(w, `{"topic":"jobs","type":"queue","head_seq":1,"count":1,"config":{"type":"queue"},"queue":{"ready":1,"in_flight":0,"dead_lettered":0}}`)
	}))
	t.Cleanup(s.Close)
	st, err := open(t, s.URL+"/jobs").Stats(t.Context())
	if err != nil || st.OldestAge < 58*time.Second || st.OldestAge > 2*time.Minute || st.At.Before(ahead.Add(-2*time.Second)) {
		t.Errorf("%+v, %v", st, err)
	}
}

func TestAServerThatIsNotThereIsUnavailable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	b := open(t, "http://:sesame@"+addr+"/jobs")
	if _, err := b.Append(t.Context(), message); !errors.Is(err, backend.ErrUnavailable) || strings.Contains(err.Error(), "sesame") {
		t.Errorf("append: %v", err)
	}
	if _, err := claim(b, time.Second); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("claim: %v", err)
	}
	if _, err := b.Stats(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("stats: %v", err)
	}
}

func TestAKeyIsSentAndNeverShown(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=sesame%2F,writer:w"}})
	good, err := remote.WithKey(s.URL+"/jobs", "sesame%2F")
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, good)
	if _, err := b.Append(t.Context(), message); err != nil {
		t.Error(err)
	}
	// A key that may only write is enough for a queue that is there.
	if _, err := open(t, "http://:writer@"+s.Addr+"/jobs").Append(t.Context(), message); err != nil {
		t.Error(err)
	}
	if _, err := open(t, "http://:writer@"+s.Addr+"/absent").Append(t.Context(), message); err == nil {
		t.Error("a key that may only write has created a queue")
	}
	_, err = open(t, "http://:wrong@"+s.Addr+"/jobs").Append(t.Context(), message)
	if err == nil || strings.Contains(err.Error(), "wrong") || backend.Retryable(err) {
		t.Errorf("a wrong key: %v", err)
	}
	if same, err := remote.WithKey("redis://h", "k"); err != nil || same != "redis://h" {
		t.Errorf("%q, %v", same, err)
	}
	if same, err := remote.WithKey("http://:a@h/q", "k"); err != nil || same != "http://:a@h/q" {
		t.Errorf("%q, %v", same, err)
	}
	if _, err := remote.WithKey("http://:se cret@h/q", "k"); err == nil || strings.Contains(err.Error(), "se cret") {
		t.Errorf("%v", err)
	}
}

// A restart gives the leases of a queue that this library made back to their
// holders; other queues forget them, and an ack is told so.
func TestAServerThatRestartsInTheMiddle(t *testing.T) {
	s := weirtest.Start(t, weirtest.Options{})
	for name, config := range map[string]string{"ours": "", "theirs": `{"type":"queue"}`} {
		if config != "" {
			put(t, s.URL+"/v0/topics/"+name, config)
		}
		b := open(t, s.URL+"/"+name)
		if _, err := b.Append(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		got, err := claim(b, 0)
		if err != nil || len(got.Deliveries) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		s.Kill()
		if _, err := b.Ack(t.Context(), []backend.Lease{got.Deliveries[0].Lease}); !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrOutcomeUnknown) {
			t.Errorf("%s: ack while the server is away: %v", name, err)
		}
		s.Restart()
		again := open(t, s.URL+"/"+name)
		lost, err := again.Ack(t.Context(), []backend.Lease{got.Deliveries[0].Lease})
		if err != nil || len(lost) != map[string]int{"ours": 0, "theirs": 1}[name] {
			t.Errorf("%s: ack after the restart: lost %v, %v", name, lost, err)
		}
		left, err := claim(again, 0)
		if err != nil || len(left.Deliveries) != len(lost) {
			t.Errorf("%s: %d claimed after the ack lost %v, %v", name, len(left.Deliveries), lost, err)
		}
	}
}

func put(t *testing.T, address, config string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, address, strings.NewReader(config))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("PUT: %s", resp.Status)
	}
}

func TestWhatAURLMayNotBe(t *testing.T) {
	for raw, want := range map[string]string{
		"http://h":                                     "names no topic",
		"http://h/a/b":                                 "not a topic name",
		"http://h:99999/a":                             `port "99999" is not 1 to 65535`,
		"http://h:0/a":                                 `port "0" is not 1 to 65535`,
		"http://h:1/a?standby=h:2,h:65536":             `port "65536" is not 1 to 65535`,
		"http://user:pw-secret@h/a":                    "stand alone behind a colon",
		"http://:pw-secret@h/a?group=x":                `one group, "weir"`,
		"http://:pw-secret@h/a?stream=x":               `unknown key "stream" in the http URL; known: group, durability`,
		"https://:pw-secret@127.0.0.1:1/a?durability=": "",
		"http://:pw-secret@h/a?durability=x":           "known: fsync, disk, memory, ephemeral",
		"http://:pw-secret@h/a?group=%zz":              "cannot be read",
		"http://:pw-secret@h/a#x":                      "fragment",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		b, err := remote.Open(ctx, u)
		cancel()
		switch {
		case err == nil:
			b.Close()
			if want != "" {
				t.Errorf("%s was opened", raw)
			}
		case want == "" && !errors.Is(err, context.DeadlineExceeded), !strings.Contains(err.Error(), want), strings.Contains(err.Error(), "pw-secret"):
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
}

// A server from before it could count is asked once, and the load is read as ever.
func TestAnOlderServerDoesNotCount(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/offered") {
			asked++
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, body("not_found", ""))
			return
		}
		fmt.Fprint(w, `{"topic":"jobs","type":"queue","head_seq":9,"count":4,"config":{"type":"queue"},"queue":{"ready":3,"in_flight":1,"dead_lettered":0}}`)
	}))
	t.Cleanup(s.Close)
	b := open(t, s.URL+"/jobs")
	for range 3 {
		if sums, now, err := b.Tally(t.Context(), []uint32{1}); err == nil || backend.Retryable(err) || sums != nil || now != nil {
			t.Errorf("%v, %v, %v", sums, now, err)
		}
	}
	if sig, err := b.Signal(t.Context(), 1); err != nil || asked != 1 || sig.Pending != 1 || *sig.Lag != 3 || *sig.Finished != 5 {
		t.Errorf("asked %d times; %+v, %v", asked, sig, err)
	}
}
