package browser

import (
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/weirmq/weir/tests/weirtest"
)

// Whoever goes through the page with the keyboard stays where they are while its numbers change.
func TestTheFocusStaysWhenTheNumbersChange(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	publish(t, s.URL+"/orders", many(3, "x")...)
	publish(t, s.URL+"/bills", many(2, "x")...)
	publish(t, s.URL+"/mails", "x")
	b := newTab(t)
	b.open(s.URL)
	b.sees(".findings", "1 message waits")
	b.holds("the order is that of what waits", `document.querySelector("tbody").innerText.match(/orders|bills|mails/g).join() === "orders,bills,mails"`)

	eval[any](b, `document.querySelector("tbody a[href$=bills]").focus()`)
	publish(t, s.URL+"/mails", many(9, "x")...)
	b.holds("the order is another", `document.querySelector("tbody").innerText.match(/orders|bills|mails/g).join() === "mails,orders,bills"`)
	b.holds("the row keeps the focus", `document.activeElement.matches("tbody a[href$=bills]")`)
	publish(t, s.URL+"/bills", many(20, "x")...)
	b.holds("the order is another", `document.querySelector("tbody").innerText.match(/orders|bills|mails/g).join() === "bills,mails,orders"`)
	b.holds("the row keeps the focus", `document.activeElement.matches("tbody a[href$=bills]")`)

	eval[any](b, `document.querySelector(".findings a[href$=orders]").focus()`)
	publish(t, s.URL+"/orders", "x")
	b.sees(".findings", "4 messages wait")
	b.holds("what is wrong keeps the focus", `document.activeElement.matches(".findings a[href$=orders]")`)
	b.press(kb.Enter)
	b.sees("h1", "orders")
	b.quiet()
}

// So does whoever unfolds the rest of what is wrong.
func TestTheRestOfWhatIsWrongKeepsTheFocus(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		publish(t, s.URL+"/"+name, "x")
	}
	b := newTab(t)
	b.open(s.URL)
	b.sees("summary", "2 more")
	eval[any](b, `document.querySelector("summary").focus()`)
	publish(t, s.URL+"/a", "x")
	b.sees(".findings", "2 messages wait")
	b.holds("the focus is where it was", `document.activeElement.matches("summary")`)
	b.press(" ")
	b.holds("the rest is unfolded", `document.querySelector("details").open`)
	publish(t, s.URL+"/a", "x")
	b.sees(".findings", "3 messages wait")
	b.holds("the rest stays unfolded and the focus where it was", `document.querySelector("details").open && document.activeElement.matches("summary")`)
	b.quiet()
}

// Nor does a table that is wider than the page jump back while somebody reads its end.
func TestATableThatWasScrolledSidewaysStaysSo(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	write(t, s, "orders", object{"type": "queue", "wait_slo_ms": 60_000}, object{"data": 1})
	b := newTab(t)
	b.size(320, 640)
	b.open(s.URL)
	b.click("tbody a", "orders")
	const table = `document.querySelector("[aria-label='Admission by priority']")`
	b.holds("the table is wider than the page", "%s && %s.scrollWidth > %s.clientWidth", table, table, table)
	eval[any](b, `%s.scrollLeft = 20, %s.focus()`, table, table)
	for i, waiting := range []string{"2", "3"} {
		write(t, s, "orders", nil, object{"data": i})
		b.holds("the numbers are new", `document.querySelector(".tile dd").innerText === %s`, js(waiting))
	}
	b.holds("the table is where it was", "%s.scrollLeft === 20 && document.activeElement === %s", table, table)
	b.quiet()
}

// Nor does the list of dead letters change under somebody who goes through it.
func TestTheListOfDeadLettersKeepsTheFocus(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{})
	url := s.URL + "/bills"
	publish(t, url, "bill-1", "bill-2")
	fail(t, url)
	b := newTab(t)
	b.open(s.URL)
	b.click("tbody a", "bills")
	b.sees("button.open", "bill-2")
	eval[any](b, `(window.at = document.querySelector("button.open")).focus()`)
	publish(t, url, "bill-3")
	fail(t, url)
	b.sees("button.quiet", "The list has changed")
	b.holds("the letter keeps the focus", `document.activeElement === window.at && window.at.isConnected`)
	b.press(kb.Enter)
	b.sees(".detail", "published to bills")
	b.quiet()
}
