package overload

import (
	"testing"
	"time"
)

// A figure at its goal meets it, and one a little beyond does not, by what the kind of backend
// has to do.
func TestEveryGoalIsMetUpToItsFigure(t *testing.T) {
	const deadline = 2 // seconds
	figures := map[string]func(r *Result, n Number){
		"goodput":             func(r *Result, n Number) { r.Goodput = n },
		"top tier in time":    func(r *Result, n Number) { r.Tiers[0] = n },
		"latency p99":         func(r *Result, n Number) { r.Latency.P99 = n * deadline },
		"top tier's p99":      func(r *Result, n Number) { r.TierP99[0] = n * deadline },
		"calm after":          func(r *Result, n Number) { r.Calm = n * deadline },
		"variation":           func(r *Result, n Number) { r.Variation = n },
		"arrivals' variation": func(r *Result, n Number) { r.Arrivals = n },
		"refusal p99":         func(r *Result, n Number) { r.Refusal.P99 = n },
		"lost":                func(r *Result, n Number) { r.Lost = int(n) },
	}
	for _, c := range []struct {
		goal                           string
		embedded, http, redis, further Number // the worst figure that is good enough, and how much is not
	}{
		{"goodput", 0.98, 0.95, 0.95, -0.01},
		{"top tier in time", 0.99, 0.99, 0.99, -0.01},
		{"latency p99", 1, 1, 1.5, 0.01},
		{"top tier's p99", 0.35, 0.35, 1.5, 0.01},
		{"calm after", 0.5, 0.5, 0.5, 0.01},
		{"variation", 0.2, 0.2, 0.2, 0.01},
		{"arrivals' variation", 0.3, 0.3, 0.3, 0.01},
		{"refusal p99", 0.001, 0.005, 0.001, 0.0001},
		{"lost", 0, 0, 0, 1},
	} {
		for kind, most := range map[string]Number{"embedded": c.embedded, "http": c.http, "redis": c.redis, "kafka": c.redis} {
			r := &Result{Kind: kind, Scenario: Scenario{Load: 5, Deadline: deadline * time.Second}.WithDefaults()}
			for further, met := range map[Number]bool{0: true, c.further: false} {
				figures[c.goal](r, most+further)
				if m := r.Marks()[c.goal]; m.Met != met || !m.Judged {
					t.Errorf("%s on %s: a figure of %v is met %v, judged %v", c.goal, kind, most+further, m.Met, m.Judged)
				}
			}
		}
	}
	if len(figures) != len(goals) {
		t.Errorf("%d of %d goals are looked at", len(figures), len(goals))
	}
}

// A goal that does not apply is not judged: the top tier's, where it alone is more than the workers
// can do, and the steadiness of what is let in, where the workers do not all stay.
func TestAGoalIsJudgedWhereItApplies(t *testing.T) {
	for _, c := range []struct {
		goal   string
		s      Scenario
		judged bool
	}{
		{"goodput", Scenario{Load: 1}, false},
		{"top tier in time", Scenario{Load: 8}, true},
		{"top tier in time", Scenario{Load: 8.1}, false},
		{"top tier in time", Scenario{Load: 4, Variant: Halved}, true},
		{"top tier in time", Scenario{Load: 4.1, Variant: Halved}, false},
		{"variation", Scenario{Load: 5, Variant: Halved}, false},
		{"arrivals' variation", Scenario{Load: 5, Variant: Halved}, true},
		{"arrivals' variation", Scenario{Load: 5, Variant: Paused}, false},
		{"calm after", Scenario{Load: 5, Phases: [3]float64{1, 1, 1.9}}, false},
	} {
		r := &Result{Kind: "redis", Scenario: c.s.WithDefaults()}
		if m := r.Marks()[c.goal]; m.Judged != c.judged {
			t.Errorf("%s at %v×, %s: judged %v", c.goal, c.s.Load, r.Scenario.Variant, m.Judged)
		}
	}
}

// A run that tells nothing says why.
func TestASpoiltRunSaysWhy(t *testing.T) {
	s := Scenario{}.WithDefaults()
	for _, r := range []*Result{
		{Scenario: s, Overrun: 1},
		{Scenario: s, Strangers: 1},
		{Scenario: s, LateP99: Number(s.Deadline.Seconds()/10 + 0.001)},
	} {
		if r.Spoilt() == "" {
			t.Errorf("nothing is said of overrun %d, strangers %d, late %s", r.Overrun, r.Strangers, r.LateP99.span())
		}
	}
	if r := (&Result{Scenario: s, LateP99: Number(s.Deadline.Seconds() / 10)}); r.Spoilt() != "" {
		t.Errorf("a good run is spoilt: %s", r.Spoilt())
	}
}
