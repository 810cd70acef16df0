package wal

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// While the keeper syncs the header of the newest file, on a disk that takes
// its time, the writer may go on to the next one: a released file must not
// take its name, and the writer must not wait for a number that never comes.
func TestAReleasedFileNeverTakesTheNameOfOneInUse(t *testing.T) {
	fs := newFaultFS(vfs.NewMem(), func(c call) error {
		if c.kind == "sync" {
			time.Sleep(300 * time.Microsecond)
		}
		return nil
	})
	opt := Options{FS: fs, SegmentBytes: 8 << 10, MaxSealed: 4}
	l, _, _ := openLog(t, opt, 0)
	done := make(chan error, 1)
	want := map[uint64]string{}
	go func() {
		for i := range 3000 {
			body := []byte(fmt.Sprintf("%06d%0500d", i, i))
			gen := l.Gen()
			lsn, _, err := l.AppendUnslotted(gen, nil, body, Checksum(body), Written)
			if err == nil {
				err = l.Wait(lsn, gen, Written)
			}
			if err != nil {
				done <- err
				return
			}
			want[lsn] = string(body)
			for s, ok := l.OldestSealed(); ok; s, ok = l.OldestSealed() {
				if err := l.Release(s.Number); err != nil {
					done <- err
					return
				}
				for lsn := range want {
					if lsn <= s.LastLSN {
						delete(want, lsn)
					}
				}
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the writer waits for a file that never comes")
	}
	mustClose(t, l)
	first := ^uint64(0)
	for lsn := range want {
		first = min(first, lsn)
	}
	l, again, _ := openLog(t, opt, first-1)
	defer mustClose(t, l)
	for lsn, data := range want {
		if again.ops[lsn].data != data {
			t.Fatalf("operation %d is lost", lsn)
		}
	}
}

// The next file can be had early, while there is space for it, and given back
// to something more urgent; the log goes on in either case.
func TestTheNextFileIsMadeEarlyAndGivenBack(t *testing.T) {
	fs := vfs.NewMem()
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10}, 0)
	defer mustClose(t, l)
	next := l.path(segName(2))
	has := func() bool { _, err := fs.Stat(next); return err == nil }
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("not within 30 s: " + what)
			}
		}
	}
	write := func(n int) {
		t.Helper()
		for range n {
			gen := l.Gen()
			lsn, _, err := l.AppendUnslotted(gen, nil, make([]byte, 1000), Checksum(make([]byte, 1000)), Written)
			if err == nil {
				err = l.Wait(lsn, gen, Written)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if has() {
		t.Fatal("there is a second file before anything was written")
	}
	l.Provide()
	until("the next file is made", has)
	l.GiveSpare()
	until("it is given back", func() bool { return !has() })
	write(5) // past the half, where it would be made again
	l.mu.Lock()
	held := l.mu.spare == nil
	l.mu.Unlock()
	if has() || !held {
		t.Error("the space was taken again at once")
	}
	write(10)
	until("the log goes on in it", has)
	if f := l.Metrics().Failures; f != 0 {
		t.Errorf("the log failed %d times", f)
	}
}

// Under load a segment is released when the next file is there already. It is used for the one
// after that; and given back, as that one is, to something more urgent.
func TestAFileReleasedLateIsUsedAgain(t *testing.T) {
	fs := newFaultFS(vfs.NewMem(), nil)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, MaxSealed: 4}, 0)
	defer mustClose(t, l)
	made := func() int {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		return fs.calls["create"]
	}
	until := func(what string, ok func() bool) { t.Helper(); untilLocked(t, l, what, ok) }
	next := func() { // without a released file it is made once this one is half full
		t.Helper()
		until("the next file is there", func() bool {
			if l.mu.spare == nil {
				l.mu.Unlock()
				add(t, l, "", string(make([]byte, 500)), Written)
				l.mu.Lock()
			}
			return l.mu.spare != nil
		})
	}
	start := 0
	for segment := range 20 {
		if segment == 3 {
			start = made()
		}
		l.mu.Lock()
		sealed := len(l.mu.segs)
		l.mu.Unlock()
		next()
		if s, ok := l.OldestSealed(); ok {
			if err := l.Release(s.Number); err != nil {
				t.Fatal(err)
			}
			until("the keeper has seen to it", func() bool { return len(l.mu.retired) == 0 || l.keptLocked() })
			sealed--
		}
		until("the next file is written to", func() bool {
			if len(l.mu.segs) == sealed {
				l.mu.Unlock()
				add(t, l, "", string(make([]byte, 500)), Written)
				l.mu.Lock()
			}
			return len(l.mu.segs) > sealed
		})
	}
	if n := made() - start; n > 5 { // the writer may be through with half of such a small file before the keeper looks
		t.Errorf("%d files were made for 17 segments while others were released", n)
	}
	files := func(what string, want func(segments int) int) {
		t.Helper()
		l.mu.Lock()
		segments := len(l.mu.segs)
		l.mu.Unlock()
		within(t, what, func() error {
			for segmentFiles(t, fs, l.opt.Dir) != want(segments) {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
	}
	next()
	l.Keep(false)
	files("on a disk that is nearly full there is only the next file", func(segments int) int { return segments + 1 })
	l.GiveSpare()
	files("the files that hold nothing go", func(segments int) int { return segments })
}

// segmentFiles counts the files of a log.
func segmentFiles(t *testing.T, fs vfs.FS, dir string) (n int) {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, ok := parseSegName(name); ok {
			n++
		}
	}
	return n
}

// A failure moves what was acknowledged to a new file. Once the store has all of it, both
// files go.
func TestNoFileOfAFailureStays(t *testing.T) {
	fs := newFaultFS(vfs.NewMem(), nil)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, RetryEvery: time.Millisecond, FlushEvery: time.Hour}, 0)
	defer mustClose(t, l)
	for range 10 {
		for tries, failed := 0, false; !failed; tries++ { // what is recycled is synced too, and may meet the failure
			if tries == 100 {
				t.Fatal("no sync fails")
			}
			add(t, l, "", "kept", Written)
			fs.failSync()
			failed = l.Sync() != nil
		}
		if err := resumed(l); err != nil {
			t.Fatal(err)
		}
		if err := backUp(l); err != nil {
			t.Fatal(err)
		}
	}
	add(t, l, "", "last", Synced)
	within(t, "the files are removed", func() error {
		for segmentFiles(t, fs, l.opt.Dir) > 3 { // the tail, the next one and the one after it
			time.Sleep(time.Millisecond)
		}
		return nil
	})
}

// A log whose segments are made larger or smaller opens again.
func TestTheSizeOfSegmentsMayChange(t *testing.T) {
	fs := vfs.NewMem()
	want, after := map[uint64]string{}, uint64(0)
	for i, size := range []int64{8 << 10, 16 << 10, 4 << 10, 8 << 10} {
		l, st, _ := openLog(t, Options{FS: fs, SegmentBytes: size, MaxSealed: 100}, after)
		for lsn, body := range want {
			if st.ops[lsn].data != body {
				t.Fatalf("with segments of %d: operation %d is %.20q, want %.20q", size, lsn, st.ops[lsn].data, body)
			}
		}
		for n := range 60 {
			body := fmt.Sprintf("%d %d %0900d", i, n, n)
			lsn, _ := add(t, l, "", body, Synced)
			want[lsn] = body
			if s, ok := l.OldestSealed(); ok && n < 55 {
				for lsn := s.FirstLSN; lsn <= s.LastLSN; lsn++ {
					delete(want, lsn)
				}
				if after = s.LastLSN; l.Release(s.Number) != nil {
					t.Fatal("a sealed segment cannot be released")
				}
			}
		}
		mustClose(t, l)
	}
}
