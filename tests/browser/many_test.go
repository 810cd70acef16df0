package browser

import (
	"fmt"
	"strings"
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

// The filter finds a name in whatever letters it is typed: a phone begins with a large one.
func TestTheFilterIgnoresTheCaseOfLetters(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	write(t, s, "Orders", object{"type": "queue"}, object{"data": 1})
	write(t, s, "bills", object{"type": "queue"}, object{"data": 1})
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody tr", "Orders")
	b.click("input[type=search]", "")
	b.press("oRD")
	b.sees("tbody", "Orders")
	b.holds("the other is not listed", `!document.querySelector("tbody").textContent.includes("bills")`)
}

// A topic with the longest name takes no room from what is said of it, and of the others.
func TestALongNameLeavesTheNumbersInSight(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	write(t, s, strings.Repeat("x", 255), object{"type": "queue"}, object{"data": 1})
	write(t, s, "jobs", object{"type": "queue"}, object{"data": 1})
	b := newTab(t)
	for _, width := range []int64{1280, 420} {
		b.size(width, 900)
		b.open(s.URL)
		b.sees("tbody", "jobs")
		b.holds("the numbers are in sight", `document.querySelector(".streams th:nth-child(3)").getBoundingClientRect().right <= innerWidth`)
		b.sees(".findings", "no worker asks for work")
		b.holds("what is wrong can be read", `[...document.querySelectorAll(".findings li > :nth-child(3)")].every((e) => e.getBoundingClientRect().width > 250)`)
	}
}
