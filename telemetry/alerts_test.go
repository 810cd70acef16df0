package telemetry

import (
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirmq/weir"
)

// everything returns a registry of which everything has happened.
func everything(t *testing.T) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	p, err := NewPrometheus(reg)
	if err != nil {
		t.Fatal(err)
	}
	h := p.Hooks()
	age := time.Second
	h.Measured(orders, weir.Measurement{
		Depth: 1, Pending: lagOf(1), Lag: lagOf(1), OldestAge: &age, DeadLetters: lagOf(1), XLen: lagOf(1), RoundTrip: &age,
		Attended: new(true),
	})
	p.Reached(orders, true)
	h.NearCapacity(orders, true)
	h.SignalKnown(orders, true)
	h.Workers(orders, 1, 0)
	h.Slowed(orders, weir.SoftSleep, time.Second)
	h.Shadowed(orders, string(weir.SoftSleep))
	for _, o := range []weir.Outcome{weir.Acked, weir.Retried, weir.Returned, weir.Dead, weir.Expired, weir.Lost, weir.Unsettled} {
		h.Settled(orders, o, 1)
	}
	return reg
}

// everyMetric returns the names of all metrics there are once everything has
// happened.
func everyMetric(t *testing.T) map[string]bool {
	t.Helper()
	families, err := everything(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range families {
		have[f.GetName()] = true
	}
	return have
}

// An alert over a metric that does not exist never fires.
func TestTheAlertsAreOverMetricsThatExist(t *testing.T) {
	rules, err := os.ReadFile("../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	have := everyMetric(t)
	names := regexp.MustCompile(`\b(sse_queue|weir_stream)_\w+`).FindAllString(string(rules), -1)
	if len(names) < 8 {
		t.Fatalf("found only %v", names)
	}
	for _, name := range names {
		if !have[name] {
			t.Errorf("%s is in the alerts and not among the metrics", name)
		}
	}
}

// A server counts what is written to its queues, and so does whoever writes it: summed up, each
// message is two.
func TestTheBoardCountsAMessageOnce(t *testing.T) {
	board, err := os.ReadFile("../docs/grafana/streams.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, expr := range regexp.MustCompile(`"expr": ".*sse_queue_produce_.*"`).FindAllString(string(board), -1) {
		if !strings.Contains(expr, "sum by (queue_type, stream") {
			t.Error(expr)
		}
	}
}

func TestEveryMetricIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range everyMetric(t) {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/OPERATIONS.md does not say when to look at %s", name)
		}
	}
}

// A query by reason or outcome is written from the page.
func TestEveryReasonAndOutcomeIsDescribed(t *testing.T) {
	page, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	families, err := everything(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "reason" && l.GetName() != "outcome" {
					continue
				}
				values[l.GetValue()] = true
				row := regexp.MustCompile("(?m)^\\| `" + f.GetName() + "` by `" + l.GetName() + "` .*$").FindString(string(page))
				if !strings.Contains(row, "`"+l.GetValue()+"`") {
					t.Errorf("docs/OPERATIONS.md does not say what the %s %s of %s is", l.GetName(), l.GetValue(), f.GetName())
				}
			}
		}
	}
	if len(values) < 10 {
		t.Fatalf("found only %v", values)
	}
}

// An alert at three in the morning leads to what it means and what to do.
func TestEveryAlertHasItsRunbook(t *testing.T) {
	rules, err := os.ReadFile("../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, runbook, _ := strings.Cut(string(page), "\n## Runbook\n")
	runbook, _, _ = strings.Cut(runbook, "\n## ")
	sections := map[string]string{}
	for _, part := range strings.Split(runbook, "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		sections[name] = text
	}
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		for _, part := range []string{"**Means**", "**Look at**", "**Do**"} {
			if !strings.Contains(sections[name], part) {
				t.Errorf("docs/OPERATIONS.md, Runbook, %s: there is no %s", name, part)
			}
		}
		if url := "runbook_url: https://github.com/weirmq/weir/blob/main/docs/OPERATIONS.md#" + strings.ToLower(name) + "\n"; !strings.Contains(rest, url) {
			t.Errorf("%s lacks %s", name, url)
		}
		delete(sections, name)
	}
	for name := range sections {
		t.Errorf("docs/OPERATIONS.md, Runbook: there is no alert %s", name)
	}
}

// promtool runs it on an input.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal("promtool is missing: run make deps, which installs Prometheus")
	}
	if err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

func TestPromtoolAcceptsTheMetricsAndTheRules(t *testing.T) {
	reg := everything(t)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	promtool(t, page.Body.String(), "check", "metrics")
	promtool(t, "", "check", "rules", "../docs/alerts.yml")
}

// Each rule fires while its trouble lasts, and not before and after.
func TestEveryAlertFiresAndResolves(t *testing.T) {
	rules, err := os.ReadFile("../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if !strings.Contains(string(cases), "- alertname: "+alert[1]+"\n") {
			t.Errorf("the alert %s has no test", alert[1])
		}
	}
	promtool(t, "", "test", "rules", "testdata/alerts_test.yml")
}
