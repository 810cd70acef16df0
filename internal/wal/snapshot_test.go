package wal

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// copyOf is a copy of a log, and what was acknowledged before it was begun.
type copyOf struct {
	dir   string
	lsn   uint64
	acked map[string]stored
}

// copySnapshot copies the log as it is behind after, while it goes on.
func copySnapshot(l *Log, b *ledger, fs vfs.FS, dir string, after uint64) (*copyOf, error) {
	b.Lock()
	c := &copyOf{dir: dir, acked: maps.Clone(b.acked)}
	b.Unlock()
	s, err := l.Snapshot(after)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	c.lsn = s.LSN
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for i := range s.Files {
		f := &s.Files[i]
		w, err := fs.Create(fs.PathJoin(dir, f.Name), vfs.WriteCategoryUnspecified)
		if err != nil {
			return nil, err
		}
		n, err := io.Copy(w, f.Open())
		if err = errors.Join(err, w.Close()); err != nil {
			return nil, err
		}
		if n != f.Size {
			return nil, fmt.Errorf("%s has %d bytes, %d were announced", f.Name, n, f.Size)
		}
	}
	return c, nil
}

// check opens the copy, first to be read alone.
func (c *copyOf) check(b *ledger, fs vfs.FS, after uint64) error {
	opt := Options{FS: fs, Dir: c.dir, SegmentBytes: 8 << 10, MaxSealed: 1 << 20}
	seen := 0
	look, rec, err := Look(opt, after, func(Op) error { seen++; return nil })
	if err != nil {
		return err
	}
	if rec.Last != max(c.lsn, after) || rec.Torn {
		return fmt.Errorf("the copy ends at %d (torn: %v), want %d", rec.Last, rec.Torn, c.lsn)
	}
	l, st, _, err := tryOpen(opt, after)
	if err != nil {
		return err
	}
	got := map[string]bool{}
	for lsn, op := range st.ops {
		if data, err := look.Read(op.pos, nil); err != nil || string(data) != op.data {
			return fmt.Errorf("reading operation %d: %q, %w", lsn, data, err)
		}
		if b.failed[op.data] {
			return fmt.Errorf("operation %d failed and is in the copy", lsn)
		}
		got[op.data] = true
	}
	for data := range c.acked {
		if !got[data] && after == 0 {
			return fmt.Errorf("%q was acknowledged before and is not in the copy", data)
		}
	}
	if seen != len(st.ops) {
		return fmt.Errorf("%d operations to look at, %d to open", seen, len(st.ops))
	}
	if lsn, _, err := tryAdd(l, "", "more", Synced); err != nil || lsn <= c.lsn {
		return fmt.Errorf("the copy goes on at %d: %w", lsn, err)
	}
	return errors.Join(look.Close(), l.Close())
}

func TestASnapshotOfAFailingLogIsTheLogAtOnePosition(t *testing.T) {
	mem := vfs.NewMem()
	fs := newFaultFS(mem, nil)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, HotBytes: 8 << 10, FlushEvery: time.Millisecond,
		RetryEvery: time.Millisecond, MaxSealed: 1 << 20}, 0)
	base := fs.n
	fs.set(func(c call) error {
		if n := c.n - base; n%25 == 24 && n < 4000 {
			return syscall.EIO
		}
		return nil
	})
	b := newLedger()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(w)))
			for range 150 {
				_ = b.burst(l, rng, fmt.Sprint(w))
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	var copies []*copyOf
	for n, last := 0, false; !last || n == 0; {
		select {
		case <-ended:
			fs.set(nil)
			last = true
		default:
		}
		if n > 50 && !last {
			<-ended
			continue
		}
		if c, err := copySnapshot(l, b, mem, fmt.Sprint("copy", n), 0); err == nil {
			copies, n = append(copies, c), n+1
		} else if last && resumed(l) != nil {
			t.Fatal(err)
		}
	}
	if l.Gen() < 3 || len(copies) < 3 {
		t.Errorf("%d failures, %d copies", l.Gen(), len(copies))
	}
	mustClose(t, l)
	for _, c := range copies {
		if err := c.check(b, mem, 0); err != nil {
			t.Fatalf("%s: %v", c.dir, err)
		}
	}
}

// What the store has taken over is not in the copy, and the numbers of its
// segments are not given out again.
func TestASnapshotOfAnEmptyLogKeepsItsPlace(t *testing.T) {
	mem := vfs.NewMem()
	l, _, _ := openLog(t, Options{FS: mem, SegmentBytes: 8 << 10}, 0)
	b := newLedger()
	rng := rand.New(rand.NewPCG(8, 8))
	for n := range 5 {
		_ = b.burst(l, rng, "x")
		if err := l.Rotate(); err != nil {
			t.Fatal(err)
		}
		after, number := uint64(0), uint32(0)
		for seg, ok := l.OldestSealed(); ok; seg, ok = l.OldestSealed() {
			after, number = seg.LastLSN, seg.Number
			if err := l.Release(seg.Number); err != nil {
				t.Fatal(err)
			}
		}
		c, err := copySnapshot(l, b, mem, fmt.Sprint("copy", n), after)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.check(b, mem, after); err != nil {
			t.Fatal(err)
		}
		again, _, _ := openLog(t, Options{FS: mem, Dir: c.dir, SegmentBytes: 8 << 10}, after)
		if _, pos := add(t, again, "", "y", Synced); pos.Segment <= number {
			t.Errorf("segment %d is used again; %d are in the store", pos.Segment, number)
		}
		mustClose(t, again)
	}
	mustClose(t, l)
}

// While a backup copies the files of the log, the store takes over what is in them and the log
// needs files.
func TestTheFilesOfASnapshotAreNotUsedAgain(t *testing.T) {
	fs := vfs.NewMem()
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, MaxSealed: 100}, 0)
	defer mustClose(t, l)
	want := map[uint64]string{}
	write := func(name string, n int) {
		t.Helper()
		for i := range n {
			body := fmt.Sprintf("%s %d %0900d", name, i, i)
			lsn, _ := add(t, l, "", body, Synced)
			if name == "copied" {
				want[lsn] = body
			}
		}
	}
	write("copied", 20)
	s, err := l.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		write(fmt.Sprint("later ", n), 20)
		if err := backUp(l); err != nil {
			t.Fatal(err)
		}
	}
	copyFiles(t, fs, "copy", s)
	s.Close()
	again, st, _ := openLog(t, Options{FS: fs, Dir: "copy", SegmentBytes: 8 << 10, MaxSealed: 100}, 0)
	defer mustClose(t, again)
	if len(st.ops) != len(want) {
		t.Errorf("the copy holds %d operations, want %d", len(st.ops), len(want))
	}
	for lsn, body := range want {
		if st.ops[lsn].data != body {
			t.Errorf("operation %d is %.20q, want %.20q", lsn, st.ops[lsn].data, body)
		}
	}
}

func TestAnAbsentDirectoryIsAnEmptyLogToLookAt(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"memory": vfs.NewMem(), "disk": vfs.Default} {
		dir := fs.PathJoin(t.TempDir(), "absent")
		l, rec, err := Look(Options{FS: fs, Dir: dir}, 0, func(Op) error { return nil })
		if err != nil || rec.Segments != 0 || rec.Last != 0 {
			t.Fatalf("%s: %+v, %v", name, rec, err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := fs.Stat(dir); err == nil {
			t.Errorf("%s: the directory has been made", name)
		}
	}
}
