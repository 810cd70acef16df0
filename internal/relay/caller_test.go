package relay_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/weirmq/weir/internal/relay"
)

// A key comes where the server itself takes one: in the query and among the protocols of a WebSocket
// for streams alone.
func TestWhoACallerIs(t *testing.T) {
	digest := func(key string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Authorization", "Bearer "+key)
		c := relay.CallerOf(r, false)
		return c.Digest()
	}
	for _, c := range []struct {
		query          string
		header         http.Header
		call, ofStream string // the key of a call, and of a stream
	}{
		{"", nil, "", ""},
		{"", http.Header{"Authorization": {"Bearer one"}}, "one", "one"},
		{"", http.Header{"Authorization": {"Bearer  one "}}, "one", "one"},
		{"?token=two", nil, "", "two"},
		{"?token=two", http.Header{"Authorization": {"Bearer one"}}, "one", "one"},
		{"", http.Header{"Upgrade": {"websocket"}, "Sec-Websocket-Protocol": {"weir, weir.token.three"}}, "", "three"},
		{"", http.Header{"Sec-Websocket-Protocol": {"weir, weir.token.three"}}, "", ""},
	} {
		r := httptest.NewRequest("GET", "/v0/topics"+c.query, nil)
		r.Header = c.header
		for stream, want := range map[bool]string{false: c.call, true: c.ofStream} {
			got := relay.CallerOf(r, stream)
			if got.Anonymous() != (want == "") || want != "" && got.Digest() != digest(want) {
				t.Errorf("%q with %v, stream %v: it is not %q", c.query, c.header, stream, want)
			}
		}
	}
}
