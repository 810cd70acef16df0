package browser

import (
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// Two units are rounded together: a second less than two hours is not one.
func TestTimesAreRoundedAsAWhole(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	b := newTab(t)
	b.open(s.URL)
	for ms, want := range map[string]string{
		"0": "0", "0.25": "0.25 ms", "9.4": "9.4 ms", "999.6": "1.0 s", "1500": "1.5 s", "9970": "10 s", "59400": "59 s",
		"59700": "1 min 0 s", "119700": "2 min 0 s", "3599400": "59 min 59 s", "3599700": "1 h 0 min", "7199000": "2 h 0 min",
		"7169000": "1 h 59 min", "86399000": "1 d 0 h", "172799000": "2 d 0 h", "169000000": "1 d 23 h",
	} {
		if got := eval[string](b, `import("/ui/format.js").then((f) => f.ms(%s))`, ms); got != want {
			t.Errorf("%s ms are written as %q, want %q", ms, got, want)
		}
	}
}

// A letter is as old as the server's clock says, whatever that of the browser does, and gets older while
// somebody looks.
func TestLettersAgeByTheServersClock(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, "bill-1")
	fail(t, url)
	b := newTab(t)
	const died = `document.querySelector("table.letters tbody td:nth-child(2)")?.innerText`
	b.open(s.URL + "/#/s/bills")
	b.sees("table.letters td", "s ago")
	first := eval[string](b, died)
	b.holds("the letter gets older", `![%s, undefined].includes(%s)`, js(first), died)
	for _, hours := range []int{-5, 10} {
		eval[int](b, `(() => { const now = Date.now; Date.now = () => now() + %d * 3600000; location.hash = ""; return 0; })()`, hours)
		b.sees("h2", "Streams")
		eval[int](b, `(() => { location.hash = "#/s/bills"; return 0; })()`)
		b.holds("the letter is seconds or minutes old", `/^[0-9. (min)]+ s ago$/.test(%s) && !["1.0 s ago", %s].includes(%s)`, died, js(first), died)
	}
}
