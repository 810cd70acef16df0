package weir

import (
	"fmt"
	"testing"
)

// What others have claimed is never taken out: it has to make room for what comes.
func TestIDsThatNobodyAsksForMakeRoom(t *testing.T) {
	var s idSet
	for i := range 5 * maxRemembered {
		s.add(fmt.Sprint(i))
		if back := max(0, i-maxRemembered/2+1); !s.has(fmt.Sprint(i)) || !s.has(fmt.Sprint(back)) {
			t.Fatalf("after %d IDs, %d or %d is forgotten", i+1, i, back)
		}
	}
	if n := len(s.young) + len(s.old); n > maxRemembered {
		t.Errorf("%d IDs are kept, want at most %d", n, maxRemembered)
	}
	last := fmt.Sprint(5*maxRemembered - 1)
	if !s.take(last) || s.take(last) || s.has(last) {
		t.Error("an ID that was taken is still there, or was not")
	}
}
