package telemetry

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmq/weir"
)

// everyMetric returns the names of all metrics there are once everything has
// happened.
func everyMetric(t *testing.T) map[string]bool {
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
	})
	p.Reached(orders, true)
	h.NearCapacity(orders, true)
	h.SignalKnown(orders, true)
	h.Workers(orders, 1, 0)
	h.Slowed(orders, weir.SoftSleep, time.Second)
	h.Shadowed(orders, string(weir.SoftSleep))
	families, err := reg.Gather()
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
	out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", "testdata/alerts_test.yml").CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatal("promtool is missing: run make deps, which installs Prometheus")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
