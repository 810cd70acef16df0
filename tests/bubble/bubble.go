// Package bubble runs tests in virtual time whose code pools what holds channels.
package bubble

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Run is synctest.Test, and drops what the bubble has left in pools: Pebble pools tasks
// that hold a channel (sstable's writeTaskPool), and whoever gets one outside of the bubble
// that made it ends with "send on synctest channel from outside bubble".
func Run(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	defer func() {
		runtime.GC() // a sync.Pool survives one
		runtime.GC()
	}()
	synctest.Test(t, f)
}
