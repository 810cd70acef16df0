package stall

import (
	"testing"
	"time"

	"github.com/weirmq/weir/tests/bubble"
)

func TestPatienceEnds(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		begin, calls := time.Now(), 0
		if Until(time.Minute, func() bool { calls++; return false }) || time.Since(begin) < time.Minute {
			t.Errorf("it ends after %s", time.Since(begin))
		}
		calls = 30
		if !Until(time.Minute, func() bool { calls--; time.Sleep(time.Hour); return calls < 0 }) {
			t.Errorf("hours of a machine that stood still have used up a minute, %d calls before the last", calls)
		}
	})
}

func TestAMachineThatKeepsUpHasNotStalled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		stalled, meter := Watch(), Meter(t)
		time.Sleep(time.Minute)
		if got := stalled(); got != 0 || meter() != 0 {
			t.Errorf("stalled for %s and %s", got, meter())
		}
	})
}
