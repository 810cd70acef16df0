package admission

import (
	"testing"
	"time"
)

// A pause is not workers that are too slow: nothing is refused in it, and afterwards they
// are held to be as quick as before.
func TestAPauseRefusesNothingAndTeachesNothing(t *testing.T) {
	c := New(time.Second)
	now := time.Now()
	r := Reading{Known: true, Working: 10}
	step := func(offered, done int, paused bool) (refused int) {
		for range offered {
			if !c.Offer(now, Bin(2, "", 1), false) {
				refused++
			}
		}
		r.Waiting += int64(offered - refused - done)
		r.Finished += int64(done)
		now = now.Add(20 * time.Millisecond)
		r.At, r.Admitted, r.Paused = now, c.Admitted(), paused
		c.Update(r, now)
		return refused
	}
	for range 500 { // 500 a second, all of them done as long as 4 wait
		step(max(0, 14-int(r.Waiting)), 10, false)
	}
	before := c.Cut().Drain
	if before < 400 || before > 600 {
		t.Fatalf("the workers do 500 a second, measured are %.0f", before)
	}
	step(0, 0, true)
	for range 500 {
		if n := step(10, 0, true); n > 0 {
			t.Fatalf("%d of 10 are refused in a pause, with %d waiting", n, r.Waiting)
		}
	}
	step(10, 0, false)
	refused := 0
	for range 10 {
		refused += step(10, 10, false)
	}
	if after := c.Cut().Drain; after < before*0.9 || after > before*1.1 || refused == 0 {
		t.Errorf("%.0f a second before the pause, %.0f after it; %d of 100 are refused with %d waiting", before, after, refused, r.Waiting)
	}
}
