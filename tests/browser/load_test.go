package browser

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// maxFirstLoad is what the page may take of a line when it is opened for the first time.
const maxFirstLoad = 150 << 10

func TestThePageIsSmallQuietAndAsksNobodyElse(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	b := newTab(t)
	b.open(s.URL)
	b.sees("#link", "live")
	b.sees(".empty", "There is no stream yet")
	b.mu.Lock()
	if b.received < 5<<10 || b.received > maxFirstLoad {
		t.Errorf("the first load takes %.0f bytes of the line, want at most %d", b.received, maxFirstLoad)
	}
	t.Logf("the first load takes %.0f bytes", b.received)
	b.mu.Unlock()

	publish(t, s.URL+"/orders", "first", "second")
	b.sees("tbody tr", "orders")
	b.sees(".findings", "2 messages wait")
	b.click("tbody a", "orders")
	b.sees("h1", "orders")
	b.sees(".records", "second")
	b.sees("figcaption", "Waiting and in work")
	if title := eval[string](b, "document.title"); !strings.Contains(title, "orders") {
		t.Errorf("the page of a stream has the title %q", title)
	}
	eval[any](b, "history.back()")
	b.sees("tbody tr", "orders")
	b.open(s.URL + "/#/s/nothing.here")
	b.sees("main", "nothing.here")
	b.quiet404()
	b.stays(s.URL)
}

// quiet404 allows what Chromium itself says of an address that is not there.
func (b *tab) quiet404() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		if !strings.Contains(e, "404") {
			b.t.Errorf("the console says: %s", e)
		}
	}
}

// A pointer that was left on the charts does not stop them.
func TestChartsUnderAPointerGoOn(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	publish(t, s.URL+"/jobs", "one")
	b := newTab(t)
	b.open(s.URL + "/#/s/jobs")
	b.click("figcaption", "Lag")
	eval[any](b, `(() => { const now = Date.now; window.was = document.querySelector(".charts figure"); Date.now = () => now() + 60000; })()`)
	b.holds("the charts are drawn anew", `document.querySelector(".charts").matches(":hover") && !window.was.isConnected`)
}
