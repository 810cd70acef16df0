package relay_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// Whoever has signed in on the dashboard of a relay may do there what the server's own dashboard lets
// them do, and pages of others may not do it for them.
func TestTheCookieOfADashboardCountsThroughARelay(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		p := newPlace(t, "key-a:rw+del")
		queue := api.DefaultConfig()
		queue.Type = api.TypeQueue
		for topic, config := range map[string]*api.Config{"q": &queue, "q.dlq": nil} {
			if _, err := p.eng.Write(context.Background(), topic, &api.WriteRequest{Config: config, Records: []api.Record{{Data: []byte("1")}}}); err != nil {
				t.Fatal(err)
			}
		}
		cookie := ""
		ask := func(method, path, body string, head ...string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1:4000"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			if cookie != "" {
				req.Header.Set("Cookie", cookie)
			}
			for i := 0; i < len(head); i += 2 {
				req.Header.Set(head[i], head[i+1])
			}
			resp, err := p.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body) // a part will do
			if set := resp.Cookies(); len(set) > 0 {
				cookie = set[0].Name + "=" + set[0].Value
			}
			return resp.StatusCode, string(text)
		}
		const own = "http://127.0.0.1:4000"
		if status, body := ask("POST", "/ui/session", `{"key":"key-a"}`, "Origin", own); status != http.StatusNoContent || cookie == "" {
			t.Fatal(status, body)
		}
		for _, c := range []struct {
			method, path string
			head         []string
			want         int
		}{
			{"GET", "/ui/letters/q", nil, 200},
			{"GET", "/ui/letters/q", []string{"Sec-Fetch-Site", "same-origin"}, 200},
			{"GET", "/ui/letters/q", []string{"Sec-Fetch-Site", "same-site"}, 401},
			{"GET", "/ui/letters/q", []string{"Origin", "http://127.0.0.1:9"}, 401},
			{"GET", "/v0/topics/q/work?node=n", []string{"Sec-Fetch-Site", "same-site"}, 401},
			{"POST", "/ui/purge/q", nil, 401},
			{"POST", "/ui/purge/q", []string{"Origin", "http://127.0.0.1:9"}, 403},
			{"POST", "/ui/purge/q", []string{"Origin", own, "Sec-Fetch-Site", "cross-site"}, 403},
			{"POST", "/ui/purge/q", []string{"Origin", own}, 200},
			{"POST", "/ui/purge/q", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}, 200},
		} {
			if status, body := ask(c.method, c.path, `{"all":true}`, c.head...); status != c.want {
				t.Errorf("%s %s with %q: %d, want %d: %.200s", c.method, c.path, c.head, status, c.want, body)
			}
		}
		if state, err := p.eng.Topic("q.dlq", false); err != nil || state.Count != 0 {
			t.Errorf("%d dead letters are left, %v", state.Count, err)
		}
	})
}

// A sign-in holds where the browser is, whether that or the upstream has TLS or not.
func TestACookieIsForTLSIfTheRelayHasIt(t *testing.T) {
	for _, upstream := range []bool{false, true} {
		set := &http.Cookie{Name: "weir_session", Value: "x", Path: "/", MaxAge: 10, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: upstream}
		r, _ := front(t, func(w http.ResponseWriter, _ *http.Request) { http.SetCookie(w, set) })
		for _, secure := range []bool{false, true} {
			s := httptest.NewUnstartedServer(r)
			if secure {
				s.StartTLS()
			} else {
				s.Start()
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/ui/session", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Forwarded-Proto", "https") // of whoever says so
			resp, err := s.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			want := *set
			want.Secure = secure
			if got := resp.Header.Get("Set-Cookie"); got != want.String() {
				t.Errorf("with TLS at the upstream %v, at the relay %v: %s, want %s", upstream, secure, got, &want)
			}
			s.Close()
		}
	}
}
