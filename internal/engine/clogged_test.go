package engine

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// A store that takes nothing over lets the log run full. Whoever asks is told that, and not that the
// server is busy; it goes on by itself.
func TestALogThatTheStoreDoesNotEmptyIsTold(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fs := newFaults(vfs.NewMem())
		e := openOn(t, fs, "a", func(o *Options) { o.SegmentBytes = 64 << 10 })
		defer e.Close()
		put(t, e, "log", configOf(api.Disk))
		fs.failing("/stage/", syscall.EIO)
		big := `"` + strings.Repeat("x", 16<<10) + `"`
		var err error
		for n := 0; err == nil; n++ {
			if ok, why := e.Writable(); n < 12 && !ok {
				t.Fatalf("after %d writes nothing more is taken: %s", n, why)
			}
			if n == 100 {
				t.Fatal("the log takes any number of writes")
			}
			_, err = tryWrite(e, "log", big)
		}
		if !api.IsCode(err, api.CodeThrottled) || !strings.Contains(err.Error(), "cannot be moved to the store") {
			t.Errorf("a write is refused with %v", err)
		}
		if ok, why := e.Writable(); ok || !strings.Contains(why, "cannot be moved to the store") || !strings.Contains(why, syscall.EIO.Error()) {
			t.Errorf("writable: %v, %q", ok, why)
		}
		if e.Metrics().Writable {
			t.Error("the metrics say that it is writable")
		}
		fs.set(nil)
		time.Sleep(5 * time.Second)
		if ok, why := e.Writable(); !ok || !e.Metrics().Writable {
			t.Errorf("the store can be written again, and the server says %q", why)
		}
		write(t, e, "log", big)
	})
}
