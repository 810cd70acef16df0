package wal

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// What failed is undecided until its file was replaced: until then a restart
// could still find it, so nobody may be told that it is not stored.
func TestAFailureIsToldOnlyOnceTheFileIsReplaced(t *testing.T) {
	replaced := newHold(func(c call) bool { return c.kind == "create" })
	fs := newFaultFS(vfs.NewMem(), nil)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 64 << 10}, 0)
	fs.set(func(c call) error {
		if c.kind == "sync" && ofSegment(c) {
			fs.set(replaced.hook)
			return syscall.EIO
		}
		return nil
	})
	gen := l.Gen()
	lsn, _, err := l.AppendUnslotted(gen, nil, []byte("x"), Checksum([]byte("x")), Synced)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	go func() { told <- l.Wait(lsn, gen, Synced) }()
	within(t, "the file is being replaced", func() error { <-replaced.reached; return nil })
	if ok, failed := l.Check(lsn, gen, Synced); ok || failed {
		t.Errorf("before the file is replaced Check says ok %v, failed %v", ok, failed)
	}
	select {
	case err := <-told:
		t.Errorf("before the file is replaced the writer is told %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	close(replaced.let)
	var we *WriteError
	if err := <-told; !errors.As(err, &we) || we.Errno != syscall.EIO || we.Open {
		t.Errorf("the writer is told %v", err)
	}
	if ok, failed := l.Check(lsn, gen, Synced); ok || !failed {
		t.Errorf("then Check says ok %v, failed %v", ok, failed)
	}
	mustClose(t, l)
}

// After a mere kill nothing that was written is missing: a group that cannot be
// read in front of an intact one is damage, though nothing was synced.
func TestADamagedGroupInFrontOfAnIntactOneIsNoTornTailAfterAKill(t *testing.T) {
	mem := vfs.NewMem()
	opt := Options{FS: mem, SegmentBytes: 64 << 10, FlushEvery: time.Hour}
	l, _, _ := openLog(t, opt, 0)
	_, pos := add(t, l, "", "damaged", Written)
	add(t, l, "", "intact", Written)
	path := l.path(segName(pos.Segment))
	f, err := mem.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("D"), int64(pos.Offset)); err != nil {
		t.Fatal(err)
	}
	// The process is gone; its log is left as it is.
	opt.SameBoot = true
	again, st, _, err := tryOpen(opt, 0)
	var bad *CorruptError
	if !errors.As(err, &bad) {
		t.Errorf("the log opens with %d of 2 acknowledged operations, error %v", len(st.ops), err)
	}
	if again != nil {
		mustClose(t, again)
	}
	_ = l.Close()
}
