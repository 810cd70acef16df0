package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// Workers that drain a queue empty its segments one after the other: what is left of the
// first one is not copied meanwhile, but the space comes back if they stop.
func TestASegmentThatIsBeingDrainedIsNotRewritten(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		e := openOn(t, vfs.NewMem(), "1", func(o *Options) { o.SegmentBytes = 1 << 20 })
		put(t, e, "jobs", configOf(api.Disk, queueConfig))
		data := make([]string, 1000)
		for i := range data {
			data[i] = content("jobs", uint64(i))
		}
		write(t, e, "jobs", data...)
		sealNow(t, e)
		time.Sleep(2 * time.Second) // it is looked at while it is full
		disk := func() (n uint64) {
			for _, s := range e.store.Segments() {
				n += s.Disk
			}
			return n
		}
		full := disk()
		var seqs []uint64
		for _, j := range claimJobs(t, e, "jobs", "w", 600) {
			seqs = append(seqs, j.Seq)
		}
		ack(t, e, "jobs", "w", seqs...)
		synctest.Wait()
		if n := disk(); n != full {
			t.Fatalf("of %d bytes %d are left right after an ack", full, n)
		}
		time.Sleep(3 * time.Second)
		if n := disk(); n == 0 || n > full/2 {
			t.Fatalf("of %d bytes %d are left when nobody works on", full, n)
		}
	})
}
