package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

func TestTopicURLs(t *testing.T) {
	for raw, want := range map[string]Target{
		"http://127.0.0.1:4000/requests":  {Base: "http://127.0.0.1:4000", Topic: "requests"},
		"https://:k3y@queue.example/a:b":  {Base: "https://queue.example", Topic: "a:b", Key: "k3y"},
		"http://:a%2Fb@[::1]:4000/x%3Ay":  {Base: "http://[::1]:4000", Topic: "x:y", Key: "a/b"},
		"http://queue.example:4000/a.dlq": {Base: "http://queue.example:4000", Topic: "a.dlq"},
	} {
		if got, err := ParseTopicURL(raw); err != nil || got != want {
			t.Errorf("%s: %+v, %v", raw, got, err)
		}
	}
	for raw, hint := range map[string]string{
		"redis://h/x":             `unknown URL scheme "redis"`,
		"127.0.0.1:4000/x":        "cannot be read",
		"http://h:4000":           "names no topic",
		"http://h:4000/a/b":       "is not a topic name",
		"http://h:4000/-a":        "is not a topic name",
		"http:///x":               "names no host",
		"http://h/x?durability=1": `unknown URL parameter "durability"`,
		"http://user:pw@h/x":      "behind a colon",
		"http://key@h/x":          "behind a colon",
		"http://h/x#frag":         "fragment",
		"http://h:0/x":            "not 1 to 65535",
		"http://h:65536/x":        "not 1 to 65535",
		"http://h/x?a=%zz":        "query cannot be read",
		"http://h/x?ca=f":         "is for TLS",
		"http://h/x?standby=b:0":  "standby in the URL",
	} {
		if _, err := ParseTopicURL(raw); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v, want %q", raw, err, hint)
		}
	}
	if _, err := ParseServerURL("http://h:4000/x"); err == nil {
		t.Error("a server URL with a path was taken")
	}
}

func answering(t *testing.T, status int, header, body string) *Client {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return New(srv.URL, "")
}

// envoyLost is what Envoy answers with 503 for a connection that it lost, followed by why.
const envoyLost = "upstream connect error or disconnect/reset before headers. reset reason: "

// varnishLost is the end of what Varnish answers with 503 for a connection that it lost or never had.
const varnishLost = "<h1>Error 503 Backend fetch failed</h1>\n<h3>Guru Meditation:</h3>\n<p>XID: 3</p>\n<hr>\n<p>Varnish cache server</p>"

func TestErrorsSayWhetherAndWhenToTryAgain(t *testing.T) {
	for _, c := range []struct {
		status           int
		header, body     string
		retry, ambiguous bool
		after            time.Duration
	}{
		{429, "1", `{"error":{"code":"throttled","message":"m","detail":{"retry_after_ms":250}}}`, true, false, 250 * time.Millisecond},
		{429, "2", `{"error":{"code":"throttled","message":"m"}}`, true, false, 2 * time.Second},
		{429, "999999", `{"error":{"code":"throttled","message":"m"}}`, true, false, maxRetryAfter},
		{503, "1", `{"error":{"code":"not_ready","message":"m"}}`, true, false, time.Second},
		{500, "", `{"error":{"code":"internal","message":"m"}}`, true, false, 0}, // whether it wrote is for the caller to know
		{502, "", `<html>`, true, true, 0},
		{503, "7", `<html>`, true, false, 7 * time.Second}, // of a proxy, which has passed nothing on
		{503, "", envoyLost + "connection termination", true, true, 0},
		{503, "", envoyLost + "remote reset", true, true, 0},
		{503, "", envoyLost + "remote connection failure, transport failure reason: delayed connect error: 111", true, false, 0},
		{503, "", envoyLost + "overflow", true, false, 0},
		{503, "5", varnishLost, true, true, 5 * time.Second},
		{429, "7", `<html>`, true, false, 7 * time.Second},
		{429, "", `{"error":{"code":"throttled","message":"m","detail":{"retry_after_ms":9e9}}}`, true, false, maxRetryAfter},
		{422, "", `{"error":{"code":"topic_full","message":"m"}}`, true, false, 0},
		{400, "", `{"error":{"code":"invalid_request","message":"m"}}`, false, false, 0},
		{400, "", `{"error":{"code":"of_a_later_version","message":"m"}}`, false, false, 0},
		{503, "3", `{"error":{"code":"of_a_later_version","message":"m"}}`, true, false, 3 * time.Second},
		{500, "", `<html>`, true, true, 0},
		{413, "", `<html>`, false, false, 0},
		{404, "", `<html>`, false, false, 0},
		{200, "", `<html>`, false, false, 0},
	} {
		_, err := answering(t, c.status, c.header, c.body).Topic(t.Context(), "x")
		if err == nil || Retryable(err) != c.retry || errors.Is(err, backend.ErrOutcomeUnknown) != c.ambiguous || RetryAfter(err) != c.after {
			t.Errorf("%d %s: %v, retry %v, ambiguous %v, after %v", c.status, c.body, err, Retryable(err), errors.Is(err, backend.ErrOutcomeUnknown), RetryAfter(err))
		}
		if large := c.status == http.StatusRequestEntityTooLarge; errors.Is(err, backend.ErrTooLarge) != large { // a batch goes on in smaller requests then
			t.Errorf("%d %s: %v, too large %v", c.status, c.body, err, !large)
		}
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	const noon, then, later = "Wed, 21 Oct 2015 12:00:00 GMT", "Wed, 21 Oct 2015 12:00:07 GMT", "Wed, 21 Oct 2201 12:00:00 GMT"
	for _, c := range []struct {
		date, header string
		after        time.Duration
	}{
		{noon, then, 7 * time.Second}, // of clocks that are years behind
		{noon, later, maxRetryAfter},
		{then, noon, 0},
		{"", later, maxRetryAfter},
		{"", then, 0},
		{"soon", later, maxRetryAfter},
		{noon, "soon", 0},
		{noon, "-7", 0},
		{noon, "99999999999999999999", maxRetryAfter},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Date"] = nil
			if c.date != "" {
				w.Header().Set("Date", c.date)
			}
			w.Header().Set("Retry-After", c.header)
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		_, err := New(srv.URL, "").Topic(t.Context(), "x")
		srv.Close()
		if got := RetryAfter(err); got != c.after {
			t.Errorf("%q at %q: %v, want %v (%v)", c.header, c.date, got, c.after, err)
		}
	}
}

func TestARefusedConnectionIsCertainAndALostAnswerIsNot(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/torn") {
			w.Header().Set("Content-Length", "50")
			_, _ = io.WriteString(w, `{"first_seq":1,`)
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	}))
	c := New(srv.URL, "s3cret")
	var err error
	for _, topic := range []string{"silent", "torn"} {
		_, err = c.Write(t.Context(), topic, &api.WriteRequest{})
		if !Retryable(err) || !errors.Is(err, backend.ErrOutcomeUnknown) || errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a lost answer, %s: %v", topic, err)
		}
	}
	srv.Close()
	_, err = c.Write(t.Context(), "x", &api.WriteRequest{})
	if !Retryable(err) || errors.Is(err, backend.ErrOutcomeUnknown) || errors.Is(err, errLate) {
		t.Errorf("a refused connection: %v", err)
	}
}

// trips makes requests.
type trips func(*http.Request) (*http.Response, error)

func (f trips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A call whose context ends says so, and that it may have been carried out only if it had a connection.
func TestACallWhoseContextEndsWasSentIfItHadAConnection(t *testing.T) {
	for _, connected := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		c := New("http://h", "")
		c.http.Transport = trips(func(r *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(r.Context())
			trace.GetConn("h:80")
			if connected {
				trace.GotConn(httptrace.GotConnInfo{})
			}
			cancel()
			<-r.Context().Done()
			return nil, errors.New("cut off")
		})
		_, err := c.Write(ctx, "x", &api.WriteRequest{})
		if !errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrOutcomeUnknown) != connected || errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("connected %v: %v", connected, err)
		}
	}
}

// Ages are measured by the server's clock, unless that is as good as this one.
func TestTheTimeIsThatOfTheServer(t *testing.T) {
	for ahead, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: 0, -time.Second: 0, time.Hour: time.Hour, -time.Hour: -time.Hour, 10 * time.Second: 10 * time.Second,
	} {
		bubble.Run(t, func(t *testing.T) {
			c := New("http://h", "")
			c.noteDate(http.Header{"Date": {time.Now().Add(ahead).UTC().Format(http.TimeFormat)}})
			c.noteDate(http.Header{"Date": {"yesterday"}})
			if skew := time.Until(c.Now()); (skew-want).Abs() > 500*time.Millisecond || want == 0 && skew != 0 {
				t.Errorf("a server's clock is %v ahead, and the time %v", ahead, skew)
			}
		})
	}
}

func TestErrorsOfTheServerAreSafeToPrint(t *testing.T) {
	_, err := answering(t, 400, "", `{"error":{"code":"invalid_request","message":"a\u001b[31mb\nc"}}`).Topic(t.Context(), "x")
	if !api.IsCode(err, api.CodeInvalidRequest) || strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("error %q", err)
	}
}

// What a server says of a text in a request may have any word in it.
func TestAnAnswerThatIsNoneOfV0IsToldAsWhatItIs(t *testing.T) {
	_, err := answering(t, 400, "", `{"error":{"code":"invalid_request","message":"\"HTTPS orders\" is not a topic name"}}`).Topic(t.Context(), "x")
	if !api.IsCode(err, api.CodeInvalidRequest) {
		t.Errorf("an error of /v0: %v", err)
	}
	if _, err = answering(t, 502, "", "<html>").Topic(t.Context(), "x"); !strings.Contains(fmt.Sprint(err), "in front of the server") {
		t.Errorf("a proxy whose server is away: %v", err)
	}
	_, err = answering(t, 400, "", "Client sent an HTTP request to an HTTPS server.").Topic(t.Context(), "x")
	if err == nil || !strings.Contains(err.Error(), "use https://") {
		t.Errorf("a server that speaks TLS: %v", err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer other.Close()
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	defer srv.Close()
	if _, err := New(srv.URL, "s3cret").Topic(t.Context(), "x"); err == nil || reached {
		t.Errorf("the key travelled to another server (%v)", err)
	}
}

func TestBackoffGrowsToItsLimit(t *testing.T) {
	for n := range 70 {
		d := Backoff(n, time.Second, time.Minute)
		if d < time.Second/2 || d > time.Minute || n > 10 && d < 30*time.Second {
			t.Errorf("try %d waits %v", n, d)
		}
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Sleep(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Many writes have the outcomes that the answer says; an answer that says something else
// is none, and a server without the call has done nothing.
func TestWriteEachTakesTheAnswersOutcomes(t *testing.T) {
	reqs := []api.WriteRequest{{Records: []api.Record{{Data: []byte("1")}}, IdempotencyKey: []byte("a"), HasIdempotencyKey: true}, {Records: []api.Record{{Data: []byte("2")}}}}
	status, said, got := http.StatusOK, "", ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = r.URL.Path + " " + string(body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, said)
	}))
	defer s.Close()
	c := New(s.URL, "")
	said = `{"results":[{"first_seq":3,"last_seq":3,"deduped":true},{"error":{"code":"throttled","message":"full","detail":{"retry_after_ms":250,"reason":"load_shedding"}}}]}`
	out, err := c.WriteEach(t.Context(), "t", reqs)
	if err != nil || out[0].Err != nil || out[0].FirstSeq != 3 || !out[0].Deduped {
		t.Fatalf("%+v, %v", out, err)
	}
	if e, ok := errors.AsType[*api.Error](out[1].Err); !ok || !e.Sheds() || e.RetryAfter != 250*time.Millisecond {
		t.Errorf("%+v", out[1])
	}
	if want := `/v0/topics/t/writes {"writes":[{"records":[{"data":1}],"idempotency_key":"a"},{"records":[{"data":2}]}]}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	said = `{"results":[{"first_seq":3}]}`
	if _, err := c.WriteEach(t.Context(), "t", reqs); !errors.Is(err, backend.ErrOutcomeUnknown) {
		t.Errorf("one result for two writes: %v", err)
	}
	said = `{"results":[{"first_seq":3},{}]}`
	if out, err := c.WriteEach(t.Context(), "t", reqs); err != nil || out[0].Err != nil || !errors.Is(out[1].Err, backend.ErrOutcomeUnknown) {
		t.Errorf("a result that names no record: %+v, %v", out, err)
	}
	status, said = http.StatusNotFound, `{"error":{"code":"not_found","message":"no such call"}}`
	if _, err := c.WriteEach(t.Context(), "t", reqs); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a server without the call: %v", err)
	}
	status, said = http.StatusBadGateway, "<html>"
	if _, err := c.WriteEach(t.Context(), "t", reqs); !errors.Is(err, backend.ErrOutcomeUnknown) || errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a proxy that lost the server: %v", err)
	}
	status, said = http.StatusServiceUnavailable, `{"error":{"code":"not_ready","message":"soon"}}`
	if _, err := c.WriteEach(t.Context(), "t", reqs); !api.IsCode(err, api.CodeNotReady) {
		t.Errorf("a server that is not ready: %v", err)
	}
}

// A server that stands still takes a connection and answers nothing, or stops in the middle.
func TestAServerThatFallsSilentEndsWhatIsLong(t *testing.T) {
	const silence = 200 * time.Millisecond
	for name, begins := range map[string]bool{"at once": false, "after the beginning": true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if begins {
				io.WriteString(w, "the beginning")
				w.(http.Flusher).Flush()
			}
			<-r.Context().Done()
		}))
		defer srv.Close()
		c := New(srv.URL, "")
		defer c.Close()
		for verb, call := range map[string]func() (io.ReadCloser, error){
			"backup": func() (io.ReadCloser, error) { return c.Backup(t.Context(), 0, silence) },
			"bundle": func() (io.ReadCloser, error) { return c.Bundle(t.Context(), time.Millisecond, silence) },
		} {
			stream, err := call()
			if (err == nil) != begins {
				t.Fatalf("%s, silent %s: %v", verb, name, err)
			}
			if err == nil {
				_, err = io.ReadAll(stream)
				stream.Close()
			}
			if _, ok := errors.AsType[*Unreachable](err); !ok || !strings.Contains(err.Error(), "silent for too long") {
				t.Errorf("%s, silent %s: error %v", verb, name, err)
			}
		}
	}
}
