package wal

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/bubble"
)

// A failure gives back the slots of everything that it fails, or the log would take less with
// each, and in the end nothing.
func TestAFailedLogTakesAsMuchAsBefore(t *testing.T) {
	const slots = 4
	writing := newHold(func(c call) bool { return c.kind == "write" && ofSegment(c) })
	fs := newFaultFS(vfs.NewMem(), nil)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 64 << 10, Slots: slots, RetryEvery: time.Millisecond}, 0)
	defer mustClose(t, l)
	fs.set(func(c call) error {
		if err := writing.hook(c); err != nil || !writing.want(c) {
			return err
		}
		fs.set(nil)
		return syscall.EIO
	})
	gen := l.Gen()
	wait := make(chan error, slots)
	for i := range slots { // the first is written, the others come meanwhile
		if !l.TryReserve() {
			t.Fatalf("slot %d is taken", i)
		}
		lsn, _, err := l.Append(gen, nil, []byte("x"), Checksum([]byte("x")), Written)
		if err != nil {
			t.Fatal(err)
		}
		go func() { wait <- l.Wait(lsn, gen, Written) }()
		if i == 0 {
			within(t, "the first is written", func() error { <-writing.reached; return nil })
		}
	}
	close(writing.let)
	for range slots {
		if err := <-wait; !errors.Is(err, syscall.EIO) {
			t.Errorf("a writer is told %v", err)
		}
	}
	if err := resumed(l); err != nil {
		t.Fatal(err)
	}
	for i := range slots {
		if err := l.Reserve(t.Context(), time.Second); err != nil {
			t.Fatalf("after the failure %d of %d slots can be had: %v", i, slots, err)
		}
	}
	if l.TryReserve() {
		t.Error("there are more slots than before")
	}
}

// While the store does not take over what is full, no more than MaxSealed segments come to be.
func TestFullSegmentsAreBounded(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var told atomic.Int32
		l, _, _ := openLog(t, Options{FS: vfs.NewMem(), SegmentBytes: 8 << 10, MaxSealed: 2, Sealed: func() { told.Add(1) }}, 0)
		defer mustClose(t, l)
		body := string(make([]byte, 1000))
		write := func() error {
			_, _, err := tryAdd(l, "", body, Synced)
			return err
		}
		var err error
		stored := 0
		for err == nil && stored < 100 {
			if err = write(); err == nil {
				stored++
			}
		}
		if !errors.Is(err, ErrFull) || stored < 14 || stored > 15 {
			t.Fatalf("%d operations, of which 7 fill a segment, were taken, then %v", stored, err)
		}
		full, ok := l.OldestSealed()
		if n := told.Load(); !ok || n < 2 {
			t.Fatalf("a segment to take over: %v; told of %d", ok, n)
		}
		waiting := make(chan error)
		go func() { waiting <- l.Reserve(context.Background(), time.Minute) }()
		synctest.Wait()
		if err := l.Release(full.Number); err != nil {
			t.Fatal(err)
		}
		if err := <-waiting; err != nil {
			t.Errorf("when a segment was taken over: %v", err)
		}
		l.Unreserve()
		if err := write(); err != nil {
			t.Error(err)
		}
	})
}

// A failure fills segments, too: whoever takes them over is told.
func TestAFailureTellsThatSegmentsAreSealed(t *testing.T) {
	fs := newFaultFS(vfs.NewMem(), nil)
	sealed := make(chan struct{}, 100)
	l, _, _ := openLog(t, Options{FS: fs, SegmentBytes: 64 << 10, Sealed: func() { sealed <- struct{}{} }}, 0)
	defer mustClose(t, l)
	add(t, l, "", "kept", Synced)
	fs.set(func(c call) error {
		if c.kind == "write" && ofSegment(c) {
			fs.set(nil)
			return syscall.EIO
		}
		return nil
	})
	if _, _, err := tryAdd(l, "", "fails", Written); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the writer is told %v", err)
	}
	within(t, "it is told", func() error { <-sealed; return nil })
	if _, ok := l.OldestSealed(); !ok {
		t.Error("nothing is sealed")
	}
}

// A slot that comes free is never lost on a caller that gives up at that moment.
func TestASlotThatNobodyTakesGoesToTheNext(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l, _, _ := openLog(t, Options{FS: vfs.NewMem(), SegmentBytes: 64 << 10, Slots: 1}, 0)
		defer mustClose(t, l)
		for range 50 { // whether it takes the slot or gives up is a matter of chance
			if !l.TryReserve() {
				t.Fatal("the slot is taken")
			}
			ctx, cancel := context.WithCancel(t.Context())
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- l.Reserve(ctx, time.Hour) }()
			synctest.Wait()
			go func() { second <- l.Reserve(t.Context(), time.Minute) }()
			synctest.Wait()
			cancel()
			l.Unreserve()
			if <-first == nil {
				l.Unreserve()
			}
			if err := <-second; err != nil {
				t.Fatalf("the slot is free, and the next caller is told %v", err)
			}
			l.Unreserve()
		}
	})
}

// Who gave up does not stand in front of those who wait.
func TestASlotGoesPastThoseWhoGaveUp(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l, _, _ := openLog(t, Options{FS: vfs.NewMem(), SegmentBytes: 64 << 10, Slots: 1}, 0)
		defer mustClose(t, l)
		if !l.TryReserve() {
			t.Fatal("the slot is taken")
		}
		for range 3 {
			if err := l.Reserve(t.Context(), time.Second); !errors.Is(err, ErrFull) {
				t.Fatalf("while the slot is taken: %v, want %v", err, ErrFull)
			}
		}
		waiting := make(chan error, 1)
		go func() { waiting <- l.Reserve(t.Context(), time.Minute) }()
		synctest.Wait()
		l.Unreserve()
		if err := <-waiting; err != nil {
			t.Errorf("the slot is free, and who waits is told %v", err)
		}
	})
}

// Who waits for a sync goes on when that has failed and another file has taken the place of its own.
func TestWhoWaitsForASyncGoesOnAfterItsFailure(t *testing.T) {
	syncing := newHold(func(c call) bool { return c.kind == "sync" && ofSegment(c) && !c.prepares })
	fs := newFaultFS(vfs.NewMem(), nil)
	opt := Options{FS: fs, SegmentBytes: 1 << 20, FlushBytes: 64 << 10, FlushEvery: time.Hour, RetryEvery: time.Millisecond}
	l, _, _ := openLog(t, opt, 0)
	defer mustClose(t, l)
	fs.set(func(c call) error {
		if err := syncing.hook(c); err != nil || !syncing.want(c) {
			return err
		}
		fs.set(nil)
		return syscall.EIO
	})
	gen, body := l.Gen(), make([]byte, 1000)
	for l.TryReserve() {
		lsn, _, err := l.Append(gen, nil, body, Checksum(body), Written)
		if err == nil {
			err = l.Wait(lsn, gen, Written)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	within(t, "a sync begins", func() error { <-syncing.reached; return nil })
	waiting := make(chan error, 1)
	go func() { waiting <- l.Reserve(t.Context(), 10*time.Second) }()
	close(syncing.let)
	if err := <-waiting; err != nil {
		t.Errorf("behind the failure: %v", err)
	}
}
