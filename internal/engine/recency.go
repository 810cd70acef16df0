package engine

import "math"

const (
	recencyPeak     = 500
	recencyHalfLife = 30_000  // ms
	recencyFloor    = 300_000 // ms; 0 from here on
)

// recency is 500·2^(−idle/30000), rounded, with idle in ms: the bonus of a
// topic that was read idle ms ago.
func recency(idle int64) int64 {
	if idle >= recencyFloor {
		return 0
	}
	return int64(math.Round(recencyPeak * math.Exp2(-float64(max(idle, 0))/recencyHalfLife)))
}
