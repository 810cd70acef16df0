package wal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What was written is on the disk once the flush interval has passed, though
// nobody asks for a sync: a single operation, a steady trickle, and what comes
// after a long rest.
func TestWhatIsWrittenIsSyncedWithinTheFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		opt := Options{FS: mem, FlushEvery: time.Second, SegmentBytes: 64 << 10}
		l, _, _ := openLog(t, opt, 0)
		safe := func(n uint64) {
			t.Helper()
			crashed := opt
			crashed.FS = mem.CrashClone(vfs.CrashCloneCfg{})
			c, st, _, err := tryOpen(crashed, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer mustClose(t, c)
			if uint64(len(st.ops)) < n {
				t.Errorf("after a power cut the log holds %d operations, want %d at least", len(st.ops), n)
			}
		}
		lsn := uint64(0)
		for _, class := range []Class{Written, Memory} {
			lsn, _ = add(t, l, "", "alone", class)
			time.Sleep(time.Second + 3*flushTick)
			safe(lsn)
			for range 40 {
				time.Sleep(100 * time.Millisecond)
				lsn, _ = add(t, l, "", "a trickle", class)
				safe(max(lsn, 12) - 12) // what is older than 1.03 s
			}
			time.Sleep(time.Hour)
			safe(lsn)
		}
		mustClose(t, l)
	})
}
