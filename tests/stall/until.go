package stall

import "time"

// Until calls ok again and again until it returns true, or has not for as long as patience. A
// round counts for a second at most, so that a machine that stands still uses up little of it.
func Until(patience time.Duration, ok func() bool) bool {
	for left := patience; ; {
		began := time.Now()
		if ok() {
			return true
		}
		if left <= 0 {
			return false
		}
		time.Sleep(5 * time.Millisecond)
		left -= min(time.Since(began), time.Second)
	}
}
