package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// faults fails calls that change the file system.
type faults struct {
	armed   atomic.Bool
	skip    atomic.Int64 // calls that still succeed
	forever bool         // all calls behind the first failed one fail too
	hit     atomic.Bool
}

func (f *faults) String() string { return "faults" }

func (f *faults) MaybeError(o errorfs.Op) error {
	if o.Kind.ReadOrWrite() != errorfs.OpIsWrite || !f.armed.Load() || o.Kind == errorfs.OpFileClose {
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

func TestFailedWriteAtAnyCallOfASealIsHealedByTheNextTry(t *testing.T) {
	for _, forever := range []bool{false, true} {
		t.Run(fmt.Sprintf("forever=%t", forever), func(t *testing.T) {
			t.Parallel()
			for k := int64(0); ; k++ {
				if !failedSeal(t, k, forever) {
					if k < 10 {
						t.Fatalf("a seal made only %d calls", k)
					}
					return
				}
			}
		})
	}
}

// failedSeal fails the call number k of a seal; false if there were fewer.
func failedSeal(t *testing.T, k int64, forever bool) bool {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	m := newModel(rng.IntN)
	f := &faults{forever: forever}
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
