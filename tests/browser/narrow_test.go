package browser

import (
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

func TestAPhoneShowsThePageWithoutScrollingSideways(t *testing.T) {
	t.Parallel()
	s := burning(t)
	b := newTab(t)
	b.size(400, 800)
	for _, page := range []struct{ path, selector, text string }{
		{"/", "tbody tr", "letters.dlq"},
		{"/#/s/orders", ".records", "order 1"},
		{"/#/s/letters.dlq", ".records", "poison"},
		{"/#/s/" + "nothing", "main", "nothing"},
	} {
		b.open(s.URL + page.path)
		b.sees(page.selector, page.text)
		if page.path != "/#/s/nothing" {
			b.sees("figcaption", "Flow per second")
		}
		wide := eval[[]string](b, `document.documentElement.scrollWidth <= innerWidth ? [] :
			[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll")).map((e) => e.outerHTML.slice(0, 200))`)
		if len(wide) > 0 {
			t.Errorf("%s is wider than 400 pixels: %q", page.path, wide)
		}
	}
}

// A header whose name is long leaves room for its value.
func TestALongHeaderCanBeRead(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	write(t, s, "audit", object{"type": "log"}, object{"data": 1, "meta": object{strings.Repeat("key", 30): strings.Repeat("value", 40)}})
	b := newTab(t)
	b.open(s.URL)
	b.click("tbody a", "audit")
	b.sees(".records", "value")
	for _, width := range []int64{1280, 320} {
		b.size(width, 800)
		box := eval[[]float64](b, `(() => {
			const value = document.querySelector(".records dd").getBoundingClientRect(), all = document.querySelector(".records").closest(".scroll").getBoundingClientRect();
			return [value.width, value.height, value.right - all.right];
		})()`)
		if box[0] < 70 || box[1] > 600 || box[2] > 0 {
			t.Errorf("at %d pixels the value is %.0f wide, %.0f high, and ends %.0f behind the table", width, box[0], box[1], box[2])
		}
	}
}
