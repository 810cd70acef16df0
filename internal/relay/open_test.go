package relay_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/tests/bubble"
)

// A server without keys is for its own machine. A relay that others can reach passes nothing on to it,
// whatever they say that they came for, and also if it had keys before.
func TestAServerWithoutKeysIsNotReachedThroughARelay(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "", func(o *relay.Options) { o.OpenToAll = false })
		p.write("news", 1, 10, api.Fsync)
		refused := func() {
			t.Helper()
			for _, c := range []struct{ method, path, body string }{
				{"GET", "/v0/topics", ""}, {"POST", "/v0/topics/news/diff", `{}`}, {"GET", "/v0/topics/news/records/1", ""},
				{"POST", "/v0/topics/mine", `{"records":[{"data":1}]}`}, {"DELETE", "/v0/topics/news", ""}, {"POST", "/admin/backup", ""},
				{"POST", "/v0/watch", `{"topics":{"news":{}}}`}, {"GET", "/v0/watch/wid_AAAAAAAAAAAAAAAAAAAAAA", ""},
				{"GET", "/v0/topics/news/work?node=n", ""}, {"GET", "/v0/metrics", ""}, {"GET", "/v0/anything", ""}, {"GET", "/", ""},
				{"GET", "/v0/ready", ""},
			} {
				if status, body := p.call("", c.method, c.path, c.body); status != http.StatusServiceUnavailable || !strings.Contains(body, `"not_ready"`) {
					t.Errorf("%s %s: %d %.200s", c.method, c.path, status, body)
				}
			}
			for key := range strings.SplitSeq(",anything", ",") {
				_, resp, err := websocket.Dial(t.Context(), "http://127.0.0.1:4000/v0/ws", &websocket.DialOptions{HTTPClient: p.client, HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}})
				if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("a WebSocket with the key %q: %v", key, err)
				}
			}
			if state, err := p.eng.Topic("news", false); err != nil || state.Count != 1 {
				t.Errorf("the topic has %d records, %v", state.Count, err)
			}
			if p.eng.TopicExists("mine") {
				t.Error("a write has come through")
			}
		}
		refused()
		time.Sleep(5 * time.Second)
		refused()

		// Whoever asks whether it lives may call it by any name.
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://10.1.2.3:4000/v0/health", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := p.client.Do(req)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		_ = resp.Body.Close()

		p.kill()
		p.keys = "key-a:rw," + own + ":r"
		p.start()
		time.Sleep(5 * time.Second)
		if status, body := p.call("key-a", "POST", "/v0/topics/news/diff", `{}`); status != http.StatusOK {
			t.Errorf("with a key of a server that wants one: %d %s", status, body)
		}
		if status, _ := p.call("", "POST", "/v0/topics/news/diff", `{}`); status != http.StatusUnauthorized {
			t.Errorf("without: %d", status)
		}
		p.kill()
		p.keys = ""
		p.start()
		time.Sleep(5 * time.Second)
		refused()
	})
}

// What stands in front of a server, as a load balancer, may answer while that is away. It grants nobody
// anything, and says nothing about whether the server has keys.
func TestWhatStandsInFrontOfTheUpstreamGrantsNothing(t *testing.T) {
	for _, status := range []int{301, 403, 502} {
		for _, toAll := range []bool{false, true} {
			t.Run(fmt.Sprint(status, toAll), func(t *testing.T) {
				bubble.Run(t, func(t *testing.T) { standsInFront(t, status, toAll) })
			})
		}
	}
}

func standsInFront(t *testing.T, status int, toAll bool) {
	p := newPlace(t, "scraper:r", func(o *relay.Options) { o.OpenToAll = toAll })
	time.Sleep(time.Second)
	if status, body := p.call("scraper", "GET", "/metrics", ""); status != http.StatusOK {
		t.Fatal(status, body)
	}
	p.kill()
	gateway := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("<html>no way to the server</html>"))
	})}
	l := p.wire.listen()
	go gateway.Serve(l)
	p.wire.up()
	time.Sleep(10 * time.Second)
	if got, body := p.call("stranger", "GET", "/metrics", ""); got != http.StatusServiceUnavailable {
		t.Errorf("a stranger is shown metrics: %d %.100s", got, body)
	}
	if got, body := p.call("scraper", "GET", "/metrics", ""); got != http.StatusOK {
		t.Errorf("who was shown metrics before: %d %.100s", got, body)
	}
	if got, body := p.call("scraper", "GET", "/v0/topics", ""); got != status || strings.Contains(body, "without keys") {
		t.Errorf("a call that is passed on: %d %.300s", got, body)
	}
	p.wire.cut()
	gateway.Close()
	p.start()
	time.Sleep(5 * time.Second)
	if got, body := p.call("stranger", "GET", "/metrics", ""); got != http.StatusUnauthorized {
		t.Errorf("a stranger, once the server is back: %d %.100s", got, body)
	}
}
