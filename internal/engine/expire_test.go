package engine

import (
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

func TestWhatExpiredWhileTheDiskFailedIsGoneOnceItWorks(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		fs := newFaults(vfs.NewMem())
		e := openOn(t, fs, "a")
		defer e.Close()
		put(t, e, "t", configOf(api.Disk, func(c *api.Config) { c.TTLMS = 10_000 }))
		put(t, e, "other", configOf(api.Fsync))
		write(t, e, "t", "1")
		time.Sleep(6 * time.Second)
		write(t, e, "t", "2")
		fs.failing("/wal", syscall.ENOSPC)
		if _, err := tryWrite(e, "other", "1"); err == nil {
			t.Fatal("a write on a full disk was acknowledged")
		}
		time.Sleep(6 * time.Second) // the first record expires, the second does not
		e.Topic("t", false)
		fs.set(nil)
		time.Sleep(2 * time.Second)
		if records, _ := mustFull(t, e, "t"); len(records) != 1 || records[0] != "2=2" {
			t.Fatalf("%v, want the second record alone", records)
		}
	})
}
