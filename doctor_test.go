package weir

import (
	"testing"

	"github.com/weirmq/weir/backend"
)

// Delayed messages are kept beside the stream, which MAXLEN does not touch.
func TestTheDoctorCountsForMaxLenWhatItCutsOff(t *testing.T) {
	for delayed, want := range map[int64]int{0: 1, 90: 0} {
		var d Diagnosis
		d.judge(&Pressure{Stats: backend.Stats{XLen: 95, Delayed: delayed, Lag: known(0)}}, Exam{MaxLen: 100})
		if len(d.Findings) != want {
			t.Errorf("%d of 95 are not due: %+v", delayed, d.Findings)
		}
	}
}
