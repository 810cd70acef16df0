package topic

import "testing"

// What is staged becomes visible behind what was staged before: acknowledged, it must be as safe.
func TestAChangeNeedsWhatTheOneBeforeItDoes(t *testing.T) {
	var tp Topic
	tp.Init()
	for i, c := range []struct{ asks, need uint8 }{{1, 1}, {2, 2}, {1, 2}, {0, 2}} {
		n := uint64(i + 1)
		lsn, gen, need := tp.Stage(Staged{LSN: n, Gen: 7, Need: c.asks, First: n, N: 1})
		if lsn != n || gen != 7 || need != c.need {
			t.Errorf("change %d, which asks for %d, waits for %d of log %d, %d; want %d", n, c.asks, need, gen, lsn, c.need)
		}
		if lsn, gen, need := tp.Pending(); lsn != n || gen != 7 || need != c.need {
			t.Errorf("change %d is pending as %d of log %d, %d", n, need, gen, lsn)
		}
	}
}
