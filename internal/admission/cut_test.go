package admission_test

import (
	"math"
	"testing"
	"time"

	"github.com/weirmq/weir/internal/admission"
)

// loaded is a controller of a queue in which 100 messages wait for four workers that finish 50
// a second, and which is offered so many a second of tier 2, without keys.
func loaded(slo time.Duration, offered int) (c *admission.Controller, at time.Time) {
	c, at = admission.New(slo), time.Unix(1e9, 0)
	c.Update(admission.Reading{At: at, Known: true, Waiting: 100, Working: 4}, at)
	for n := int64(1); n <= 40; n++ {
		for range offered / 4 {
			c.Offer(at, admission.Bin(2, "", 0), false)
		}
		at = at.Add(time.Second / 4)
		c.Update(admission.Reading{At: at, Admitted: c.Admitted(), Known: true, Waiting: 100, Working: 4, Finished: n * 50 / 4}, at)
	}
	return c, at
}

func near[T int64 | time.Duration | float64](got, want T) bool {
	return math.Abs(float64(got-want)) <= 0.03*math.Abs(float64(want))
}

// What publishers are told and metrics show follows from what was measured.
func TestACutSaysWhatWasMeasured(t *testing.T) {
	c, at := loaded(8*time.Second, 200)
	cut := c.Cut()
	if !near(cut.Drain, 50) || !near(cut.Wait, 2*time.Second) || !near(cut.Service, 80*time.Millisecond) || !near(cut.Target, time.Second/2) {
		t.Errorf("%.1f a second, a wait of %s, %s with a worker, aiming at %s; want 50, 2s, 80ms, 500ms", cut.Drain, cut.Wait, cut.Service, cut.Target)
	}
	// Of 200 a second pass what is finished, less what has to be worked off within the target: none.
	if cut.Refused < 0.95 || cut.Tier != 2 {
		t.Errorf("%.2f are refused, down to tier %d", cut.Refused, cut.Tier)
	}
	for deadline, late := range map[time.Duration]bool{time.Second: true, 2040 * time.Millisecond: true, 2200 * time.Millisecond: false} {
		if got := cut.TooLate(at, at.Add(deadline)); got != late {
			t.Errorf("within %s: too late is %v", deadline, got)
		}
	}
	// With 16s it aims at 1s, and the queue is empty in 2s.
	for _, c := range []struct {
		slo     time.Duration
		offered int
		want    time.Duration
		because string
	}{
		{8 * time.Second, 200, 800 * time.Millisecond, "it is no more than a tenth of 8s"},
		{16 * time.Second, 40, time.Second, "the queue is too long by 1s, and then all passes"},
		{16 * time.Second, 60, 1200 * time.Millisecond, "the queue is too long by 1s, and then a sixth is refused"},
		{16 * time.Second, 200, 2 * time.Second * 2 / 3, "the queue would be empty"},
		{80 * time.Second, 200, 5 * time.Millisecond, "nothing is refused"},
	} {
		loaded, at := loaded(c.slo, c.offered)
		if got := loaded.RetryAfter(at, admission.Bin(2, "", 0)); !near(got, c.want) {
			t.Errorf("of %d a second, with %s: to come again after %s, want %s: %s", c.offered, c.slo, got, c.want, c.because)
		}
	}
}

// A queue is read several times while what is aimed at is worked off, but not all the time.
func TestHowOftenAQueueIsRead(t *testing.T) {
	for slo, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 10 * time.Millisecond, 10 * time.Second: 200 * time.Millisecond, time.Hour: 500 * time.Millisecond,
	} {
		if got := admission.New(slo).Interval(); got != want {
			t.Errorf("with %s, of which nothing is known, every %s, want %s", slo, got, want)
		}
	}
	c, at := loaded(8*time.Second, 200)
	if got := c.Interval(); !near(got, 125*time.Millisecond) {
		t.Errorf("with a target of 500ms every %s", got)
	}
	if c.Due(at.Add(100*time.Millisecond)) || !c.Due(at.Add(130*time.Millisecond)) {
		t.Error("a reading is due too early or too late")
	}
	c.Admit(1 + 25/8)
	if c.Due(at.Add(4*time.Millisecond)) || !c.Due(at.Add(5*time.Millisecond)) {
		t.Error("an eighth of the target was let through: a reading is due after 5ms")
	}
	at = at.Add(time.Second)
	c.Update(admission.Reading{At: at, Admitted: c.Admitted(), Known: true, Paused: true, Waiting: 100}, at)
	if c.Due(at.Add(10 * time.Millisecond)) {
		t.Error("a queue that is paused is read all the time")
	}
}

// What comes in batches is offered, and counts for other processes.
func TestABatchCountsAsOffered(t *testing.T) {
	c := admission.New(time.Second)
	a, b := admission.Bin(0, "", 0), admission.Bin(3, "", 0)
	if !c.OfferAll(time.Unix(1e9, 0), []admission.Part{{Bin: a, N: 3}, {Bin: b, N: 2}}) {
		t.Error("a batch is refused without load")
	}
	c.Register([]admission.Part{{Bin: a, N: 10}})
	if got := c.TakeOffered(); got[a] != 13 || got[b] != 2 || c.Admitted() != 15 {
		t.Errorf("%d and %d are offered, %d admitted; want 13, 2 and 15", got[a], got[b], c.Admitted())
	}
	if got := c.TakeOffered(); got[a] != 0 {
		t.Errorf("%d are offered twice", got[a])
	}
}

// Important tiers take what they offer; the first for which too little is left shares that, and those
// below it the floor.
func TestTiersTakeOfTheRateInTheirOrder(t *testing.T) {
	offers := map[int]int{1: 30, 3: 200, 5: 100} // per second
	for _, x := range []struct {
		tiers   []int
		tier    int
		refused float64
	}{
		{[]int{1, 3, 5}, 3, 1 - 50./330},
		{[]int{1, 3}, 3, 1 - 50./230},
		{[]int{3, 5}, 3, 1 - 50./300},
		{[]int{1}, admission.Tiers - 1, 0},
	} {
		c, at := admission.New(16*time.Second), time.Unix(1e9, 0)
		for n := range int64(200) { // 50 wait, as it aims at, and 50 a second are finished
			for _, tier := range x.tiers {
				for range offers[tier] {
					c.Offer(at, admission.Bin(tier, "", 0), false)
				}
			}
			c.Update(admission.Reading{At: at, Admitted: c.Admitted(), Known: true, Waiting: 50, Working: 4, Finished: n * 50}, at)
			at = at.Add(time.Second)
		}
		if cut := c.Cut(); cut.Tier != x.tier || math.Abs(cut.Refused-x.refused) > 0.01 {
			t.Errorf("tiers %d: %.3f are refused, and %d is the last tier that passes; want %.3f and %d", x.tiers, cut.Refused, cut.Tier, x.refused, x.tier)
		}
	}
}

// A process lets a part through of what all do: it looks again after its part of an eighth of the target.
func TestAProcessCountsWithTheOthers(t *testing.T) {
	c, at := admission.New(8*time.Second), time.Unix(1e9, 0)
	bin, all := admission.Bin(2, "", 0), make([]uint32, admission.Bins)
	for n := range int64(200) {
		for range 10 {
			c.Offer(at, bin, false)
		}
		all[bin] += 40
		c.Update(admission.Reading{At: at, Admitted: c.Admitted(), Known: true, Waiting: 20, Working: 4, Finished: n * 50, Offered: all}, at)
		at = at.Add(time.Second)
	}
	at = at.Add(-time.Second)
	if c.Due(at.Add(10 * time.Millisecond)) {
		t.Error("a reading is due though nothing was let through")
	}
	if c.Admit(1); !c.Due(at.Add(10 * time.Millisecond)) {
		t.Error("no reading is due when this process has let one through, and four of them about four, of a target of 25")
	}
}

// What comes to a queue that nobody works on waits for workers, and is not too much for them.
func TestAQueueThatNobodyWorksOnTakesAll(t *testing.T) {
	c, at := loaded(8*time.Second, 200)
	for range 3 {
		at = at.Add(time.Second)
		c.Update(admission.Reading{At: at, Admitted: c.Admitted(), Known: true, Waiting: 100, Finished: 500}, at)
	}
	if cut := c.Cut(); cut.Refused != 0 || !c.Offer(at, admission.Bin(5, "", 0), false) {
		t.Errorf("%.2f are refused", cut.Refused)
	}
}
