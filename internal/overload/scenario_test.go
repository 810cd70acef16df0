package overload

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestOffersAreWhatTheScenarioSays(t *testing.T) {
	for _, shape := range Shapes {
		s := Scenario{Load: 5, Shape: shape, Phases: [3]float64{20, 60, 20}}.WithDefaults()
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		var perPhase [3]int
		var tiers [len(Tiers)]int
		work, last := time.Duration(0), time.Duration(0)
		all := s.offers()
		for _, o := range all {
			if o.at < last || o.key == 0 {
				t.Fatalf("%s: %+v follows %s", shape, o, last)
			}
			last = o.at
			work += o.service
			tiers[o.tier]++
			switch {
			case o.at < s.begin():
				perPhase[0]++
			case s.inPlateau(o.at):
				perPhase[1]++
			default:
				perPhase[2]++
			}
		}
		for i, want := range [3]float64{7000, 150_000, 7000} {
			near(t, string(shape)+" offers of a phase", float64(perPhase[i]), want, 5*math.Sqrt(want))
		}
		for i, n := range tiers {
			near(t, string(shape)+" share of a tier", float64(n)/float64(len(all)), Tiers[i].Share, 0.01)
		}
		near(t, string(shape)+" mean service", work.Seconds()/float64(len(all)), s.Service.Seconds(), 0.02*s.Service.Seconds())
		if again := s.offers(); len(again) != len(all) || again[len(all)/2] != all[len(all)/2] {
			t.Errorf("%s: the same seed gives other offers", shape)
		}
	}
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: %v, want %v ± %v", what, got, want, tolerance)
	}
}

func TestAGreedyKeySendsNineTenths(t *testing.T) {
	s := Scenario{Variant: Greedy}.WithDefaults()
	greedy, all := 0, s.offers()
	for _, o := range all {
		if o.key == 0 {
			greedy++
		}
	}
	near(t, "share of the greedy key", float64(greedy)/float64(len(all)), 0.9, 0.01)
}

func TestAWrongScenarioNamesWhatIsWrong(t *testing.T) {
	for want, s := range map[string]Scenario{
		"load -1 ":                 {Load: -1},
		"load NaN ":                {Load: math.NaN()},
		"service 1ns ":             {Service: 1},
		"deadline 48h0m0s ":        {Deadline: 48 * time.Hour},
		"workers 10001 ":           {Workers: 10_001},
		"producers 1001 ":          {Producers: 1001},
		"processes 101 ":           {Processes: 101},
		"at least 2 workers":       {Workers: 1, Variant: Halved},
		"phases [1 0 1]":           {Phases: [3]float64{1, 0, 1}},
		"shorten the phases":       {Phases: [3]float64{1, 100_000, 1}},
		"known: exponential, fixe": {Shape: "normal"},
		"known: none, halved, gre": {Variant: "chaos"},
		"longer than the plateau":  {Variant: Paused, Phases: [3]float64{1, 1, 1}},
		"use 0 to 3, the length":   {Variant: Slow, Disturbance: 4, Phases: [3]float64{1, 3, 1}},
		"variant greedy has none":  {Variant: Greedy, Disturbance: 1},
	} {
		if err := s.WithDefaults().Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestAnArmIsAModeWithSettings(t *testing.T) {
	s := Scenario{Deadline: 3 * time.Second}.WithDefaults()
	t.Setenv("WEIR_LAG_PAUSE", "7") // the arm is what it says, wherever it runs
	a, err := ParseArm("proportional?lag_pause=100&queue_max_depth=500&lag-cache=20ms", s)
	if err != nil {
		t.Fatal(err)
	}
	c := a.Config
	if c.Guard != "proportional" || c.LagPause != 100 || c.MaxDepth != 500 || c.LagCache != 20*time.Millisecond ||
		c.LagSignal != "backlog" || c.WaitSLO != 3*time.Second || !c.DisableLoadShedding {
		t.Errorf("%+v", c)
	}
	if a, err = ParseArm("static?queue_load_shedding_enabled=true&wait_slo=1m", s); err != nil || a.Config.DisableLoadShedding || a.Config.WaitSLO != time.Minute || a.Config.LagPause != 0 {
		t.Errorf("%+v, %v", a.Config, err)
	}
	for text, want := range map[string]string{
		"onoff":                      "known: off, static, proportional, adaptive",
		"static?lag_pauze=1":         `no setting "lag_pauze"`,
		"static?lag_pause=x":         `"x" is not`,
		"static?lag_pause=10&lag_%%": "name=value",
		"static?guard=off":           "stands before the ?",
		"static?lag_warn=300":        "lag_warn 300 is above lag_pause 200",
	} {
		if _, err := ParseArm(text, s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if n := len(DefaultArms(s)); n < 3 {
		t.Errorf("%d default arms", n)
	}
}

// The judge's own parts, on every variant: nothing is lost or handled twice.
func TestTwinOfEveryVariant(t *testing.T) {
	for _, v := range Variants {
		for _, shape := range Shapes {
			r := inBubble(t, Scenario{Load: 1.5, Variant: v, Shape: shape, Phases: [3]float64{1, 3, 3}, Producers: 2}, "proportional")
			if (r.Trouble != nil) != (v != Plain && v != Greedy) {
				t.Errorf("%s: %+v", v, r.Trouble)
			}
			clean(t, r)
			if v == Plain {
				r = inBubble(t, Scenario{Load: 2, Shape: shape, Phases: [3]float64{1, 3, 3}, Expire: true}, "off")
				clean(t, r)
				if r.Expired == 0 || r.Latency.Max > 2 {
					t.Errorf("expire: %d set aside, latency up to %v s", r.Expired, r.Latency.Max)
				}
			}
			if r.Goodput <= 0 || r.Goodput > 1.1 || r.Stored == 0 {
				t.Errorf("%s, %s: goodput %s of %d stored", v, shape, r.Goodput.percent(), r.Stored)
			}
			if (r.Keys != nil) != (v == Greedy) {
				t.Errorf("%s: keys %v", v, r.Keys)
			}
		}
	}
}
