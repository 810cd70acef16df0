package browser

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/weirmq/weir/tests/weirtest"
)

// focused describes what has the focus: which element it is, its name, and whether anybody
// can see that it has it.
const focused = `(() => {
	const e = document.activeElement;
	if (!e || e === document.body) return [-1, "", true];
	const style = getComputedStyle(e), box = e.getBoundingClientRect();
	const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 && box.width > 0 && box.right > 0 && box.bottom > 0 && box.top < innerHeight;
	return [[...document.querySelectorAll("*")].indexOf(e), (e.getAttribute("aria-label") ?? e.innerText ?? e.id).trim().slice(0, 40), seen];
})()`

// walk presses Tab until the focus comes around, and returns what it met.
func (b *tab) walk() []string {
	b.t.Helper()
	met := map[float64]string{}
	for range 100 {
		b.press(kb.Tab)
		at := eval[[]any](b, focused)
		id, name, seen := at[0].(float64), at[1].(string), at[2].(bool)
		if _, again := met[id]; again && id >= 0 {
			return slices.Collect(maps.Values(met))
		}
		if !seen {
			b.t.Errorf("nobody sees that %q has the focus", name)
		}
		if id >= 0 {
			met[id] = name
		}
	}
	b.t.Fatalf("Tab does not come around: %v", met)
	return nil
}

// controls counts what of the page somebody can use.
func (b *tab) controls() int {
	b.t.Helper()
	return eval[int](b, `[...document.querySelectorAll("a, button, input, select, textarea, summary, [tabindex='0']")].filter((e) => e.checkVisibility() && !e.disabled).length`)
}

// reaches fails unless Tab reaches every control of the page, and each of want. A page that
// still grows, as on a busy machine, is walked again.
func (b *tab) reaches(want ...string) {
	b.t.Helper()
	var met []string
	var controls int
	for range 5 {
		controls = b.controls()
		if met = b.walk(); b.controls() == controls {
			break
		}
	}
	for _, w := range want {
		if !slices.ContainsFunc(met, func(m string) bool { return strings.Contains(m, w) }) {
			b.t.Errorf("Tab does not reach %q, only %q", w, met)
		}
	}
	if len(met) < controls {
		b.t.Errorf("the page has %d controls, Tab reaches %d: %q", controls, len(met), met)
	}
}

func TestEverythingWorksFromTheKeyboard(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	publish(t, s.URL+"/orders", many(3, "x")...)
	publish(t, s.URL+"/bills", "y")
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody tr", "orders")
	b.sees("figcaption", "Flow per second")
	b.reaches("Skip to content", "weir", "Filter", "Waiting", "orders", "bills", "Flow per second")

	eval[any](b, `document.querySelector("th button").focus()`)
	b.press(kb.Enter)
	b.holds("the table is sorted by name", `document.querySelector("th").getAttribute("aria-sort") === "ascending" && document.querySelector("tbody tr").innerText.startsWith("bills")`)
	b.press(" ")
	b.holds("and the other way round", `document.querySelector("th").getAttribute("aria-sort") === "descending" && document.querySelector("tbody tr").innerText.startsWith("orders")`)
	eval[any](b, `document.querySelector("input[type=search]").focus()`)
	b.press("bil")
	b.holds("the filter leaves one row", `document.querySelectorAll("tbody tr").length === 1`)
	eval[any](b, `document.querySelector("tbody a").focus()`)
	b.press(kb.Enter)
	b.sees("h1", "bills")
	b.holds("the focus is on the new page", `document.activeElement === document.querySelector("main")`)
	b.sees("figcaption", "Lag")
	b.reaches("weir", "Waiting and in work", "Age of the oldest")

	eval[any](b, `document.querySelector("svg.chart").focus()`)
	title := b.text("figcaption .title")
	b.press(kb.ArrowLeft)
	b.holds("an arrow moves along the chart and names the time", `/, \d\d:\d\d:\d\d/.test(document.querySelector("figcaption .title").innerText) && document.querySelector(".cross").getAttribute("visibility") === "visible"`)
	if strings.Contains(title, ":") {
		t.Errorf("without the focus the chart says %q", title)
	}
	b.quiet()
}
