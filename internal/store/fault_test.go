package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// faults fails calls that change the file system.
type faults struct {
	armed   atomic.Bool
	skip    atomic.Int64     // calls that still succeed
	forever bool             // all calls behind the first failed one fail too
	only    []errorfs.OpKind // the calls that count and fail; none: all that change something
	hit     atomic.Bool
}

// Calls that may fail for themselves: where nobody may make a file, and on a disk that takes
// no writes, or takes them and does not keep them.
var (
	creates = []errorfs.OpKind{errorfs.OpCreate, errorfs.OpLink, errorfs.OpRename, errorfs.OpReuseForWrite, errorfs.OpRemove}
	syncs   = []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}
	writes  = []errorfs.OpKind{errorfs.OpFileWrite, errorfs.OpFileWriteAt}
)

func (f *faults) String() string { return "faults" }

func (f *faults) MaybeError(o errorfs.Op) error {
	if o.Kind.ReadOrWrite() != errorfs.OpIsWrite || !f.armed.Load() || o.Kind == errorfs.OpFileClose {
		return nil
	}
	if len(f.only) > 0 && !slices.Contains(f.only, o.Kind) {
		return nil
	}
	left := f.skip.Add(-1)
	if left == -1 || (f.forever && left < 0) {
		f.hit.Store(true)
		if f.forever {
			return syscall.ENOSPC
		}
		return syscall.EIO
	}
	return nil
}

// ends fails the test if fn does not return.
func ends(t *testing.T, what string, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s does not end", what)
		return nil
	}
}

func TestFailedWriteAtAnyCallOfASealIsHealedByTheNextTry(t *testing.T) {
	for name, f := range map[string]struct {
		forever bool
		only    []errorfs.OpKind
	}{
		"once": {}, "forever": {forever: true},
		"creates": {forever: true, only: creates}, "syncs": {forever: true, only: syncs}, "writes": {forever: true, only: writes},
	} {
		for _, reopened := range []bool{false, true} { // then it begins a new manifest
			t.Run(fmt.Sprintf("%s/reopened=%t", name, reopened), func(t *testing.T) {
				t.Parallel()
				k := int64(0)
				for failedSeal(t, k, reopened, f.forever, f.only) {
					k++
				}
				if k < 3 || f.only == nil && k < 10 {
					t.Fatalf("a seal made only %d calls", k)
				}
			})
		}
	}
}

// failedSeal fails the call number k of a seal; false if there were fewer.
func failedSeal(t *testing.T, k int64, reopened, forever bool, only []errorfs.OpKind) bool {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	m := newModel(rng.IntN)
	f := &faults{forever: forever, only: only}
	opt := Options{FS: errorfs.Wrap(vfs.NewMem(), f), Dir: "/data"}
	s := openStore(t, opt)
	defer func() { s.Close() }()
	for segment := range uint32(2) {
		for range 30 {
			m.step()
		}
		if err := m.seal(s, segment, nil); err != nil {
			t.Fatal(err)
		}
	}
	if reopened {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openStore(t, opt)
	}
	old := m.clone()
	for range 30 {
		m.step()
	}
	last, scan := m.cut()
	seal := func() error {
		_, _, err := s.Seal(context.Background(), 2, last, scan, nil, nil)
		return err
	}
	f.skip.Store(k)
	f.armed.Store(true)
	err := seal()
	for range 2 { // a disk may fail for longer
		if err != nil && forever {
			err = ends(t, fmt.Sprintf("call %d: the next try", k), seal)
		}
	}
	f.armed.Store(false)
	if !f.hit.Load() {
		if err != nil {
			t.Fatal(err)
		}
		return false
	}
	if err != nil {
		if err := old.check(s); err != nil {
			t.Fatalf("call %d: reads after a failed seal: %v", k, err)
		}
		if err := seal(); err != nil {
			t.Fatalf("call %d: the next try failed: %v", k, err)
		}
	}
	if err := m.check(s); err != nil {
		t.Fatalf("call %d: %v", k, err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("call %d: %v", k, err)
	}
	s = openStore(t, opt)
	if err := m.check(s); err != nil || s.Applied() != last {
		t.Fatalf("call %d: reopened at %d: %v", k, s.Applied(), err)
	}
	return true
}

// TestADiskThatFailsForLongTakesNoMoreAndMoreMemory: each try to seal could leave a Pebble behind,
// its goroutines and its files.
func TestADiskThatFailsForLongTakesNoMoreAndMoreMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	m := newModel(rng.IntN)
	f := &faults{forever: true, only: writes}
	s := openStore(t, Options{FS: errorfs.Wrap(vfs.NewMem(), f), Dir: "/data"})
	for range 30 {
		m.step()
	}
	last, scan := m.cut()
	seal := func() error {
		_, _, err := s.Seal(context.Background(), 0, last, scan, nil, nil)
		return err
	}
	f.armed.Store(true)
	for k := int64(0); !s.kv.Load().fence.dead.Load(); k++ { // until it is the manifest that fails
		f.skip.Store(k)
		if err := seal(); err == nil {
			t.Fatal("no write of the manifest failed")
		}
	}
	before := runtime.NumGoroutine()
	for range 20 {
		if err := seal(); err == nil {
			t.Fatal("a seal on a disk that takes no writes succeeded")
		}
	}
	if now := runtime.NumGoroutine(); now > before+10 {
		t.Errorf("%d goroutines, %d before 20 tries", now, before)
	}
	f.armed.Store(false)
	if err := seal(); err != nil {
		t.Fatal(err)
	}
	if err := m.check(s); err != nil {
		t.Fatal(err)
	}
}

// TestFailedWriteAtAnyCallOfAStartIsAnError and the next start has everything.
func TestFailedWriteAtAnyCallOfAStartIsAnError(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	m := newModel(rng.IntN)
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem, Dir: "/data"})
	for range 30 {
		m.step()
	}
	if err := m.seal(s, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, only := range [][]errorfs.OpKind{nil, creates, syncs, writes} {
		k := int64(0)
		for failedStart(t, m, mem, &faults{forever: true, only: only}, k) {
			k++
		}
		if k < 2 {
			t.Fatalf("a start made only %d calls", k)
		}
	}
}

// failedStart fails the call number k of a start, and all behind it; false if there were fewer.
func failedStart(t *testing.T, m *model, mem vfs.FS, f *faults, k int64) bool {
	t.Helper()
	f.skip.Store(k)
	f.armed.Store(true)
	err := ends(t, fmt.Sprintf("call %d: the start", k), func() error {
		s, err := Open(Options{FS: errorfs.Wrap(mem, f), Dir: "/data", ReadOnly: true})
		if err == nil {
			err = s.Writable()
		}
		if err == nil {
			err = s.Close()
		}
		return err
	})
	if !f.hit.Load() && err != nil {
		t.Fatal(err)
	}
	if err != nil && !strings.Contains(err.Error(), syscall.ENOSPC.Error()) {
		t.Fatalf("call %d: the error does not say why: %v", k, err)
	}
	s := openStore(t, Options{FS: mem, Dir: "/data"})
	if err := m.check(s); err != nil {
		t.Fatalf("call %d: %v", k, err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("call %d: %v", k, err)
	}
	return f.hit.Load()
}

// TestFlippedByteIsAnErrorOrNothing flips one byte of each table, at every
// offset, and reads everything.
func TestFlippedByteIsAnErrorOrNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 15))
	m := newModel(rng.IntN)
	mem := vfs.NewMem()
	s := openStore(t, Options{FS: mem, Dir: "/data"})
	for len(m.topics) == 0 || len(m.topics[1].live) < 10 {
		m.step()
	}
	if err := m.seal(s, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := mem.List("/data/kv")
	if err != nil {
		t.Fatal(err)
	}
	tables, errs := 0, 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		tables++
		path := "/data/kv/" + name
		fi, err := mem.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", name, fi.Size())
		for off := int64(0); off < fi.Size(); off += flipEvery {
			flip(t, mem, path, off)
			if err := readDamaged(m, mem); err != nil {
				errs++
				if !IsDamage(err) {
					t.Fatalf("%s offset %d: not told as damage: %v", name, off, err)
				}
				if !strings.Contains(err.Error(), strings.TrimSuffix(name, ".sst")) {
					t.Fatalf("%s offset %d: the error does not name the file: %v", name, off, err)
				}
				if strings.Contains(err.Error(), "want") || strings.Contains(err.Error(), "altered") || strings.Contains(err.Error(), "differ") {
					t.Fatalf("%s offset %d: altered data: %v", name, off, err)
				}
			}
			flip(t, mem, path, off)
		}
	}
	if tables < 2 || errs == 0 {
		t.Fatalf("%d tables, %d errors", tables, errs)
	}
	t.Logf("%d flips were errors", errs)
}

func readDamaged(m *model, fs vfs.FS) error {
	s, err := Open(Options{FS: fs, Dir: "/data"})
	if err != nil {
		return err
	}
	defer s.Close()
	return m.check(s)
}

func flip(t *testing.T, fs vfs.FS, path string, off int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x41
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
