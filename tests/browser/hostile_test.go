package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// What others wrote is shown as they wrote it, and does nothing.
func TestWhatOthersWroteIsText(t *testing.T) {
	t.Parallel()
	const (
		script = `<script>window.pwned = 1</script><img src="x" onerror="window.pwned = 1"><b>bold</b>`
		turned = "start\u202edne\u2066 \u0085 \ufeff\u200bend"
	)
	s := weirtest.Start(t, weirtest.Options{})
	write(t, s, "constructor", object{"type": "queue"}, object{"data": "constructor"})
	write(t, s, "huge", object{"type": "log"}, object{"data": 1}, object{"data": strings.Repeat("long ", 200_000)})
	records := []object{
		{"data": strings.Repeat("long ", 200_000)},
		{"data": script, "tag": script, "meta": object{"note": script, script: "key"}},
		{"data": turned, "tag": turned},
		{"data": "gP8AAQ==", "meta": object{"weir-encoding": "base64"}},
		{"data": "nul \x00 bell \x07 escape \x1b[31m"},
		{"data": deep(120)},
		{"data": nil},
	}
	for _, topic := range []string{"log", "queue"} {
		for _, r := range records {
			write(t, s, topic, object{"type": topic}, r)
		}
	}
	b := newTab(t)
	for _, topic := range []string{"log", "queue", "huge", "constructor"} {
		b.open(s.URL)
		b.sees("tbody tr", topic)
		b.click("tbody a", topic)
		b.sees("h1", topic)
		want := []string{"null", "escape", script[:26], `start\u202edne\u2066 \u0085 \ufeff\u200bend`}
		switch topic {
		case "constructor":
			want = []string{topic}
		case "huge":
			want = []string{"long long"}
		}
		for _, w := range want {
			b.sees(".records", w)
		}
		if n := eval[int](b, "document.documentElement.outerHTML.length"); n > 300_000 {
			t.Errorf("%s: a record of 1 MB makes a page of %d characters", topic, n)
		}
		if eval[bool](b, `"pwned" in window || document.querySelector("main b[onerror], main script, main img") !== null`) {
			t.Errorf("%s: a record became a part of the page", topic)
		}
		if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s: a record makes the page %d pixels too wide", topic, wide)
		}
	}
	for _, name := range []string{"%3Cimg%20src=x%20onerror=pwned%3E", "%", "%E2%80%AEabc", "../../v0/topics", strings.Repeat("x", 5000)} {
		b.open(fmt.Sprintf("%s/#/s/%s", s.URL, name))
		b.sees(".empty", "")
		b.sees("#link", "live")
	}
	b.stays(s.URL)
	if eval[bool](b, `"pwned" in window || document.querySelector("main img") !== null`) {
		t.Error("an address became a part of the page")
	}
}

// deep is a list in a list and so on.
func deep(n int) any {
	if n == 0 {
		return []any{}
	}
	return []any{deep(n - 1)}
}
