package wal

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// within fails the test if do does not come back: a frozen log would hold up the
// whole run instead of telling what froze.
func within(t *testing.T, what string, do func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: the log is frozen", what)
	}
}

// backUp moves everything out of the log, as the engine does for a backup.
func backUp(l *Log) error {
	if err := l.Rotate(); err != nil {
		return err
	}
	for s, ok := l.OldestSealed(); ok; s, ok = l.OldestSealed() {
		if err := l.Release(s.Number); err != nil {
			return err
		}
	}
	return nil
}

// A hold stops one call of the file system until it is let go.
type hold struct {
	want    func(call) bool
	taken   atomic.Bool
	reached chan struct{}
	let     chan struct{}
}

func newHold(want func(call) bool) *hold {
	return &hold{want: want, reached: make(chan struct{}), let: make(chan struct{})}
}

func (h *hold) hook(c call) error {
	if h.want(c) && h.taken.CompareAndSwap(false, true) {
		close(h.reached)
		<-h.let
	}
	return nil
}

// underTemp tells calls on the file that was prepared as temp: a file keeps the
// name that it was opened under. Zeros are what it is prepared with.
func underTemp(c call, kind string) bool {
	return c.kind == kind && strings.HasSuffix(c.path, tempName) && (kind != "write" || c.size < 8<<10)
}

// Two backups with one written record between them, while the disk takes its
// time for the keeper's sync: when that sync returns, the segment that it was
// for is gone and no newer one has a file yet.
func TestALogGoesOnAfterTwoBackupsDuringOneSlowSync(t *testing.T) {
	var written atomic.Bool
	slow := newHold(func(c call) bool { return written.Load() && underTemp(c, "sync") })
	fs := newFaultFS(vfs.NewMem(), slow.hook)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 8 << 10, FlushEvery: time.Hour}, 0)
	add(t, l, "", "first", Synced)
	within(t, "first backup", func() error { return backUp(l) })
	// This write gives segment 2 its file; segment 1 may go once its header is synced.
	fs.set(func(c call) error {
		if underTemp(c, "write") {
			written.Store(true)
		}
		return slow.hook(c)
	})
	add(t, l, "", "second", Written)
	within(t, "the keeper's sync", func() error { <-slow.reached; return nil })
	within(t, "second backup", func() error { return backUp(l) })
	close(slow.let)
	within(t, "writes after it", func() error {
		for range 50 {
			if _, _, err := tryAdd(l, "", strings.Repeat("x", 1000), Synced); err != nil {
				return err
			}
			if err := backUp(l); err != nil {
				return err
			}
		}
		return nil
	})
	within(t, "close", l.Close)
}

// untilLocked waits until ok, which is called with the log's lock held.
func untilLocked(t *testing.T, l *Log, what string, ok func() bool) {
	t.Helper()
	within(t, what, func() error {
		for {
			l.mu.Lock()
			done := ok()
			l.mu.Unlock()
			if done {
				return nil
			}
			time.Sleep(time.Millisecond)
		}
	})
}

// usedAgain waits until the file of a released segment was prepared for the next.
func usedAgain(t *testing.T, l *Log) {
	t.Helper()
	untilLocked(t, l, "a released file is used again", func() bool {
		return (len(l.mu.retired) == 0 || l.keptLocked()) && l.mu.spare != nil
	})
}

// opensAfterPowerCut fails the test if what the disk holds for certain cannot be opened.
func opensAfterPowerCut(t *testing.T, mem *crashfs.FS, opt Options, applied uint64) {
	t.Helper()
	opt.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	l, _, _, err := tryOpen(opt, applied)
	if err != nil {
		t.Fatalf("open after a power cut: %v", err)
	}
	mustClose(t, l)
}

// The power may fail when the file of a released segment was just used again
// and the newest one holds nothing but a record of class disk.
func TestTheLogOpensAfterAPowerCutBehindABackup(t *testing.T) {
	mem := crashfs.New()
	opt := Options{FS: mem, SegmentBytes: 8 << 10, FlushEvery: time.Hour}
	l, _, _ := openLog(t, opt, 0)
	applied, _ := add(t, l, "", "first", Synced)
	if err := backUp(l); err != nil {
		t.Fatal(err)
	}
	add(t, l, "", "second", Written)
	usedAgain(t, l)
	opensAfterPowerCut(t, mem, opt, applied)
	mustClose(t, l)
}

// The same, and the first write of the new file ends while the keeper syncs it:
// that sync did not cover the header.
func TestAHeaderWrittenDuringASyncIsNotTakenForSynced(t *testing.T) {
	mem := crashfs.New()
	var named atomic.Bool
	early := newHold(func(c call) bool { return named.Load() && underTemp(c, "sync") })
	fs := newFaultFS(mem, nil)
	opt := Options{FS: fs, SegmentBytes: 8 << 10, FlushEvery: time.Hour}
	l, _, _ := openLog(t, opt, 0)
	applied, _ := add(t, l, "", "first", Synced)
	if err := backUp(l); err != nil {
		t.Fatal(err)
	}
	fs.set(func(c call) error {
		switch {
		case c.kind == "rename" && strings.HasSuffix(c.to, segName(2)):
			named.Store(true)
		case underTemp(c, "write"):
			<-early.reached
		case early.want(c):
			// The disk has all that was written so far, and says so later.
			if err := c.sync(); err != nil {
				return err
			}
			_ = early.hook(c)
			return errDone
		}
		return nil
	})
	within(t, "the first write of the new file", func() error {
		_, _, err := tryAdd(l, "", "second", Written)
		return err
	})
	close(early.let)
	usedAgain(t, l)
	opensAfterPowerCut(t, mem, opt, applied)
	mustClose(t, l)
}
