package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// chrome is the browser of all tests; each opens a profile and a tab of its own in it.
var chrome context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(withChrome(m.Run))
}

func withChrome(run func() int) int {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // in CI the tests are root's
		chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(2*time.Minute))
	all, end := chromedp.NewExecAllocator(context.Background(), options...)
	defer end()
	var closeAll context.CancelFunc
	chrome, closeAll = chromedp.NewContext(all)
	defer closeAll()
	if err := chromedp.Do(chrome); err != nil {
		fmt.Fprintln(os.Stderr, "Chromium does not start; make deps installs it:", err)
		return 1
	}
	return run()
}

// tab is one page that somebody looks at, and what the browser says of it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	asked    []string // the address of each request
	received float64  // bytes of answers that are complete, as they came over the line
	errors   []string // what the console shows in red
}

// newTab opens an empty page of a browser that has been nowhere before. It is closed at
// the end of the test.
func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			b.show()
		}
		closeTab()
	})
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	console := chromedp.Console(ctx)
	go func() {
		for m, err := range console {
			if err == nil && (m.IsException() || m.Type == "error" || m.Type == "warning") {
				b.mu.Lock()
				b.errors = append(b.errors, m.String())
				b.mu.Unlock()
			}
		}
	}()
	call(b, network.Enable, network.EnableParams{})
	call(b, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	b.size(1280, 800)
	return b
}

// show logs what was on the page when the test failed, and keeps a picture of it in the
// directory that WEIRTEST_PICTURES names.
func (b *tab) show() {
	text, err := try[string](b, "location.href + '\\n' + document.body.innerText")
	b.t.Logf("the page shows (%v):\n%s\nconsole: %q", err, text, b.errors)
	if dir := os.Getenv("WEIRTEST_PICTURES"); dir != "" {
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, b.t.Name()+".png"), picture, 0o600)
		}
		b.t.Logf("picture: %v", err)
	}
}

func (b *tab) heard(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, ev.Request.URL)
	case *network.EventLoadingFinished:
		b.received += ev.EncodedDataLength
	}
}

// call sends a command of the protocol.
func call[P, R any](b *tab, cmd cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, cmd, params)
	if err != nil {
		b.t.Fatalf("%T: %v", params, err)
	}
	return r
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) size(width, height int64) { b.do(chromedp.EmulateViewport(width, height)) }

// dress sets what the person prefers: dark or light.
func (b *tab) dress(scheme string) {
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
}

func (b *tab) open(url string) { b.do(chromedp.Navigate(url)) }

// eval returns the value of a JavaScript expression, a promise's too.
func eval[T any](b *tab, format string, args ...any) T {
	b.t.Helper()
	v, err := try[T](b, fmt.Sprintf(format, args...))
	if err != nil {
		b.t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
	return v
}

func try[T any](b *tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// text is what the elements of a selector show, one line each.
func (b *tab) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `[...document.querySelectorAll(%s)].filter((e) => e.checkVisibility()).map((e) => e.innerText).join("\n")`, js(selector))
}

// sees waits until the elements of a selector show a text.
func (b *tab) sees(selector, want string) {
	b.t.Helper()
	b.holds(fmt.Sprintf("%s shows %q", selector, want),
		`[...document.querySelectorAll(%s)].some((e) => e.checkVisibility() && e.innerText.includes(%s))`, js(selector), js(want))
}

// patience is how long the page may take to show something on a busy machine.
const patience = 90 * time.Second

// holds waits until an expression is true.
func (b *tab) holds(what, format string, args ...any) {
	b.t.Helper()
	expression := "!!(" + fmt.Sprintf(format, args...) + ")"
	deadline := time.Now().Add(patience)
	for {
		ok, err := try[bool](b, expression)
		if ok && err == nil {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited in vain: %s (%v)", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// click clicks as a person does: in the middle of the first element that shows the text, and once
// more if the page has moved that away meanwhile. What is there instead never hears of it.
func (b *tab) click(selector, text string) {
	b.t.Helper()
	b.sees(selector, text)
	for range 20 {
		at := eval[[]float64](b, `(() => {
			const e = [...document.querySelectorAll(%s)].find((e) => e.checkVisibility() && e.innerText.includes(%s));
			if (!e) return [];
			e.scrollIntoView({ block: "center" });
			window.hit = false;
			removeEventListener("click", window.heard, true);
			window.heard = (click) => {
				removeEventListener("click", window.heard, true);
				window.hit = e.contains(click.target);
				if (window.hit) return;
				click.stopImmediatePropagation();
				click.preventDefault();
			};
			addEventListener("click", window.heard, true);
			const box = e.getBoundingClientRect();
			return [box.x + box.width / 2, box.y + box.height / 2];
		})()`, js(selector), js(text))
		if len(at) == 0 {
			b.sees(selector, text) // it is being replaced
			continue
		}
		b.do(chromedp.MouseClickXY(at[0], at[1]))
		if eval[bool](b, `window.hit ?? true`) { // a page that was left has none
			return
		}
	}
	b.t.Fatalf("%s with %q moves each time that it is clicked", selector, text)
}

func (b *tab) press(keys string) { b.do(chromedp.KeyEvent(keys)) }

func (b *tab) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.asked...)
}

// quiet fails the test if the console has an error or a warning.
func (b *tab) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		b.t.Errorf("the console says: %s", e)
	}
}

// stays fails the test if the page asked another host than url's, or put a secret into
// an address.
func (b *tab) stays(url string, secrets ...string) {
	b.t.Helper()
	asked := b.requests()
	if len(asked) < 5 {
		b.t.Errorf("only %d requests were seen", len(asked))
	}
	for _, r := range asked {
		if !strings.HasPrefix(r, url+"/") {
			b.t.Errorf("the page asks another host: %s", r)
		}
		for _, s := range secrets {
			if strings.Contains(r, s) {
				b.t.Errorf("a secret is in an address: %s", r)
			}
		}
	}
}

// js is a Go string as JavaScript.
func js(s string) string {
	b, _ := json.Marshal(s) // a string is always JSON
	return string(b)
}
