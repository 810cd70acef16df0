// Package stall measures for how long a busy machine kept a test from running.
//
// A bound on time is what a user needs, and does not hold on a machine that is busy with
// other things. So a test adds to it what Watch has measured meanwhile:
//
//	stalled := stall.Watch()
//	began := time.Now()
//	...
//	if took := time.Since(began); took > limit+stalled() {
package stall

import "time"

// Watch adds up by how much short sleeps take too long, until the function that it
// returns is called; that returns the sum.
func Watch() (end func() time.Duration) {
	done, sum := make(chan struct{}), make(chan time.Duration)
	go func() {
		var late time.Duration
		for {
			took, over := nap(done)
			late += took
			if over {
				sum <- late
				return
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-sum
	}
}

// nap sleeps for a moment, or until done is closed. It returns how long that took if
// it was longer than it usually is.
func nap(done <-chan struct{}) (late time.Duration, over bool) {
	const moment, usual = time.Millisecond, 5 * time.Millisecond
	begin := time.Now()
	select {
	case <-done:
		over = true
	case <-time.After(moment):
	}
	if late = time.Since(begin); late <= usual {
		late = 0
	}
	return late, over
}
