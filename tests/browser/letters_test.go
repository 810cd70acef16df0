package browser

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/weirmq/weir/tests/weirtest"
)

// fail has a worker give up each message of a queue at once.
func fail(t *testing.T, url string) {
	t.Helper()
	_, stderr, code := weirtest.Run(t, nil, "work", url, "--max-deliveries", "1", "--until-empty", "50ms", "--", "false")
	if code != 3 { // with dead letters
		t.Fatalf("weir work ended with code %d: %s", code, stderr)
	}
}

// finish has workers do what a queue holds, and returns the messages in their order.
func finish(t *testing.T, url string) []string {
	t.Helper()
	done := filepath.Join(t.TempDir(), "done")
	weirtest.Must(t, "work", url, "--workers", "1", "--until-empty", "50ms", "--", "sh", "-c", `cat >> "$0"; echo >> "$0"`, done)
	text, err := os.ReadFile(done)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Fields(string(text))
	slices.Sort(all)
	return all
}

func TestDeadLettersAreSentBackAndPurgedFromThePage(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, "bill-1", "bill-2", "bill-3", "bill-4")
	fail(t, url)
	b := newTab(t)
	b.open(s.URL)
	b.sees(".findings", "4 dead letters")
	b.click("tbody a", "bills")
	rows := func(n int) {
		t.Helper()
		b.holds("the list has that many letters", `document.querySelectorAll("table.letters tbody tr:not(.detail)").length === %d`, n)
	}
	rows(4)
	b.click("button.open", "bill-3")
	b.sees(".detail", "published to bills")
	b.sees(".detail .history", "tried once")
	b.sees(".detail .payload", "bill-3")

	b.click("button", "Dry run")
	b.sees(".status", "4 dead letters would be sent back.")
	rows(4)
	box := `[...document.querySelectorAll("table.letters tbody tr")].find((e) => e.innerText.includes("bill-2")).querySelector("input")`
	eval[any](b, "%s.focus()", box)
	b.press(" ")
	b.sees(".actions", "1 dead letter chosen")
	b.click("button", "Send back")
	b.sees(".status", "1 dead letter was sent back.")
	rows(3)
	if got := finish(t, url); !slices.Equal(got, []string{"bill-2"}) {
		t.Errorf("workers got %q, want the one letter that was sent back", got)
	}

	b.sees(".actions", "all 3")
	b.click("button", "Purge")
	b.sees("dialog", "Purge all 3 dead letters?")
	b.press(kb.Enter) // the focus is on Cancel
	b.holds("the question is gone", `!document.querySelector("dialog")`)
	rows(3)
	eval[any](b, `[...document.querySelectorAll("table.letters tbody tr")].find((e) => e.innerText.includes("bill-4")).querySelector("input").click()`)
	b.click("button", "Purge")
	b.sees("dialog", "Purge 1 dead letter?")
	b.click("dialog button", "Purge")
	b.sees(".status", "1 dead letter is gone.")
	rows(2)
	b.sees(".actions", "all 2")
	b.click("button", "Send back")
	b.sees("dialog", "Send back all 2 dead letters?")
	b.click("dialog button", "Send back")
	b.sees(".status", "2 dead letters were sent back.")
	rows(0)
	if got := finish(t, url); !slices.Equal(got, []string{"bill-1", "bill-3"}) {
		t.Errorf("workers got %q, want all that were left", got)
	}
	b.quiet()
	b.stays(s.URL)
	for _, log := range []string{"dead letters are sent back", "dead letters are purged"} {
		if !strings.Contains(s.Stderr(), log) {
			t.Errorf("the server's log does not say %q", log)
		}
	}
}

// A list that was on its way when somebody chose takes the choice away neither from the page nor from the question.
func TestWhatIsPurgedIsWhatTheQuestionNamed(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, "bill-1", "bill-2", "bill-3")
	fail(t, url)
	b := newTab(t)
	b.open(s.URL)
	b.click("tbody a", "bills")
	rows := func(n int) {
		t.Helper()
		b.holds("the list has that many letters", `document.querySelectorAll("table.letters tbody tr:not(.detail)").length === %d`, n)
	}
	rows(3)
	eval[any](b, `(() => {
		const real = fetch;
		window.fetch = (path, options) => {
			if (window.held || !String(path).startsWith("/ui/letters/")) return real(path, options);
			window.held = true;
			return new Promise((go) => { window.release = go; }).then(() => real(path, options));
		};
	})()`)
	publish(t, url, "bill-4")
	fail(t, url)
	b.holds("the list is asked for", "window.held")
	eval[any](b, `[...document.querySelectorAll("table.letters tbody tr")].find((e) => e.innerText.includes("bill-2")).querySelector("input").click()`)
	b.click("button", "Purge")
	b.sees("dialog", "Purge 1 dead letter?")
	eval[any](b, "window.release()")
	b.sees("button.quiet", "The list has changed")
	b.click("dialog button", "Purge")
	b.sees(".status", "1 dead letter is gone.")
	rows(3)
	b.holds("the letter that was chosen is gone", `!document.querySelector("table.letters").innerText.includes("bill-2")`)

	b.sees(".actions", "all 3")
	b.click("button", "Purge")
	b.sees("dialog", "Purge all 3 dead letters?")
	publish(t, url, "bill-5")
	fail(t, url)
	b.click("dialog button", "Purge")
	b.sees(".status", "3 dead letters are gone.")
	rows(1)
	b.holds("what died behind the question is there", `document.querySelector("table.letters").innerText.includes("bill-5")`)
	b.quiet()
}

func TestDeadLettersThatCouldNotBeReadAreReadAgain(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, "bill-1")
	fail(t, url)
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody a", "bills")
	eval[any](b, `(() => {
		const real = fetch, lost = () => new Response('{"error":{"message":"the log is read"}}', { status: 503 });
		window.fetch = (path, options) => (window.back || !String(path).startsWith("/ui/letters/") ? real(path, options) : Promise.resolve(lost()));
	})()`)
	b.click("tbody a", "bills")
	b.sees(".status", "the log is read")
	eval[any](b, "window.back = true")
	b.sees("button.open", "bill-1")
	b.holds("what was wrong is forgotten", `document.querySelector(".status").innerText === ""`)
	b.quiet()
}

// What a dead letter says comes from strangers, too.
func TestDeadLettersOfStrangersAreText(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, `<script>window.pwned = 1</script>`, "start\u202edne", strings.Repeat("long ", 100_000))
	write(t, s, "bills", nil, object{"data": "gP8AAQ==", "meta": object{"weir-encoding": "base64"}})
	fail(t, url)
	b := newTab(t)
	b.open(s.URL)
	b.click("tbody a", "bills")
	b.sees("table.letters", "bytes that are not text")
	for _, shown := range []struct{ row, want string }{
		{"script", "<script>window.pwned = 1</script>"},
		{"start", `start\u202edne`},
		{"long", "500 kB; the first 2,000 are shown"},
		{"not text", "80 ff 00 01"},
	} {
		b.click("button.open", shown.row)
		b.sees(".detail", shown.want)
	}
	b.click("button", "Show more")
	b.holds("all of it is there", `[...document.querySelectorAll(".payload")].some((e) => e.innerText.length === 500_000)`)
	if eval[bool](b, `"pwned" in window || document.querySelector("main script") !== null`) {
		t.Error("a dead letter became a part of the page")
	}
	if wide := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
		t.Errorf("a dead letter makes the page %d pixels too wide", wide)
	}
	b.quiet()
}

// A worker may be quicker to give a letter up again than the page is to read that it was gone.
func TestALetterThatDiesAgainAtOnceIsListed(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, "bill-1")
	fail(t, url)
	weirtest.Go(t, nil, "work", url, "--max-deliveries", "1", "--", "false")
	b := newTab(t)
	b.open(s.URL)
	b.click("tbody a", "bills")
	b.sees(".card", "nominal")
	first := eval[string](b, `fetch("/ui/letters/bills").then((r) => r.json()).then((p) => p.letters[0].id)`)
	for range 3 {
		b.sees("table.letters", "bill-1")
		b.click("button", "Send back")
		b.click("dialog button", "Send back")
		b.sees(".status", "1 dead letter was sent back.")
		b.holds("it is listed again, as another letter", `[...document.querySelectorAll("table.letters input")].some((e) => e.checkVisibility() && e.ariaLabel.startsWith("Choose") && !e.ariaLabel.endsWith("listed") && e.ariaLabel !== %s)`, js("Choose "+first))
		first = strings.TrimPrefix(eval[string](b, `document.querySelector("table.letters tbody input").ariaLabel`), "Choose ")
	}
	b.quiet()
}

// What a redrive had done before it failed is said with why it failed, though the list cannot be read then.
func TestARedriveThatEndsHalfwaySaysBoth(t *testing.T) {
	t.Parallel()
	a := newAway(t)
	publish(t, a.url, many(20, "bill")...)
	fail(t, a.url)
	b := newTab(t)
	b.open(a.page + "/#/s/bills")
	b.sees(".actions", "all 21")
	eval[any](b, `document.querySelector("#rate").value = "1"`)
	b.click("button", "Send back")
	b.click("dialog button", "Send back")
	b.holds("several are sent", `/^([2-9]|1\d) sent back…/.test(document.querySelector(".status").innerText)`)
	a.kill()
	b.holds("it says what was sent, and why not all", `/^\d+ dead letters were sent back, .*: .*refused/.test(document.querySelector(".status").innerText)`)
	b.sees(".findings", "It cannot be read")
	b.holds("it still does", `/^\d+ dead letters were sent back, .*: .*refused/.test(document.querySelector(".status").innerText)`)
}
