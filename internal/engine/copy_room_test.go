//go:build !race

package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// What the copy has already is not ahead of it after a restart: it leaves the same room for
// writes as before. Its many bytes are slow with the race detector, which finds nothing in
// them.
func TestASynchronousServerTakesWritesRightAfterItsRestart(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s, fs := newShelf(10*time.Millisecond), vfs.NewMem()
		synchronous := func(o *Options) { o.Replica.Sync, o.SegmentBytes = true, 24<<20 }
		e := s.openEngine(t, fs, 0, synchronous)
		e.copier.testIdle(t)
		cfg := configOf(api.Disk)
		write := func(e *Engine, bytes int) {
			t.Helper()
			data := fmt.Appendf(nil, `"%0*d"`, bytes, 0)
			if _, err := e.Write(bg, "a", &api.WriteRequest{Config: &cfg, Records: []api.Record{{Data: data}}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 40 {
			write(e, 500_000)
		}
		e.copier.testIdle(t)
		e.Close()
		next := s.openEngine(t, fs, s.rebuild(t, vfs.NewMem(), "/data"), synchronous)
		s.away.Store(true)
		for range 10 {
			write(next, 100_000)
		}
		s.away.Store(false)
		next.copier.testIdle(t)
		next.Close()
	})
}
