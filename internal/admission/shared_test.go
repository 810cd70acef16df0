package admission

import (
	"math"
	"testing"
	"time"
)

// The counters that all processes share begin again with the server that keeps them. What was
// offered then is not four billion messages.
func TestSharedCountersThatBeginAgainRefuseNobody(t *testing.T) {
	c := New(time.Second)
	now, bin := epoch, Bin(2, "", 1)
	r := Reading{Known: true, Waiting: 30, Working: 10, Offered: make([]uint32, Bins)}
	step := func() {
		for range 10 {
			c.Offer(now, bin, false)
		}
		now = now.Add(20 * time.Millisecond)
		r.At, r.Admitted = now, c.Admitted()
		r.Finished += 10
		r.Offered[bin] += 10
		c.Update(r, now)
	}
	for range 200 {
		step()
	}
	if refused := c.Cut().Refused; refused > 0.1 {
		t.Fatalf("%.2f are refused while the workers do what comes", refused)
	}
	r.Offered = make([]uint32, Bins)
	for range 20 {
		if step(); c.Cut().Refused > 0.1 {
			t.Fatalf("%.2f are refused when the counters have begun again", c.Cut().Refused)
		}
	}
}

// A queue that may hold little is aimed at half of that, whatever its workers could do within slo.
func TestTheAimIsBelowTheLimitOfTheDepth(t *testing.T) {
	for limit, want := range map[int64]float64{0: 1875, 20: 10, 1000: 500} {
		c := New(time.Minute)
		now := epoch
		r := Reading{Known: true, Waiting: 400, Working: 10, Limit: limit}
		for range 100 {
			now = now.Add(100 * time.Millisecond)
			r.At, r.Admitted = now, c.Admitted()
			r.Finished += 50
			c.Update(r, now)
		}
		cut := c.Cut()
		if aim := cut.Target.Seconds() * cut.Drain; math.Abs(aim-want) > want/50 {
			t.Errorf("with a limit of %d the queue that is aimed at has %.0f messages, want %.0f", limit, aim, want)
		}
	}
}
