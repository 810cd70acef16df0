package weir

import (
	"testing"
	"time"
)

// All processes count a key in the same place for an hour, and in another one in the next: no key is
// always the last.
func TestTheOrderOfKeysChangesEveryHour(t *testing.T) {
	one, two := &guard{signals: &signals{}}, &guard{signals: &signals{}}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	bins := map[int]bool{}
	for hour := range 24 {
		at := noon.Add(time.Duration(hour) * time.Hour)
		m := &Message{FairKey: "tenant-7"}
		bin := one.bin(m, at)
		if late := two.bin(m, at.Add(time.Hour-time.Second)); late != bin {
			t.Errorf("hour %d: bin %d, and %d at its end", hour, bin, late)
		}
		bins[bin] = true
	}
	if len(bins) < 12 {
		t.Errorf("the key was in %d places in a day", len(bins))
	}
}
