package shop

import (
	"os"
	"runtime"
	"testing"
)

// TestMain leaves one processor: on more of them Go 1.26 sometimes crashes in a bubble that
// the race detector watches.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
