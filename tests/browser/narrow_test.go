package browser

import "testing"

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
