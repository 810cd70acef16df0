package restore

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/tests/crashfs"
)

// cut returns what is on a disk after a power cut that keeps that many percent of what was not
// synced.
func cut(fs vfs.FS, keep int) vfs.FS {
	return fs.(*crashfs.FS).CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: keep, RNG: rand.New(rand.NewPCG(uint64(keep), 1))})
}

// A directory that was restored, or with which a server leads, is on the disk then.
func TestWhatIsRestoredSurvivesAPowerCut(t *testing.T) {
	l := shipped(t)
	for range 8 { // over several segments
		l.write("a", 60)
		l.ship()
	}
	want := digest(t, l.Engine)
	fs := crashfs.New()
	if err := fs.MkdirAll("/new", 0o700); err != nil {
		t.Fatal(err)
	}
	sync, err := fs.OpenDir("/")
	if err == nil {
		err = sync.Sync()
	}
	if err != nil {
		t.Fatal(err)
	}
	plan, err := l.to.copy().Plan(t.Context(), Point{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.to.copy().Build(t.Context(), plan, fs, "/new"); err != nil {
		t.Fatal(err)
	}
	if got := digest(t, open(t, cut(fs, 0), "/new")); got != want {
		t.Errorf("restored: %.500s, want %.500s", got, want)
	}
}

// The power fails at each change that a takeover makes to the disk of an old leader, in turn:
// the next start has what the copy has, and what the old leader had is set aside.
func TestATakeoverSurvivesAPowerCutAtAnyMoment(t *testing.T) {
	l, d, want, old := overtaken(t)
	var mu sync.Mutex
	var disks []vfs.FS
	fs := l.fs.FS
	crash := func() {
		mu.Lock() // files are fetched side by side
		defer mu.Unlock()
		for _, keep := range []int{0, 100} {
			disks = append(disks, cut(fs, keep))
		}
	}
	watched := *d
	watched.FS = errorfs.Wrap(fs, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind.ReadOrWrite() == errorfs.OpIsWrite && !strings.Contains(o.Path, mirrorNames) {
			crash()
		}
		return nil
	}))
	if _, err := watched.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	crash()
	if len(disks) < 30 {
		t.Errorf("only %d power cuts", len(disks))
	}
	for i, disk := range disks {
		again := l.directory(disk, "/data")
		if _, got := l.opened(again); got != want {
			t.Fatalf("power cut %d of %d: the directory holds %s, want %s", i, len(disks), got, want)
		}
		names, err := disk.List("/")
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, name := range names {
			if strings.HasPrefix(name, "data.stale-1") {
				found++
				if got := digest(t, open(t, disk, "/"+name)); got != old {
					t.Fatalf("power cut %d of %d: %s holds %s, want %s", i, len(disks), name, got, old)
				}
			}
		}
		if found != 1 {
			t.Fatalf("power cut %d of %d: %d directories set aside of %v", i, len(disks), found, names)
		}
	}
}
