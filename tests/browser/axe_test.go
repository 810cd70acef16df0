package browser

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/weirmq/weir/tests/weirtest"
)

// axeVersion is what scripts/axe.sh installs.
const axeVersion = "4.12.1"

// axe returns the rules of axe-core as a script.
func axe(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(home, ".cache")
	}
	script, err := os.ReadFile(filepath.Join(cache, "weir", "axe", axeVersion, "axe.min.js"))
	if err != nil {
		t.Fatalf("axe-core is missing, run make deps: %v", err)
	}
	return string(script)
}

type violation struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		FailureSummary string
	}
}

// judge fails the test for each serious finding of axe, in light and in dark.
func (b *tab) judge(rules, page string) {
	b.t.Helper()
	if !eval[bool](b, `"axe" in window`) {
		eval[any](b, "%s; 0", rules)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.dress(scheme)
		text := eval[string](b, `axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify({ violations: r.violations, passes: r.passes.length }))`)
		var result struct {
			Violations []violation
			Passes     int
		}
		if err := json.Unmarshal([]byte(text), &result); err != nil {
			b.t.Fatal(err)
		}
		if result.Passes < 10 {
			b.t.Errorf("%s, %s: axe looked at next to nothing: %d rules passed", page, scheme, result.Passes)
		}
		for _, v := range result.Violations {
			for _, n := range v.Nodes {
				report := b.t.Errorf
				if v.Impact != "serious" && v.Impact != "critical" {
					report = b.t.Logf
				}
				report("%s, %s: %s (%s): %s\n%s\n%s", page, scheme, v.ID, v.Impact, v.Help, n.HTML, n.FailureSummary)
			}
		}
	}
}

func TestAxeFindsNothingSerious(t *testing.T) {
	t.Parallel()
	rules := axe(t)
	s := burning(t)
	b := newTab(t)
	b.open(s.URL)
	b.sees("tbody tr", "letters.dlq")
	b.sees("figcaption", "Flow per second")
	b.judge(rules, "overview")
	b.click("tbody a", "letters.dlq")
	b.sees("h1", "letters.dlq")
	b.sees(".records", "poison")
	b.judge(rules, "dead letters")
	b.open(s.URL + "/#/s/letters")
	b.click("button.open", "poison")
	b.sees("pre", "poison")
	b.judge(rules, "letters of a queue")
	b.click("button", "Purge")
	b.sees("dialog", "Purge the only dead letter?")
	b.judge(rules, "question")
	b.press(kb.Escape)
	b.open(s.URL + "/#/s/orders")
	b.sees(".records", "order 1")
	b.judge(rules, "stream")

	guarded := weirtest.Start(t, weirtest.Options{Env: []string{"WEIR_API_KEYS=secret:rw+admin"}})
	b.open(guarded.URL)
	b.sees("h1", "Sign in")
	b.judge(rules, "sign-in")
	empty := weirtest.Start(t, weirtest.Options{})
	b.open(empty.URL)
	b.sees(".empty", "no stream yet")
	b.judge(rules, "empty")
}

// burning is a server of which several things are wrong.
func burning(t *testing.T) *weirtest.Server {
	t.Helper()
	s := weirtest.Start(t, weirtest.Options{})
	publish(t, s.URL+"/orders", "order 1", "order 2")
	publish(t, s.URL+"/letters", "poison")
	_, _, code := weirtest.Run(t, nil, "work", s.URL+"/letters", "--max-deliveries", "1", "--until-empty", "50ms", "--", "false")
	if code != 3 { // with a dead letter
		t.Fatalf("weir work ended with code %d", code)
	}
	write(t, s, "audit", object{"type": "log"}, object{"data": object{"user": 7}, "tag": "login", "meta": object{"ip": "::1"}})
	return s
}
