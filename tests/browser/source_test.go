package browser

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// A page with nothing but an EventSource misses nothing over kills of the server: it connects
// again by itself, and its session is still there.
func TestAnEventSourceGoesOnAfterAKill(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{Stays: true})
	b := newTab(t)
	b.open(s.URL)
	write(t, s, "news", object{"durability": "fsync"}, object{"data": "0"})
	eval[any](b, `(async () => {
		const answer = await fetch("/v0/watch", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ topics: { news: { from_seq: 0 } } }) });
		window.got = [];
		window.source = new EventSource("/v0/watch/" + (await answer.json()).wid);
		source.addEventListener("record", (e) => got.push(...JSON.parse(e.data).records.map((r) => r.data)));
	})()`)
	want := "0"
	for _, text := range strings.Fields("1 2 3") {
		b.holds("the page has "+want, `window.got?.join(" ") === %s`, js(want))
		s.Kill()
		s.Restart()
		write(t, s, "news", nil, object{"data": text})
		want += " " + text
	}
	b.holds("the page has "+want, `window.got?.join(" ") === %s`, js(want))
}
