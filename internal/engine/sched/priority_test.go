package sched

import (
	"math"
	"testing"
)

func TestAManualPriorityIsHeldToAThousand(t *testing.T) {
	for given, want := range map[int64]int{5000: 1000, -5000: -1000, 0: 0, -7: -7, math.MaxInt64: 1000, math.MinInt64: -1000} {
		if got := Base(given, true, true, 0); got != want {
			t.Errorf("priority %d, read just now: base %d, want %d", given, got, want)
		}
	}
	if got := Base(0, false, true, 0); got != recencyPeak {
		t.Errorf("no priority, read just now: base %d", got)
	}
	if got := Base(0, false, true, -1); got != 0 {
		t.Errorf("no priority, never read: base %d", got)
	}
	if got := Base(900, false, false, 0); got != 0 {
		t.Errorf("neither a priority nor auto_priority: base %d", got)
	}
}

func TestRecencyHalvesEveryThirtySeconds(t *testing.T) {
	for idle, want := range map[int64]int{-5: 500, 0: 500, 15000: 354, 30000: 250, 60000: 125, 120000: 31, 299999: 0, 300000: 0, math.MaxInt64: 0} {
		if got := Recency(idle); got != want {
			t.Errorf("read %d ms ago: %d points, want %d", idle, got, want)
		}
	}
	for idle := range int64(300001) {
		exact := 500 * math.Exp2(-float64(idle)/30000)
		if got := Recency(idle); math.Abs(float64(got)-exact) > 1 {
			t.Fatalf("read %d ms ago: %d points, want %f", idle, got, exact)
		}
	}
}

func TestBandsBeginAtTheirBorders(t *testing.T) {
	r := newRoom(t)
	for priority, want := range map[int]int{
		1000: 4, 750: 4, 749: 3, 500: 3, 499: 2, 250: 2, 249: 1, 0: 1, -1: 0, -1000: 0,
	} {
		tp := newTopic("", priority)
		r.mark(tp)
		if got := r.band(tp); got != want {
			t.Errorf("priority %d waits in B%d, want B%d", priority, got, want)
		}
	}
}
