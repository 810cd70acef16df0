package admission

import (
	"testing"
	"time"
)

// Who share a queue hold the shortest wait that one of them accepts, and what only watches counts while
// nobody holds anything.
func TestTheShortestWaitIsHeldForAll(t *testing.T) {
	c := New(time.Minute)
	none := Objective{}
	for i, step := range []struct {
		was, is Objective
		want    time.Duration
	}{
		{none, Objective{SLO: time.Second, Watch: true}, time.Second},
		{none, Objective{SLO: 10 * time.Second}, 10 * time.Second},
		{none, Objective{SLO: 2 * time.Second}, 2 * time.Second},
		{none, Objective{SLO: 5 * time.Second}, 2 * time.Second},
		{none, Objective{SLO: 2 * time.Second}, 2 * time.Second},
		{Objective{SLO: 2 * time.Second}, none, 2 * time.Second},
		{Objective{SLO: 2 * time.Second}, Objective{SLO: 20 * time.Second}, 5 * time.Second},
		{Objective{SLO: 5 * time.Second}, none, 10 * time.Second},
		{Objective{SLO: 10 * time.Second}, none, 20 * time.Second},
		{Objective{SLO: 20 * time.Second}, none, time.Second},
		{Objective{SLO: time.Second, Watch: true}, none, time.Second},
	} {
		for range 20 { // in whatever order they are looked at
			c.Change(none, none)
			if i == 0 && c.SLO() != time.Minute {
				t.Fatalf("nobody's wait is %v", c.SLO())
			}
		}
		if c.Change(step.was, step.is); c.SLO() != step.want {
			t.Errorf("step %d: %v is held, want %v", i+1, c.SLO(), step.want)
		}
	}
}

// Who comes too late to be done in time is told so while something is refused; a deadline that the wait
// and the work fit into is kept.
func TestWhatCannotBeDoneByItsDeadlineIsTooLate(t *testing.T) {
	now := time.Now()
	cut := &Cut{Wait: time.Second, Service: 500 * time.Millisecond, Refused: 0.1}
	for in, late := range map[time.Duration]bool{900 * time.Millisecond: true, 1400 * time.Millisecond: true, 1600 * time.Millisecond: false} {
		if got := cut.TooLate(now, now.Add(in)); got != late {
			t.Errorf("done within %v: too late %v", in, got)
		}
	}
	if cut.TooLate(now, time.Time{}) {
		t.Error("a message without a deadline is too late")
	}
	cut.Refused = 0
	if cut.TooLate(now, now.Add(time.Millisecond)) {
		t.Error("a message is too late though nothing is refused")
	}
	if (&Cut{at: now}).Holds(now, time.Hour) {
		t.Error("a cut that lets everything through limits what may wait")
	}
}
