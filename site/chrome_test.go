package site

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// chrome is the browser of all tests; each opens a tab of its own in it.
var chrome context.Context

func TestMain(m *testing.M) {
	flag.Parse()
	// Once, before several tests build at the same time.
	if said, err := exec.Command("../scripts/mkdocs.sh").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "scripts/mkdocs.sh: %v\n%s", err, said)
		os.Exit(1)
	}
	os.Exit(withChrome(m.Run))
}

func withChrome(run func() int) int {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // in CI the tests are root's
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
	defer func() { _ = os.RemoveAll(out.dir) }()
	return run()
}

// tab is one page, and what the browser says of it.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	asked  []string // the address of each request
	errors []string // what the console shows in red or yellow
}

func newTab(t *testing.T) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(chrome, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx}
	t.Cleanup(closeTab)
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
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *tab) heard(ev any) {
	if sent, ok := ev.(*network.EventRequestWillBeSent); ok {
		b.mu.Lock()
		b.asked = append(b.asked, sent.Request.URL)
		b.mu.Unlock()
	}
}

// dress sets what the person prefers: dark or light.
func (b *tab) dress(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// holds waits until a JavaScript expression is true.
func (b *tab) holds(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 90*time.Second)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")", chromedp.EvalAwaitPromise))
		if ok && err == nil {
			return
		}
		if ctx.Err() != nil {
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText.slice(0, 2000)"))
			b.t.Fatalf("waited in vain: %s (%v); the page shows %s", what, err, text)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// alone fails the test if the page asked another origin, or complained.
func (b *tab) alone(url string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.errors {
		b.t.Errorf("the console says: %s", e)
	}
	if len(b.asked) < 4 {
		b.t.Errorf("only %d requests were seen", len(b.asked))
	}
	for _, asked := range b.asked {
		if !strings.HasPrefix(asked, url+"/") && !strings.HasPrefix(asked, "data:") {
			b.t.Errorf("the page asks another origin: %s", asked)
		}
	}
}

func TestPagesInABrowserAreQuietAndAskNobodyElse(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.FileServer(http.Dir(built(t))))
	t.Cleanup(server.Close)
	const pictures = `[...document.images].every((i) => i.complete && i.naturalWidth > 0)`
	for page, shows := range map[string]string{
		"index.html":                 "Start in five minutes",
		"START.html":                 "Leave it running",
		"CONCEPTS.html":              "A queue heals itself",
		"API.html":                   "POST /v0/topics/orders",
		"COMMANDS.html":              "weir topic truncate",
		"guides/workers.html":        "kill -9",
		"decisions/0001-layout.html": "",
	} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(page+" "+scheme, func(t *testing.T) {
				b := newTab(t)
				b.dress(scheme)
				b.do(chromedp.Navigate(server.URL + "/" + page))
				b.holds("it shows "+shows, fmt.Sprintf("document.querySelector('article').innerText.includes(%q)", shows))
				b.holds("its pictures are there", pictures)
				b.holds("the scheme is "+scheme, fmt.Sprintf(`(document.body.dataset.mdColorScheme === "slate") === (%q === "dark")`, scheme))
				b.alone(server.URL)
			})
		}
	}
}

// The index is in the site, and the browser looks through it itself.
func TestSearchFindsWithoutAskingAnybody(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.FileServer(http.Dir(built(t))))
	t.Cleanup(server.Close)
	b := newTab(t)
	b.do(chromedp.Navigate(server.URL + "/index.html"))
	b.holds("there is a field to search in", `document.querySelector(".md-search__input")`)
	b.do(chromedp.Click("[for=__search], .md-search__input"), chromedp.SendKeys(".md-search__input", "tombstone"))
	b.holds("the results lead to pages of this site", `[...document.querySelectorAll(".md-search-result__link")].some((a) => a.href.includes("CONTRACT.html") || a.href.includes("API.html"))`)
	b.alone(server.URL)
}
