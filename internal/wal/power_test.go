package wal

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// heldAfterPowerCut returns the operations that a log has if the power fails now and the disk
// keeps that many percent of what was not synced.
func heldAfterPowerCut(t *testing.T, mem *crashfs.FS, opt Options, keep int) []string {
	t.Helper()
	opt.FS, opt.SameBoot = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(1, 1))}), false
	l, st, rec, err := tryOpen(opt, 0)
	if err != nil {
		t.Fatalf("open after a power cut, %d %% kept: %v", keep, err)
	}
	defer mustClose(t, l)
	var held []string
	for lsn := rec.First; lsn <= rec.Last; lsn++ {
		if op, ok := st.ops[lsn]; ok {
			held = append(held, op.data)
		}
	}
	return held
}

// When a failure is told, what was acknowledged before counts as synced, and what failed
// must not come back, though the power fails at that moment.
func TestWhatAFailureLeavesSurvivesAPowerCut(t *testing.T) {
	mem := crashfs.New()
	fs := newFaultFS(mem, nil)
	opt := Options{FS: fs, SegmentBytes: 64 << 10, FlushEvery: time.Hour}
	l, _, _ := openLog(t, opt, 0)
	lsn, _ := add(t, l, "", "kept", Written)
	fs.failSync()
	if _, _, err := tryAdd(l, "", "fails", Synced); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the writer is told %v", err)
	}
	if synced := l.Synced(); synced != lsn {
		t.Errorf("the log is synced up to %d, want %d", synced, lsn)
	}
	for _, keep := range []int{0, 100} {
		if held := heldAfterPowerCut(t, mem, opt, keep); !slices.Equal(held, []string{"kept"}) {
			t.Errorf("%d %% kept: the log holds %q", keep, held)
		}
	}
	mustClose(t, l)
}

// A process was killed, and the next one has told what it found: that is on the disk, and
// not in the system's memory alone.
func TestWhatAStartHasFoundSurvivesAPowerCut(t *testing.T) {
	mem := crashfs.New()
	opt := Options{FS: mem, SegmentBytes: 64 << 10, FlushEvery: time.Hour}
	killed, _, _ := openLog(t, opt, 0)
	defer killed.Close()
	add(t, killed, "", "written", Written)
	opt.SameBoot = true
	l, st, _ := openLog(t, opt, 0)
	defer mustClose(t, l)
	if len(st.ops) != 1 || l.Synced() != 1 {
		t.Fatalf("the log opens with %v, synced up to %d", st.ops, l.Synced())
	}
	if held := heldAfterPowerCut(t, mem, opt, 0); !slices.Equal(held, []string{"written"}) {
		t.Errorf("the log holds %q", held)
	}
}

// What was cut off stays off: a restored state must not go back to a later one.
func TestWhereALogWasEndedSurvivesAPowerCut(t *testing.T) {
	mem := crashfs.New()
	opt := Options{FS: mem, Dir: "wal", SegmentBytes: 4 << 10, MaxSealed: 100}
	l, _, _ := openLog(t, opt, 0)
	var all []string
	for i := range 20 {
		body := string(make([]byte, 900)) + string(rune('a'+i))
		add(t, l, "", body, Synced)
		all = append(all, body)
	}
	mustClose(t, l)
	if err := mem.Remove("wal/" + markName); err != nil { // a copy has none
		t.Fatal(err)
	}
	if err := EndAt(opt, 6); err != nil {
		t.Fatal(err)
	}
	if held := heldAfterPowerCut(t, mem, opt, 0); !slices.Equal(held, all[:6]) {
		t.Errorf("the log holds %d operations, want 6", len(held))
	}
}

// Damage that was accepted once is not asked about again.
func TestAcceptedDamageSurvivesAPowerCut(t *testing.T) {
	mem := crashfs.New()
	opt := Options{FS: mem, Dir: "wal", SegmentBytes: 64 << 10}
	l, _, _ := openLog(t, opt, 0)
	add(t, l, "", "first", Synced)
	_, pos := add(t, l, "", "damaged", Synced)
	add(t, l, "", "last", Synced)
	mustClose(t, l)
	f, err := mem.OpenReadWrite("wal/"+segName(pos.Segment), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.WriteAt([]byte("D"), int64(pos.Offset))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	damage, err := Inspect(opt, 0, func() (func(Op) error, func(from, to uint64, bytes int64)) {
		return func(Op) error { return nil }, nil
	})
	if err != nil || len(damage) != 1 {
		t.Fatalf("found %v, %v", damage, err)
	}
	if err := MarkLost(opt, damage); err != nil {
		t.Fatal(err)
	}
	if held := heldAfterPowerCut(t, mem, opt, 0); !slices.Equal(held, []string{"first", "last"}) {
		t.Errorf("the log holds %q", held)
	}
}
