package browser

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/weirmq/weir/tests/weirtest"
)

// step is the time between two points of the history.
const step = 5 * time.Second

// aWholeStep waits until a step has begun and ended.
func aWholeStep() {
	time.Sleep(time.Until(time.Now().Truncate(step).Add(2*step + 100*time.Millisecond)))
}

// pieces waits until the line of a chart has at least n pieces.
func (b *tab) pieces(title string, n int) {
	b.t.Helper()
	b.holds(fmt.Sprintf("the line of %q has %d pieces", title, n), `(() => {
		const f = [...document.querySelectorAll("figure")].find((f) => f.innerText.includes(%s));
		return f && (f.querySelector(".line").getAttribute("d").match(/M/g) ?? []).length >= %d;
	})()`, js(title), n)
}

// A server that stands still says nothing of it: the page has to notice.
func TestAServerThatStandsStillIsNamedAndLeavesAGap(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	publish(t, s.URL+"/orders", "one")
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody tr", "orders")
	b.pieces("Waiting", 1)
	_ = s.Signal(syscall.SIGSTOP)
	b.sees("#link", "no answer")
	b.holds("what is old looks old", `getComputedStyle(document.querySelector("main")).opacity < 0.9`)
	aWholeStep()
	_ = s.Signal(syscall.SIGCONT)
	b.sees("#link", "live")
	b.holds("what is new does not", `getComputedStyle(document.querySelector("main")).opacity === "1"`)
	b.pieces("Waiting", 2)
	eval[any](b, "location.reload()")
	b.sees("#link", "live")
	b.pieces("Waiting", 2) // the server knows of the gap, too
	b.quiet()
}

func TestThePageComesBackWithTheServer(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{Stays: true})
	publish(t, s.URL+"/orders", "one")
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody tr", "orders")
	s.Kill()
	b.sees("#link", "reconnecting")
	s.Restart()
	b.sees("#link", "live")
	publish(t, s.URL+"/bills", "two")
	b.sees("tbody tr", "bills")

	// So does one that was gone to meanwhile.
	b.click("tbody a", "bills")
	b.sees("h1", "bills")
	s.Kill()
	b.sees("#link", "reconnecting")
	b.click(".mark", "weir")
	b.sees(".empty", "")
	s.Restart()
	b.sees("#link", "live")
	b.sees("tbody tr", "bills")

	// With keys a restart signs everybody out: the page asks, it does not try for ever.
	s.SetEnv([]string{"WEIR_API_KEYS=secret:rw+admin"})
	s.Restart()
	b.sees("h1", "Sign in")
}
