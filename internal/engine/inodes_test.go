package engine

import (
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
)

// inodes is a file system that has room for so many more files, of 2,000.
type inodes struct {
	vfs.FS
	free atomic.Int64
}

func (i *inodes) CountFiles(string) (free, total uint64, err error) {
	return uint64(i.free.Load()), 2000, nil
}

func newInodes(fs vfs.FS, free int64) *inodes {
	i := &inodes{FS: fs}
	i.free.Store(free)
	return i
}

// A file system may have bytes and no place for another file: writes are refused before the log
// needs one, and what frees space goes on.
func TestWritesLeaveRoomForTheFilesOfTheServer(t *testing.T) {
	mem := vfs.NewMem()
	setFree(mem, 500)
	fs := newInodes(mem, 1000)
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	write(t, e, "q", "1", "2")
	fs.free.Store(maxFileReserve - 1)
	eventually(t, "the engine is not writable", func() bool { ok, _ := e.Writable(); return !ok })
	_, err := tryWrite(e, "q", "3")
	if !api.IsCode(err, api.CodeDiskFull) {
		t.Fatalf("a write answers %v", err)
	}
	if d := err.(*api.Error).Detail; d["free_files"] != int64(maxFileReserve-1) || d["reserve_files"] != int64(maxFileReserve) || d["free_bytes"] != nil {
		t.Errorf("detail %v", d)
	}
	if _, reason := e.Writable(); !strings.Contains(reason, "room for 63 more files") {
		t.Errorf("the reason is %q", reason)
	}
	if e.Metrics().Writable {
		t.Error("the metrics say that it is writable")
	}
	if jobs := claimJobs(t, e, "q", "w", 2); len(jobs) != 2 {
		t.Fatalf("claimed %v", seqsOf(jobs))
	}
	ack(t, e, "q", "w", 1, 2)
	fs.free.Store(maxFileReserve) // one file that comes and goes does not open the door
	e.space.sample()
	if ok, _ := e.Writable(); ok {
		t.Error("writable at the reserve")
	}
	fs.free.Store(1000)
	writable(t, e, "q", "4")
}

// Somebody else has taken the last inode, and the log needs a file: what was kept for a disk
// without a byte gives its place.
func TestTheLogGetsAFileWithoutAFreeInode(t *testing.T) {
	mem := vfs.NewMem()
	setFree(mem, 500)
	faulty := newFaults(mem)
	fs := newInodes(faulty, 1000)
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	write(t, e, "q", "1", "2")
	there := func() bool { _, err := mem.Stat("/data/" + ballastFile); return err == nil }
	eventually(t, "there is something to give up", there)
	claimJobs(t, e, "q", "w", 2)
	var breaks, broken atomic.Bool // the file of the log, once
	faulty.set(func(o errorfs.Op, _ int) error {
		switch {
		case o.Kind == errorfs.OpCreate && there():
			return syscall.ENOSPC
		case o.Kind == errorfs.OpFileWriteAt && strings.Contains(o.Path, "/wal/") && breaks.CompareAndSwap(true, false):
			broken.Store(true)
			return syscall.EIO
		}
		return nil
	})
	fs.free.Store(0)
	eventually(t, "the engine is not writable", func() bool { ok, _ := e.Writable(); return !ok })
	e.log.GiveSpare()
	eventually(t, "the log has no file to go on with", func() bool {
		names, err := mem.List("/data/wal")
		return err == nil && len(slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, ".wal") })) == 1
	})
	breaks.Store(true)
	eventually(t, "an ack is taken", func() bool {
		res, err := e.Ack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1, 2}})
		return err == nil && res.Done == 2
	})
	if !broken.Load() || there() {
		t.Error("the log went on without what was kept for it: this test shows nothing")
	}
	faulty.set(nil)
	fs.free.Store(1000)
	writable(t, e, "q", "3")
	eventually(t, "there is something to give up again", there)
}

// A file system that does not count files, as btrfs, has no limit; nor has one whose number is
// more than any, and nor does a server without a reserve look.
func TestAFileSystemThatDoesNotCountFilesHasRoom(t *testing.T) {
	for _, c := range []struct {
		name        string
		free, total uint64
		reserve     int64
		few         bool
	}{
		{"does not count", 0, 0, 0, false},
		{"minus one", 1<<64 - 1, 1<<64 - 1, 0, false},
		{"no reserve", 3, 2000, -1, false},
		{"few of few", 3, 40, 0, true},
		{"few files altogether", 4, 40, 0, false},
		{"few", 63, 1 << 20, 0, true},
		{"enough", 64, 1 << 20, 0, false},
	} {
		mem := vfs.NewMem()
		setFree(mem, 500)
		s := openSpace(&Options{FS: counts{mem, c.free, c.total}, Dir: "/data", DiskReserve: c.reserve}, new(atomic.Int64))
		if s.refuses() != c.few || (s.room(1) != nil) != c.few {
			t.Errorf("%s: refuses %v, a write %v", c.name, s.refuses(), s.room(1))
		}
	}
}

type counts struct {
	vfs.FS
	free, total uint64
}

func (c counts) CountFiles(string) (free, total uint64, err error) { return c.free, c.total, nil }
