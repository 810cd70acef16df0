package relay_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/relay"
	"github.com/weirmq/weir/tests/bubble"
)

// The id that a client gives its request comes back as it does from a server: once.
func TestTheIDOfARequestComesBackOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "key-a:rw")
		for _, path := range []string{"/v0/topics", "/v0/health", "/v0/nothing", "/v0/watch/wid_none"} {
			for _, id := range []string{"mine", strings.Repeat("x", 129), ""} {
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:4000"+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer key-a")
				var want []string
				if id != "" {
					req.Header.Set("X-Request-Id", id)
				}
				if id == "mine" {
					want = []string{id}
				}
				resp, err := p.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if got := resp.Header["X-Request-Id"]; !slices.Equal(got, want) {
					t.Errorf("%s with %.10q: %d %.200q", path, id, resp.StatusCode, got)
				}
			}
		}
	})
}

// An answer that is passed on says nothing of web pages that the relay did not say, and still what
// else it depends on.
func TestWhatTheUpstreamSaysOfOriginsIsLeftOut(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header()["Vary"] = []string{"Origin, Accept-Encoding", "origin,, Accept"}
	}))
	defer upstream.Close()
	r, err := relay.New(relay.Options{Upstream: upstream.URL, OpenToAll: true, Limits: api.DefaultLimits(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	r.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/v0/topics", nil))
	h := answer.Result().Header
	if got := h["Vary"]; !slices.Equal(got, []string{"Accept-Encoding, Accept"}) || h.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%d %v", answer.Code, h)
	}
}
