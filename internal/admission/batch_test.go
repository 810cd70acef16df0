package admission

import (
	"math"
	"testing"
	"time"
)

// shedding is a controller that lets through a fifth of the third tier, all above it and
// a fiftieth below.
func shedding() *Controller {
	c := New(time.Second)
	cut := open()
	for b := range Bins {
		switch tier := b / perTier; {
		case tier == 2:
			cut.share[b] = fixed(0.2)
		case tier > 2:
			cut.share[b] = fixed(0.02)
		}
	}
	c.cut.Store(cut)
	return c
}

// The share of records that pass does not depend on how they are batched, and a batch
// has the share of what is in it.
func TestBatchesPassAsMuchAsSingleMessages(t *testing.T) {
	now := time.Now()
	high, mid, low := Bin(0, "a", 1), Bin(2, "a", 1), Bin(3, "a", 1)
	for name, x := range map[string]struct {
		parts []Part
		want  float64
	}{
		"one":                 {[]Part{{mid, 1}}, 0.2},
		"ten":                 {[]Part{{mid, 10}}, 0.2},
		"thousand":            {[]Part{{mid, 1000}}, 0.2},
		"of two tiers":        {[]Part{{mid, 5}, {low, 5}}, 0.11},
		"one important":       {[]Part{{high, 1}, {low, 99}}, 0.0298},
		"all important":       {[]Part{{high, 1000}}, 1},
		"unimportant":         {[]Part{{low, 50}}, 0.02},
		"important, but one":  {[]Part{{high, 99}, {low, 1}}, 0.9902},
		"keys of their own":   {[]Part{{mid, 3}, {Bin(2, "b", 1), 3}, {Bin(2, "c", 1), 3}}, 0.2},
		"larger than a carry": {[]Part{{mid, math.MaxUint32}}, 0.2},
	} {
		c := shedding()
		const n = 20000
		passed := 0
		for range n {
			if c.OfferAll(now, x.parts) {
				passed++
			}
		}
		if got := float64(passed) / n; math.Abs(got-x.want) > 0.02 {
			t.Errorf("%s: a share of %.4f passes, want %.4f", name, got, x.want)
		}
	}
}

// Batches of different sizes that take turns do not take each other's share.
func TestBatchesThatAlternateHaveTheSameShare(t *testing.T) {
	c, now := shedding(), time.Now()
	bin := Bin(2, "a", 1)
	var passed [2]int
	const n = 20000
	for range n {
		for i, size := range []uint32{100, 1} {
			if c.OfferAll(now, []Part{{bin, size}}) {
				passed[i]++
			}
		}
	}
	for i, p := range passed {
		if got := float64(p) / n; math.Abs(got-0.2) > 0.02 {
			t.Errorf("a share of %.3f of batch %d passes", got, i)
		}
	}
	if got := float64(c.Admitted()) / (101 * n); math.Abs(got-0.2) > 0.02 {
		t.Errorf("%.3f of the messages are admitted", got)
	}
}

// What one batch may add is bounded as for single messages: one of twice the room passes
// every other time, whatever keys are in it.
func TestABatchLargerThanTheRoomPassesInProportion(t *testing.T) {
	now := time.Now()
	for name, parts := range map[string][]Part{
		"one key":  {{Bin(2, "a", 1), 100}},
		"two keys": {{Bin(2, "a", 1), 50}, {Bin(2, "b", 1), 50}},
	} {
		passed := 0
		const n = 2000
		for range n {
			c := New(time.Second)
			cut := open()
			cut.bounded, cut.at = true, now
			cut.bound[2] = 49
			c.cut.Store(cut)
			if c.OfferAll(now, parts) {
				passed++
			}
			if c.Admitted() > 0 && c.OfferAll(now, []Part{{Bin(2, "", 1), 1}}) {
				t.Fatalf("%s: a message passes a queue that is above its bound", name)
			}
		}
		if got := float64(passed) / n; math.Abs(got-0.5) > 0.05 {
			t.Errorf("%s: a share of %.3f passes", name, got)
		}
	}
}

// A single message is decided as Offer decides it.
func TestABatchOfOneIsAMessage(t *testing.T) {
	a, b, now := shedding(), shedding(), time.Now()
	for i := range a.carry {
		b.carry[i].Store(a.carry[i].Load())
	}
	for i := range 10000 {
		bin := Bin(i%Tiers, "k", int64(i%7))
		if one, all := a.Offer(now, bin, false), b.OfferAll(now, []Part{{bin, 1}}); one != all {
			t.Fatalf("message %d: Offer says %v, OfferAll %v", i, one, all)
		}
	}
}
