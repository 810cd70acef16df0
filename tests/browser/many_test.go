package browser

import (
	"fmt"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// With more topics than the page has, it does not say of one that is there that it is not.
func TestTheFilterSaysThatItDoesNotSeeAllTopics(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	for i := range 1000 {
		write(t, s, fmt.Sprintf("busy%d", i), object{"type": "queue"}, object{"data": i})
	}
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody tr", "busy")
	b.click("input[type=search]", "")
	b.press("idle")
	b.sees(".empty", "No stream has that in its name.")
	write(t, s, "idle", object{"type": "log"}, object{"data": 1})
	b.sees(".empty", "None of the busiest streams has that in its name.")
	b.sees(".calm", "more topics than the dashboard reads")
	eval[any](b, `(() => { const f = document.querySelector("input[type=search]"); f.value = ""; f.dispatchEvent(new Event("input")); })()`)
	b.sees(".calm", "more: use the filter. There are more topics than the dashboard reads.")
	b.quiet()
}
