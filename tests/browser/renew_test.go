package browser

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// otherPage is an event stream of a server whose page has other files.
type otherPage struct {
	io.ReadCloser
	other *atomic.Bool
}

// Read takes the digest out, without changing how much there is.
func (b otherPage) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.other.Load() {
		copy(p, strings.ReplaceAll(string(p[:n]), `"page":"`, `"edit":"`))
	}
	return n, err
}

// Whoever has the page open while the server is updated runs the scripts of before.
func TestAPageThatAnUpdateHasLeftBehindSaysSo(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	var other atomic.Bool
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(at) },
		ModifyResponse: func(r *http.Response) error {
			if r.Request.URL.Path == "/ui/live" {
				r.Body = otherPage{r.Body, &other}
			}
			return nil
		},
	})
	t.Cleanup(proxy.CloseClientConnections)
	b := newTab(t)
	b.open(proxy.URL)
	b.sees("#link", "live")
	b.holds("nothing is said while the page is the server's", `document.getElementById("renew").hidden`)
	other.Store(true)
	b.sees("#renew", "New version: reload")
	b.click("#renew", "reload")
	other.Store(false)
	b.holds("what was loaded is the server's", `document.getElementById("link").textContent === "live" && document.getElementById("renew").hidden`)
	b.quiet()
}
