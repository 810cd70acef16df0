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

import (
	"sync"
	"testing"
	"time"
)

// Watch adds up by how much short sleeps take too long, until the function that it
// returns is called; that returns the sum.
func Watch() (end func() time.Duration) {
	sum, stop := measure()
	return func() time.Duration {
		defer stop()
		return sum()
	}
}

// Meter is Watch for who asks more than once: it adds up until t has ended.
func Meter(t testing.TB) (sum func() time.Duration) {
	sum, stop := measure()
	t.Cleanup(stop)
	return sum
}

func measure() (sum func() time.Duration, stop func()) {
	var mu sync.Mutex
	var late time.Duration
	began := time.Now() // the nap that is not over yet
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for over := false; !over; {
			var took time.Duration
			took, over = nap(done)
			mu.Lock()
			late, began = late+took, time.Now()
			mu.Unlock()
		}
	}()
	sum = func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		if took := time.Since(began); took > usual {
			return late + took
		}
		return late
	}
	return sum, func() {
		close(done)
		<-ended
	}
}

// usual is how long a nap may take.
const usual = 5 * time.Millisecond

// nap sleeps for a moment, or until done is closed. It returns how long that took if
// it was longer than it usually is.
func nap(done <-chan struct{}) (late time.Duration, over bool) {
	const moment = time.Millisecond
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
