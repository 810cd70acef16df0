package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/api"
)

const mebi = 1 << 20

// setFree makes a file system in memory say that so many MiB of 1000 are free.
func setFree(fs interface{ TestingSetDiskUsage(vfs.DiskUsage) }, free uint64) {
	fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free * mebi, TotalBytes: 1000 * mebi, UsedBytes: (1000 - free) * mebi})
}

// eventually waits for cond.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("30 s passed without this: %s", what)
		}
	}
}

func TestTheDiskReserveIsTheSmallerOf192MiBAndATenth(t *testing.T) {
	for _, c := range []struct {
		total, asked     int64 // MiB; asked -1: none
		reserve, segment int64
		memory           int64 // MiB; 0: not known
	}{
		{total: 160, reserve: 16, segment: 16 * mebi / 3 &^ 4095},
		{total: 1000, reserve: 100, segment: 100 * mebi / 3 &^ 4095},
		{total: 1920, reserve: 192, segment: 64 * mebi},
		{total: 1 << 20, reserve: 192, segment: 64 * mebi},
		{total: 1 << 20, asked: 4096, reserve: 4096, segment: 64 * mebi},
		{total: 1 << 20, asked: 1, reserve: 1, segment: mebi},
		{total: 160, asked: -1, reserve: 0, segment: 64 * mebi},
		{total: 0, reserve: 0, segment: 64 * mebi}, // the file system does not say
		{total: 1920, reserve: 192, segment: 64 * mebi, memory: 1024},
		{total: 1920, reserve: 192, segment: 8 * mebi, memory: 128},
		{total: 0, reserve: 0, segment: mebi, memory: 8},
	} {
		fs := vfs.NewMem()
		if c.total > 0 {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: uint64(c.total) * mebi, TotalBytes: uint64(c.total) * mebi})
		}
		got := openSpace(&Options{FS: fs, Dir: "/data", DiskReserve: c.asked * mebi, Memory: c.memory * mebi}, new(atomic.Int64))
		if got.reserve != c.reserve*mebi || got.segment != c.segment {
			t.Errorf("%+v: reserve %d, segment %d", c, got.reserve, got.segment)
		}
	}
	fs := vfs.NewMem()
	setFree(fs, 500)
	e := openOn(t, fs, "a", func(o *Options) { o.SegmentBytes, o.DiskReserve = 0, mebi })
	defer e.Close()
	if got := e.Metrics().DiskReserve; got != mebi || e.opt.SegmentBytes != mebi {
		t.Errorf("an engine's reserve is %d, its segment %d", got, e.opt.SegmentBytes)
	}
}

// Below the reserve a write is refused before anything breaks, and everything
// that frees space or only changes how things are kept goes on.
func TestBelowTheReserveOnlyWritesAreRefused(t *testing.T) {
	fs := vfs.NewMem()
	setFree(fs, 500)
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Disk, queueConfig))
	put(t, e, "r", configOf(api.Fsync))
	put(t, e, "m", configOf(api.Ephemeral))
	key := api.WriteRequest{Records: []api.Record{{Data: []byte("1")}}, HasIdempotencyKey: true, IdempotencyKey: []byte("k")}
	if _, err := e.Write(bg, "r", &key); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		write(t, e, "q", fmt.Sprint(i))
	}
	setFree(fs, 99)
	eventually(t, "the engine is not writable", func() bool { ok, _ := e.Writable(); return !ok })
	for _, topic := range []string{"q", "r", "m", "new"} {
		_, err := tryWrite(e, topic, "x")
		if !api.IsCode(err, api.CodeDiskFull) {
			t.Fatalf("a write to %s answers %v", topic, err)
		}
		full := err.(*api.Error)
		if d := full.Detail; d["free_bytes"] != int64(99*mebi) || d["reserve_bytes"] != int64(100*mebi) || full.RetryAfter != 5*time.Second {
			t.Errorf("detail %v, to be tried again after %v", d, full.RetryAfter)
		}
	}
	if e.TopicExists("new") {
		t.Error("a refused write has made its topic")
	}
	if _, err := e.Write(bg, "q", &api.WriteRequest{Records: key.Records, DisableBackpressure: true}); !api.IsCode(err, api.CodeDiskFull) {
		t.Errorf("a write that waits for room answers %v: no waiting frees a disk", err)
	}
	if res, err := e.Write(bg, "r", &key); err != nil || !res.Deduped {
		t.Errorf("the repeat of a stored write: %+v, %v", res, err)
	}
	jobs := claimJobs(t, e, "q", "w", 4)
	if len(jobs) != 4 {
		t.Fatalf("claimed %v", seqsOf(jobs))
	}
	ack(t, e, "q", "w", 1, 2)
	if res, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{3}}); err != nil || res.Done != 1 {
		t.Errorf("nack: %+v, %v", res, err)
	}
	if res, err := e.Extend(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{4}, LeaseMS: 5000}); err != nil || res.Done != 1 {
		t.Errorf("extend: %+v, %v", res, err)
	}
	if res, err := e.DeleteRecords(bg, "q", &api.DeleteRequest{HasBefore: true, BeforeSeq: 6}); err != nil || res.Deleted == 0 {
		t.Errorf("delete: %+v, %v", res, err)
	}
	put(t, e, "r", configOf(api.Fsync, func(c *api.Config) { c.CapRecords = 1 }))
	put(t, e, "empty", configOf(api.Disk))
	if res, err := e.DeleteTopic(bg, "r", false); err != nil || !res.Deleted {
		t.Errorf("delete topic: %+v, %v", res, err)
	}
	setFree(fs, 400)
	writable(t, e, "q", "back")
	if ok, reason := e.Writable(); !ok || reason != "" {
		t.Errorf("writable %v %q", ok, reason)
	}
}

// What a table takes while it is built must not open and close the door: writes go on once there
// is room for a good part of a segment above the reserve.
func TestWritesGoOnOnceThereIsSomeRoom(t *testing.T) {
	const reserve, segment = 10 << 20, 3 << 20
	mem := vfs.NewMem()
	var ingested atomic.Int64
	mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 2 * reserve, TotalBytes: 10 * reserve})
	s := openSpace(&Options{FS: mem, Dir: "/", DiskReserve: reserve, SegmentBytes: segment}, &ingested)
	for _, step := range []struct {
		free int64
		low  bool
	}{{reserve, false}, {reserve - 1, true}, {reserve, true}, {reserve + segment/3 - 1, true}, {reserve + segment/3, false}, {reserve, false}} {
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: uint64(step.free), TotalBytes: 10 * reserve})
		s.sample()
		if got := s.room(0) != nil; got != step.low {
			t.Errorf("at %d bytes above the reserve a write is refused: %v", step.free-reserve, got)
		}
	}
}

// The refusal comes with the write that would break the reserve, not with the
// next look at the disk; and a write that is larger than what is left is refused
// while smaller ones are not.
func TestAWriteNeverTakesTheReserveBetweenTwoLooks(t *testing.T) {
	fs := vfs.NewMem()
	setFree(fs, 500)
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	big := `"` + strings.Repeat("x", 900<<10) + `"`
	setFree(fs, 101)
	var err error
	e.space.sample()
	if _, err = tryWrite(e, "t", big); !api.IsCode(err, api.CodeDiskFull) {
		t.Errorf("a write whose file and table do not fit above the reserve: %v", err)
	}
	if _, err = tryWrite(e, "t", "1"); err != nil {
		t.Errorf("a small one: %v", err)
	}
	setFree(fs, 100) // the loop may not have seen it
	for i := 0; i < 100 && err == nil; i++ {
		_, err = tryWrite(e, "t", strings.Repeat("1", 60<<10))
	}
	if !api.IsCode(err, api.CodeDiskFull) {
		t.Errorf("6 MB went through at the reserve: %v", err)
	}
}

// Dead letters and copies of routers are records like any other: they wait
// where they are and go on by themselves.
func TestDeadLettersAndRoutersWaitForTheDisk(t *testing.T) {
	fs := vfs.NewMem()
	setFree(fs, 500)
	e := openOn(t, fs, "a")
	put(t, e, "q", configOf(api.Disk, queueConfig, func(c *api.Config) {
		c.MaxDeliveries, c.HasDeadLetter, c.DeadLetter = 1, true, "dead"
	}))
	write(t, e, "q", "1")
	claimJobs(t, e, "q", "w", 1)
	if _, err := e.Nack(bg, "q", &api.SettleRequest{Node: "w", Seqs: []uint64{1}}); err != nil {
		t.Fatal(err)
	}
	put(t, e, "in", configOf(api.Disk))
	putRouter(t, e, "r", "in", "out")
	release := hold(e, "r")
	write(t, e, "in", "1", "2")
	setFree(fs, 50)
	eventually(t, "the engine is not writable", func() bool { ok, _ := e.Writable(); return !ok })
	release()
	wantFull(t, e, "out", "[]", "[]")
	if jobs := claimJobs(t, e, "q", "w", 1); len(jobs) != 0 {
		t.Fatalf("a dead job was handed out: %v", seqsOf(jobs))
	}
	if s := stateOf(t, e, "q"); s.Queue.Ready != 1 || s.Queue.DeadLettered != 0 {
		t.Errorf("the dead job is not ready while its letter cannot be stored: %+v", s.Queue)
	}
	setFree(fs, 400)
	eventually(t, "the engine is writable", func() bool { ok, _ := e.Writable(); return ok })
	eventually(t, "the router copies by itself, without another write", func() bool { return e.routes.get("r").total.Load() == 2 })
	wantFull(t, e, "out", "[1=1 2=2]", "[]")
	claimJobs(t, e, "q", "w", 1)
	if s := stateOf(t, e, "q"); s.Queue.DeadLettered != 1 {
		t.Errorf("the dead letter did not move once there was room: %+v", s.Queue)
	}
}

// A stop needs no space: an exit code of 1 would look like damage.
func TestAStopOnAFullDiskIsClean(t *testing.T) {
	for _, part := range []string{"/wal/", "FORMAT", "/data"} {
		t.Run(part, func(t *testing.T) {
			fs := newFaults(vfs.NewMem())
			e := openOn(t, fs, "a")
			put(t, e, "m", configOf(api.Memory))
			put(t, e, "d", configOf(api.Disk))
			write(t, e, "m", "1")
			write(t, e, "d", "1")
			fs.set(func(o errorfs.Op, _ int) error {
				if strings.Contains(o.Path, part) && o.Kind != errorfs.OpRename && o.Kind != errorfs.OpRemove &&
					o.Kind != errorfs.OpFileSync && o.Kind != errorfs.OpFileSyncData {
					return syscall.ENOSPC
				}
				return nil
			})
			if err := e.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			fs.set(nil)
			e = openOn(t, fs, "a")
			if part == "FORMAT" {
				if _, gaps := mustFull(t, e, "m"); len(gaps) > 0 || !e.dir.clean {
					t.Errorf("the stop counts as a crash: %v", gaps)
				}
			}
			if got, _ := mustFull(t, e, "d"); fmt.Sprint(got) != "[1=1]" {
				t.Errorf("records %v", got)
			}
		})
	}
	fs := newFaults(vfs.NewMem())
	e := openOn(t, fs, "a")
	put(t, e, "d", configOf(api.Disk))
	fs.failing("/wal/", syscall.EIO)
	_, _ = tryWrite(e, "d", "1")
	if err := e.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("a disk that fails is told at the stop, got %v", err)
	}
}

// Somebody else has taken the last byte, and no table can be written any more: what is deleted
// is given back all the same, and what was given up for it is there again once there is room.
func TestADeadSegmentIsGivenBackWithoutAFreeByte(t *testing.T) {
	mem := vfs.NewMem()
	setFree(mem, 500)
	fs := newFaults(mem)
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "1", "2", "3")
	sealNow(t, e)
	there := func() bool { _, err := mem.Stat("/data/" + ballastFile); return err == nil }
	eventually(t, "there is something to give up", there)
	fs.set(func(o errorfs.Op, _ int) error {
		if there() && (o.Kind == errorfs.OpFileWrite || o.Kind == errorfs.OpCreate) && !strings.Contains(o.Path, "/wal/") {
			return syscall.ENOSPC
		}
		return nil
	})
	setFree(mem, 0)
	eventually(t, "the engine is not writable", func() bool { ok, _ := e.Writable(); return !ok })
	if res, err := e.DeleteRecords(bg, "t", &api.DeleteRequest{HasBefore: true, BeforeSeq: 4}); err != nil || res.Deleted != 3 {
		t.Fatalf("delete: %+v, %v", res, err)
	}
	eventually(t, "the segment is given back", func() bool {
		for _, s := range e.store.Segments() {
			if s.Disk > 0 {
				return false
			}
		}
		return true
	})
	if there() {
		t.Error("the segment went without what was kept for it: this test shows nothing")
	}
	fs.set(nil)
	setFree(mem, 400)
	writable(t, e, "t", "4")
	eventually(t, "there is something to give up again", there)
}

// A server that was killed on a disk without a free byte starts: what it is then told to delete
// makes room. So it does where a quota is used up, of which the free bytes say nothing.
func TestAFullDiskKeepsNoServerFromStarting(t *testing.T) {
	t.Run("disk", func(t *testing.T) { startOnAFullDisk(t, 0, syscall.ENOSPC) })
	t.Run("quota", func(t *testing.T) { startOnAFullDisk(t, 500, syscall.EDQUOT) })
}

func startOnAFullDisk(t *testing.T, free uint64, full error) {
	mem := vfs.NewMem()
	setFree(mem, 500)
	fs := newFaults(mem)
	e := openOn(t, fs, "a")
	put(t, e, "t", configOf(api.Disk))
	write(t, e, "t", "1", "2")
	there := func() bool { _, err := mem.Stat("/data/" + ballastFile); return err == nil }
	eventually(t, "there is something to give up", there)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	fs.set(func(o errorfs.Op, _ int) error {
		if there() && (o.Kind == errorfs.OpFileWrite || o.Kind == errorfs.OpCreate) {
			return full
		}
		return nil
	})
	setFree(mem, free)
	e = openOn(t, fs, "a")
	if got, _ := mustFull(t, e, "t"); fmt.Sprint(got) != "[1=1 2=2]" {
		t.Errorf("records %v", got)
	}
	if res, err := e.DeleteRecords(bg, "t", &api.DeleteRequest{HasBefore: true, BeforeSeq: 3}); err != nil || res.Deleted != 2 {
		t.Errorf("delete: %+v, %v", res, err)
	}
	fs.set(nil)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
