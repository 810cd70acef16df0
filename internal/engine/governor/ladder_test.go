package governor

import (
	"testing"
	"time"
)

func near(got, want time.Duration) bool { return (got - want).Abs() <= time.Microsecond }

func TestTheCoalescingWindowGrowsWithThePressure(t *testing.T) {
	for p, want := range map[float64]time.Duration{0: 0, 0.19: 0, 0.2: 0, 0.3: 2500 * time.Microsecond, 0.6: 10 * ms, 1: 20 * ms} {
		g := New()
		g.Pin(p)
		if got := g.State().CoalesceWindow; !near(got, want) {
			t.Errorf("pressure %v: %v, want %v", p, got, want)
		}
	}
}

func TestTheCommitWindowGrowsWithThePressure(t *testing.T) {
	for p, want := range map[float64]time.Duration{0: 500 * time.Microsecond, 0.4: 500 * time.Microsecond, 0.7: 5250 * time.Microsecond, 1: 10 * ms} {
		g := New()
		g.Pin(p)
		if got := g.State().CommitWindow; !near(got, want) {
			t.Errorf("pressure %v: %v, want %v", p, got, want)
		}
	}
	if got := New().State().CommitWindow; got != 500*time.Microsecond {
		t.Errorf("before the first sample: %v", got)
	}
}

// steps returns whether the ladder defers after n samples of each pressure.
func (l *ladder) steps(p float64, n int) (on bool) {
	for range n {
		on = l.step(p, false)
	}
	return on
}

func TestTwoSamplesOfHighPressureDoNotDefer(t *testing.T) {
	var l ladder
	if l.steps(0.85, 2) || l.steps(0.7, 1) || l.steps(0.85, 2) || l.steps(0.8, 50) {
		t.Error("defers without three samples in a row above 0.8")
	}
}

func TestThePauseEndsBelowTheLowerThreshold(t *testing.T) {
	var l ladder
	if !l.steps(0.85, 3) {
		t.Fatal("three samples above 0.8 do not defer")
	}
	for range 100 {
		if !l.step(0.7, false) {
			t.Fatal("0.7 ends the pause")
		}
	}
	if !l.steps(0.6, 1) {
		t.Error("0.6 ends the pause")
	}
	if l.steps(0.59, 1) {
		t.Error("0.59 does not end the pause")
	}
	if l.steps(0.85, 2) {
		t.Error("the next pause begins before its three samples")
	}
}

func TestWritesAreRefusedOnlyAtFullPressureAndWithAFullQueue(t *testing.T) {
	for _, c := range []struct {
		pressure float64
		full     bool
		rung     int
	}{{1, true, 4}, {0.98, true, 4}, {0.979, true, 3}, {1, false, 3}} {
		g := New()
		g.Pin(c.pressure)
		if got := g.Sample(idle, c.full).Rung; got != c.rung {
			t.Errorf("%+v: rung %d", c, got)
		}
	}
	if Refuses(0.979) || !Refuses(0.98) {
		t.Error("refuses at another pressure than 0.98 and up")
	}
}

func TestRungsFollowThePressure(t *testing.T) {
	for p, want := range map[float64]int{-1: 0, 0.2: 0, 0.21: 1, 0.4: 1, 0.41: 2, 0.8: 2, 0.81: 3, 2: 3} {
		g := New()
		if g.Pin(p); g.State().Rung != want {
			t.Errorf("pressure %v: rung %d, want %d", p, g.State().Rung, want)
		}
	}
}

func TestAPinnedPressureStaysAndCountsAtOnce(t *testing.T) {
	g := New()
	g.Pin(0.85)
	if st := g.State(); !st.Deferring || st.Pressure != 0.85 {
		t.Errorf("%+v", st)
	}
	for range 100 {
		g.Sample(loads["depth"], false)
	}
	if st := g.State(); st.Pressure != 0.85 || st.Depth != 1 {
		t.Errorf("%+v", st)
	}
	g.Pin(0.7)
	if !g.State().Deferring {
		t.Error("0.7 ends the pause")
	}
	g.Pin(0.1)
	if g.State().Deferring {
		t.Error("0.1 does not end the pause")
	}
}
