package engine

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// What the log keeps for an asynchronous copy whose store is away is given up before writes are refused for it: on a
// disk that is smaller than LagMax, the server would stand still for as long as the store is away.
func TestACopyThatIsBehindGivesWayToWritesOnAFullDisk(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(10 * time.Millisecond)
		fs := vfs.NewMem()
		setFree(fs, 500)
		e := s.openEngine(t, fs, 0, func(o *Options) { o.SegmentBytes, o.DiskReserve = 1<<20, 100*mebi })
		put(t, e, "a", configOf(api.Fsync, func(c *api.Config) { c.CapRecords = 1 }))
		e.copier.testIdle(t)
		s.away.Store(true)
		big := `"` + strings.Repeat("x", 100<<10) + `"`
		fill := func() {
			t.Helper()
			for range 100 {
				write(t, e, "a", big)
			}
		}
		fill()
		time.Sleep(5 * time.Second)
		if n := e.copier.tail.Lag(); n < 4<<20 || e.copier.tail.Held() {
			t.Fatalf("%d bytes are kept for the copy on a disk with room", n)
		}
		setFree(fs, 99)
		time.Sleep(5 * time.Second)
		if n := e.copier.tail.Lag(); n > 4<<20+1<<20 || !e.copier.tail.Held() { // up to four groups are on their way
			t.Errorf("%d bytes are kept for the copy on a full disk", n)
		}
		setFree(fs, 500)
		time.Sleep(5 * time.Second)
		fill()
		s.away.Store(false)
		e.copier.testIdle(t)
		was := e.log.Synced()
		s.lead()
		if lsn := s.rebuild(t, vfs.NewMem(), "/data"); lsn < was {
			t.Errorf("with room, and its store back, the copy ends at %d of %d", lsn, was)
		}
	})
}

// Who is refused because a synchronous copy's store is away is told so: more cores or fewer writers would not help.
func TestARefusalNamesTheCopyThatWritesWaitFor(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		s := newShelf(10 * time.Millisecond)
		e := s.openEngine(t, vfs.NewMem(), 0, func(o *Options) { o.Replica.Sync = true })
		put(t, e, "a", configOf(api.Fsync))
		e.copier.testIdle(t)
		s.away.Store(true)
		write := func() error {
			_, err := e.Write(bg, "a", &api.WriteRequest{Records: []api.Record{{Data: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}}})
			return err
		}
		var waiting sync.WaitGroup
		for range 8 {
			waiting.Go(func() {
				if err := write(); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if !e.log.WaitsForCopy() {
			t.Fatal("the log takes more")
		}
		err := write()
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Code != api.CodeThrottled || !strings.Contains(refused.Message, "--replica-sync") {
			t.Errorf("the store is away: %v", err)
		}
		s.away.Store(false)
		waiting.Wait()
		e.copier.testIdle(t)
	})
}
