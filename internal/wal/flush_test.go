package wal

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/crashfs"
)

// What was written is on the disk once the flush interval has passed, though
// nobody asks for a sync: a single operation, a steady trickle, and what comes
// after a long rest.
func TestWhatIsWrittenIsSyncedWithinTheFlushInterval(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		mem := crashfs.New()
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

// However long a sync takes, no more than FlushBytes and what was under way
// stays unsynced: writers wait, then are told that the log is full. They go on
// with the sync.
func TestWhatIsUnsyncedIsBounded(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		release := make(chan struct{})
		fs := newFaultFS(vfs.NewMem(), nil)
		opt := Options{FS: fs, FlushBytes: 64 << 10, SegmentBytes: 1 << 20, FlushEvery: time.Second}
		l, _, _ := openLog(t, opt, 0)
		fs.set(func(c call) error {
			if c.kind == "sync" && ofSegment(c) {
				<-release
			}
			return nil
		})
		body := strings.Repeat("x", 1000)
		stored := 0
		write := func() error {
			_, _, err := tryAdd(l, "", body, Written)
			return err
		}
		var err error
		for err == nil && stored < 200 {
			if err = write(); err == nil {
				stored++
			}
		}
		if !errors.Is(err, ErrFull) {
			t.Errorf("after %d operations of 1 KB that no sync covers: %v, want %v", stored, err, ErrFull)
		}
		if stored < 60 || stored > 70 {
			t.Errorf("%d operations of 1 KB were taken without a sync, want the 64 of FlushBytes, give or take", stored)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Reserve(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Reserve during the hung sync: %v, want to wait as long as the context does", err)
			if err == nil {
				l.Unreserve()
			}
		}
		close(release)
		for range 200 {
			if err := write(); err != nil {
				t.Fatalf("after the sync: %v", err)
			}
		}
		mustClose(t, l)
	})
}
