// Package bubble runs tests in virtual time whose code pools what holds channels.
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
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	one.Lock()
	defer one.Unlock()
	defer func() {
		runtime.GC() // a sync.Pool survives one
		runtime.GC()
	}()
	synctest.Test(t, f)
}
