package browser

import (
	"fmt"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	"github.com/weirmq/weir/tests/process"
	"github.com/weirmq/weir/tests/weirtest"
)

// away is a Redis that can be killed, and the page of `weir dash` for a stream on it.
type away struct {
	t         *testing.T
	port      int
	dir       string
	running   *process.Process
	url, page string
}

func newAway(t *testing.T) *away {
	t.Helper()
	port, err := process.FreePort(0)
	if err != nil {
		t.Fatal(err)
	}
	a := &away{t: t, port: port, dir: t.TempDir(), url: fmt.Sprintf("redis://127.0.0.1:%d/0?stream=bills", port)}
	a.start()
	t.Cleanup(func() { a.kill() })
	publish(t, a.url, "bill-0")
	dash := weirtest.Go(t, nil, "dash", "--listen=127.0.0.1:0", a.url)
	at := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)\n`)
	weirtest.Eventually(t, "the address of the dashboard", func() bool {
		found := at.FindStringSubmatch(dash.Stdout.String())
		if found != nil {
			a.page = found[1]
		}
		return found != nil
	})
	return a
}

func (a *away) start() {
	a.t.Helper()
	var err error
	a.running, err = process.Start(exec.Command("redis-server", "--port", fmt.Sprint(a.port), "--bind", "127.0.0.1", "--dir", a.dir,
		"--logfile", a.dir+"/redis.log", "--save", "", "--appendonly", "yes"))
	if err != nil {
		a.t.Fatal(err)
	}
	weirtest.Eventually(a.t, "Redis", func() bool {
		_, _, code := weirtest.Run(a.t, nil, "sample", a.url)
		return code == 0
	})
}

func (a *away) kill() { a.running.End(syscall.SIGKILL) }

// Who held what before a Redis went away is not who holds what now.
func TestAStreamThatDoesNotAnswerShowsNothingOld(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	hold := newGate(t)
	hold.shut()
	weirtest.Go(t, nil, append([]string{"work", a.url, "--consumer", "holder", "--"}, hold.handler()...)...)
	b := newTab(t)
	b.open(a.page + "/#/s/bills")
	b.sees("[aria-label='In work']", "holder")
	a.kill()
	b.sees(".card", "no answer")
	b.holds("nothing old is there", `![...document.querySelectorAll("table")].some((e) => e.checkVisibility() && e.innerText.includes("holder"))`)
	a.start()
	b.sees("[aria-label='In work']", "holder")
}

// A topic that was deleted has no figures, and nothing that could be done to it.
func TestAStreamThatIsGoneShowsNothingOld(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/orders"
	publish(t, url, "one")
	fail(t, url)
	publish(t, url, "two", "three")
	b := newTab(t)
	b.open(s.URL + "/#/s/orders")
	b.sees(".tile", "2")
	b.sees("table.letters", "one")
	b.sees(".findings", "1 dead letter")
	weirtest.Must(t, "topic", "rm", "--yes", url)
	b.sees(".head", "It is not there any more.")
	b.holds("nothing old is there", `![...document.querySelectorAll(".card, .tile, .findings, table, .records, .actions button")].some((e) => e.checkVisibility())`)
	b.holds("nor in the charts", `![...document.querySelectorAll("figcaption b")].some((e) => /\d/.test(e.innerText))`)
	publish(t, url, "four", "five", "six")
	b.sees(".tile", "3")
	b.sees(".records", "six")
	b.holds("the page is as before", `document.querySelector(".card").checkVisibility() && !document.querySelector(".head").innerText.includes("not there")`)
}
