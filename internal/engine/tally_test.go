package engine

import (
	"fmt"
	"testing"
	"time"
)

// The counters of producers are bounded, whatever names they come under: those unused for
// an hour go first, then those unused for longest.
func TestCountersOfProducersAreBounded(t *testing.T) {
	var s tallies
	now := time.Now()
	for i := range 3 * maxTallies {
		now = now.Add(time.Second)
		s.add("busy", []uint32{1}, now)
		s.add(fmt.Sprint("q", i), []uint32{1}, now)
	}
	if n := len(s.byName); n > maxTallies {
		t.Errorf("%d queues have counters", n)
	}
	if got := s.add("busy", []uint32{0}, now); got[0] != 3*maxTallies {
		t.Errorf("the busy queue's counter is %d", got[0])
	}
	s.add("next", []uint32{1}, now.Add(2*time.Hour))
	if n := len(s.byName); n != 1 {
		t.Errorf("%d queues have counters after two hours", n)
	}
}
