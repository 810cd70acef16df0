package telemetry

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/weirmq/weir"
)

// An alert over a metric that does not exist never fires.
func TestTheAlertsAreOverMetricsThatExist(t *testing.T) {
	rules, err := os.ReadFile("../docs/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	reg, h := open(t)
	age := time.Second
	h.Measured(orders, weir.Measurement{Depth: 1, Pending: lagOf(1), Lag: lagOf(1), OldestAge: &age, DeadLetters: lagOf(1)})
	h.SignalKnown(orders, true)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range families {
		have[f.GetName()] = true
	}
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
