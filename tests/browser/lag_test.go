package browser

import (
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/weirtest"
)

// The card follows the workers by itself: nobody reloads the page here.
func TestTheLagCardGoesThroughItsStates(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/jobs"
	publish(t, url, "one")
	b := newTab(t)
	b.open(s.URL)
	b.click("tbody a", "jobs")
	b.sees("h1", "jobs")
	shows := func(state, number, color string) {
		t.Helper()
		b.holds("the card says "+state+", "+number, `(() => {
			const card = document.querySelector(".card"), number = card.querySelector("b");
			const [r, g, b] = getComputedStyle(number).color.match(/\d+/g).map(Number);
			const color = r > 1.3 * g && r > 1.3 * b && g > b + 40 ? "amber" : r > 1.5 * g ? "red" : g > r && g > b ? "green" : "grey";
			return card.querySelector(".state").innerText === %s && number.innerText === %s && color === %s;
		})()`, js(state), js(number), js(color))
	}
	shows("worker off", "–", "grey")
	b.sees(".findings", "no worker asks for")

	slow := newGate(t)
	w := weirtest.Go(t, nil, append([]string{"work", url, "--workers", "220", "--batch", "100", "--"}, slow.handler()...)...)
	shows("nominal", "0", "green")
	slow.shut()
	publish(t, url, many(60, "slow")...)
	shows("elevated", "60", "amber")
	publish(t, url, many(150, "slow")...)
	shows("backpressure", "210", "red")
	b.sees(".findings", "210 messages are being worked on")
	slow.open()
	shows("nominal", "0", "green")
	w.Signal(syscall.SIGKILL)
	shows("worker off", "–", "grey")
	b.quiet()
}
