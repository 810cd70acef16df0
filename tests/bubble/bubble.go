// Package bubble runs tests in virtual time, whatever the code under test pools and with the
// race detector.
package bubble

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// one is held by the bubble that runs.
var one sync.Mutex

// Run is synctest.Test, and drops what the bubble has left in pools: Pebble pools tasks
// that hold a channel (sstable's writeTaskPool), and whoever gets one outside of the bubble
// that made it ends with "send on synctest channel from outside bubble". For the same
// reason one bubble waits for another of the process to end.
//
// With the race detector the whole process has one processor meanwhile: on more of them
// Go 1.26 sometimes crashes in the timers of a bubble, whose race context two threads then
// use at once ("ThreadSanitizer: CHECK failed", or SIGSEGV in code that has no name).
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	if detecting {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	defer func() {
		runtime.GC() // a sync.Pool survives one
		runtime.GC()
	}()
	synctest.Test(t, f)
}
