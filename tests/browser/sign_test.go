package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp/kb"

	"github.com/weirmq/weir/tests/weirtest"
)

func TestSigningInAndOut(t *testing.T) {
	t.Parallel()
	const key, other = "correct-horse", "other-key"
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=" + key + ":rw+admin," + other + ":r:in."}})
	publish(t, "http://:"+key+"@"+s.Addr+"/out.orders", "one")
	b := newTab(t)
	b.open(s.URL)
	b.sees("h1", "Sign in")
	b.sees("#link", "signed out")
	b.holds("the field has the focus", `document.activeElement?.id === "key"`)
	b.press("wrong-key" + kb.Enter)
	b.sees("[role=alert]", "The server does not know this key.")
	b.press(key + kb.Enter) // the wrong one is selected
	b.sees("#link", "live")
	b.sees("tbody tr", "out.orders")
	b.holds("no script can read the cookie", `document.cookie === ""`)
	b.open(s.URL + "/#/s/out.orders")
	b.sees(".head", "queue")
	eval[any](b, "location.reload()")
	b.sees(".head", "queue")

	second := newTab(t)
	second.open(s.URL)
	second.sees("h1", "Sign in")
	second.press(other + kb.Enter)
	second.sees(".empty", "There is no stream yet") // of those the key may see

	cookies := call(b, network.GetCookies, network.GetCookiesParams{}).Cookies
	if len(cookies) != 1 || strings.Contains(cookies[0].Value, key) || !cookies[0].HTTPOnly {
		t.Fatalf("cookies: %+v", cookies)
	}
	b.click("header button", "Sign out")
	b.sees("h1", "Sign in")
	if text := b.text("body"); strings.Contains(text, "out.orders") {
		t.Errorf("whoever signed out still sees %q", text)
	}
	call(b, network.SetCookie, network.SetCookieParams{Name: cookies[0].Name, Value: cookies[0].Value, URL: s.URL})
	b.open(s.URL + "/?again")
	b.sees("h1", "Sign in") // the session is over for whoever kept the cookie, too
	b.stays(s.URL, key, other)
	second.stays(s.URL, key, other)
}

// Whoever signs in with a key that may not see the page is told so, and can take another.
func TestAKeyThatMayNotReadSignsNobodyIn(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=writer:w,reader:r"}})
	b := newTab(t)
	b.open(s.URL)
	b.sees("h1", "Sign in")
	b.press("writer" + kb.Enter)
	b.sees("[role=alert]", "this call needs read")
	if cookies := call(b, network.GetCookies, network.GetCookiesParams{}).Cookies; len(cookies) != 0 {
		t.Errorf("cookies: %+v", cookies)
	}
	b.press("reader" + kb.Enter) // the other one is selected
	b.sees("#link", "live")
}

// A session that ends takes its open pages with it.
func TestTheEndOfASessionEndsItsPages(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=secret:rw+admin"}})
	b := newTab(t)
	b.open(s.URL)
	b.sees("h1", "Sign in")
	b.press("secret" + kb.Enter)
	b.sees("#link", "live")
	eval[any](b, `fetch("/ui/session", { method: "DELETE" })`) // as another tab does
	b.sees("h1", "Sign in")
	b.sees("#link", "signed out")
}

// Numbers that are still asked for when the form is there neither clear it nor come twice later.
func TestWhatIsTypedIntoTheFormStays(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=secret:rw+admin"}})
	for _, first := range []string{"the numbers are refused", "somebody signs in"} {
		b := newTab(t)
		b.open(s.URL)
		b.sees("h1", "Sign in")
		b.press("secret" + kb.Enter)
		b.sees("#link", "live")
		eval[any](b, `(() => {
			const real = fetch;
			window.asked = 0;
			window.fetch = async (path, options) => {
				if (path === "/ui/live" && ++window.asked === 1) {
					options.signal.onabort = () => { window.late = true; };
					await new Promise((go) => { window.release = go; });
				}
				return real(path, options);
			};
			return real("/ui/session", { method: "DELETE" });
		})()`)
		b.holds("the numbers are asked for again", "window.release")
		eval[any](b, `location.hash = "#/s/orders"`)
		b.sees("h1", "Sign in")
		if first == "somebody signs in" {
			b.press("secret" + kb.Enter)
			b.holds("the form is gone", `!document.querySelector("form.sign")`)
			eval[any](b, "window.release()")
			b.sees("#link", "live")
			// On a slow machine the page may have lost its patience with the first ones.
			if n := eval[int](b, "window.asked"); n != 1 && !eval[bool](b, "!!window.late") {
				t.Errorf("the page follows the numbers %d times", n)
			}
			continue
		}
		b.press("secr")
		eval[any](b, `document.querySelector("form").marked = true, window.release()`)
		b.holds("the numbers are refused", `performance.getEntriesByName(location.origin + "/ui/live").some((e) => e.responseStatus === 401)`)
		b.press("et" + kb.Enter)
		b.sees("#link", "live")
	}
}

// A server that is away cannot end a session, and the page says so.
func TestSigningOutOfAServerThatIsAwayIsSaidToFail(t *testing.T) {
	t.Parallel()
	s := weirtest.Start(t, weirtest.Options{Stays: true, Env: []string{"WEIR_API_KEYS=secret:rw+admin"}})
	b := newTab(t)
	b.open(s.URL)
	b.sees("h1", "Sign in")
	b.press("secret" + kb.Enter)
	b.sees("#link", "live")
	s.Kill()
	b.sees("#link", "reconnecting")
	b.click("header button", "Sign out")
	b.sees("dialog", "You are still signed in.")
	b.click("dialog button", "Try again")
	b.sees("dialog", "You are still signed in.")
	s.Restart()
	b.click("dialog button", "Try again")
	b.sees("h1", "Sign in")
}
