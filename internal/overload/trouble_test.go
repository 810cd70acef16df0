package overload

import (
	"testing"
	"time"
)

// The guard that holds the wait recovers by itself from every trouble, under more load than
// the workers can do; one with a fixed limit does not.
func TestTwinTellsRecoveryFromCollapse(t *testing.T) {
	if raced {
		t.Skip("without the race detector")
	}
	for _, s := range []Scenario{
		{Variant: Halved, Disturbance: 4},
		{Variant: Slow, Disturbance: 20, Phases: [3]float64{2, 30, 2}, Load: 2},
		{Variant: Impatient, Disturbance: 4},
		{Variant: Paused},
	} {
		if s.Load == 0 {
			s.Load, s.Phases = 5, [3]float64{3, 12, 3}
		}
		good := inBubble(t, s, "adaptive")
		clean(t, good)
		if g := good.Trouble; !(g.Recovery <= 0.5 && g.Before >= 0.95 && g.After >= 0.9) {
			t.Errorf("adaptive, %s: %+v", s.Variant, *g)
		}
		s.Disturbance, s.Phases = 4, [3]float64{2, 8, 2}
		bad := inBubble(t, s, "static")
		clean(t, bad)
		if b := bad.Trouble; !b.Recovery.nan() || b.After > 0.2 {
			t.Errorf("static, %s: %+v", s.Variant, *b)
		}
	}
}

// A backend stands still for as long as the disturbance lasts, and that time counts for
// nobody's goodput.
func TestABackendThatStandsStill(t *testing.T) {
	r := inBubble(t, Scenario{Load: 0.7, Variant: Paused, Disturbance: 1, Phases: [3]float64{1, 4, 2}}, "off")
	clean(t, r)
	stored := map[bool]int{}
	for i, s := range r.Samples {
		at := time.Duration(s.At * float64(time.Second))
		if i > 0 && at < 5*time.Second {
			stored[at > 2600*time.Millisecond && at < 3500*time.Millisecond] += s.Stored - r.Samples[i-1].Stored
		}
	}
	if stored[true] != 0 || stored[false] < 1000 {
		t.Errorf("stored while it stood still %d, otherwise %d", stored[true], stored[false])
	}
	if !r.Trouble.During.nan() || r.Trouble.From != 2.5 || r.Trouble.To != 3.5 {
		t.Errorf("%+v", *r.Trouble)
	}
	if _, err := Run(t.Context(), Scenario{Variant: Paused}, Arm{}, Target{}); err == nil {
		t.Error("a backend that cannot stand still does")
	}
}

// Waves of calls show, chance does not.
func TestWavesOfCallsShow(t *testing.T) {
	for _, c := range []struct {
		burst       int
		least, most Number
	}{{1, 0, 0.1}, {1000, 0.8, 2}} {
		s := Scenario{Load: 5, Phases: [3]float64{0, 10, 1}}.WithDefaults()
		r := &run{Scenario: s, offers: s.offers()}
		r.ledger = newLedger(len(r.offers), s.Deadline/bins)
		for i := range r.offers {
			at := r.offers[i-i%c.burst].at // a burst comes with its first one
			r.ledger.called(attempt{Offer: i, At: at, Now: at})
		}
		if got := r.arrivals(); !(got >= c.least && got <= c.most) {
			t.Errorf("bursts of %d: %v, want %v to %v", c.burst, got, c.least, c.most)
		}
	}
}
