package restore

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

// A new machine does without a base of which a file is damaged or gone, as a restore does: the log leads from the
// one in front of it to the same state. What all bases have it names.
func TestANewMachineDoesWithoutADamagedBase(t *testing.T) {
	l := shipped(t)
	first := l.to.copy().objects(t)
	l.write("a", 3)
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	want := digest(t, l.Engine)
	l.stop()
	newest := l.to.copy().objects(t)
	for _, name := range slices.Sorted(maps.Keys(l.to.files)) {
		whole := l.to.files[name]
		if strings.HasPrefix(name, replica.BasePrefix) || len(whole) == 0 {
			continue
		}
		for _, flaw := range []func(){
			func() { l.to.files[name] = flipped(bytes.Clone(whole)) },
			func() { delete(l.to.files, name) },
		} {
			flaw()
			d := l.directory(vfs.NewMem(), "/new")
			if shared := slices.Contains(first[0], name) && slices.Contains(newest[1], name); shared {
				if _, err := d.Lead(t.Context()); !replica.IsBroken(err) || !strings.Contains(err.Error(), name) {
					t.Errorf("without %s, which all bases have, it is told %v", name, err)
				}
			} else if _, got := l.opened(d); got != want {
				t.Errorf("without %s it has %s, want %s", name, got, want)
			}
			l.to.files[name] = whole
		}
	}
}

// A base over a gap that its leader did not go on behind is none, to a new machine, too. Without another the copy
// is an empty one.
func TestANewMachineDoesWithoutABaseThatDoesNotCount(t *testing.T) {
	for what, older := range map[string]bool{"with an older one": true, "alone": false} {
		l, want := lead(t), ""
		l.put("a")
		l.ship()
		if older {
			l.base()
			l.write("a", 3)
			l.ship()
			want = digest(t, l.Engine)
		}
		l.write("a", 3) // not shipped
		l.base()
		l.gap()
		l.stop()
		if _, got := l.opened(l.directory(vfs.NewMem(), "/new")); got != want {
			t.Errorf("%s: it has %s, want %s", what, got, want)
		}
	}
}

// A standby of a copy whose only base is damaged fetches it now and then, and takes the next one.
func TestAStandbyOfADamagedBaseDoesNotFetchItAgainAndAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := shipped(t)
		for name, b := range l.to.files {
			if !strings.HasPrefix(name, replica.BasePrefix) && bytes.Contains(b, []byte(`"boot"`)) { // its FORMAT
				l.to.files[name] = flipped(bytes.Clone(b))
			}
		}
		led := standsPatiently(t, l.directory(vfs.NewMem(), "/standby"))
		l.to.mu.Lock()
		for name := range l.to.files {
			if !strings.HasPrefix(name, replica.BasePrefix) {
				delete(l.to.files, name) // the next base puts its own there
			}
		}
		l.to.mu.Unlock()
		l.write("a", 2)
		l.ship()
		takesTheNextBase(t, l, led)
		l.Close()
	})
}

// What an old leader had stays when another directory was set aside under its name before.
func TestWhatWasSetAsideBeforeStays(t *testing.T) {
	l, d, want, old := overtaken(t)
	const before = "/data.stale-1/FORMAT"
	if err := d.FS.MkdirAll("/data.stale-1", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(d.FS, before, []byte("before")); err != nil {
		t.Fatal(err)
	}
	if _, got := l.opened(d); got != want {
		t.Errorf("it goes on with %s, want %s", got, want)
	}
	if b, err := readFile(d.FS, before); err != nil || string(b) != "before" {
		t.Errorf("what was set aside before is %q, %v", b, err)
	}
	if got := digest(t, open(t, d.FS, "/data.stale-1-2")); got != old {
		t.Errorf("beside it is %s, want %s", got, old)
	}
}

// A restore of a long log comes to more segments than it keeps open.
func TestARestoreOverManySegments(t *testing.T) {
	l := shipped(t)
	for range 30 {
		l.write("a", 300)
		l.ship()
	}
	if l.seg < 8 {
		t.Fatalf("the log has only %d segments", l.seg)
	}
	if got, want := digest(t, l.restored(Point{})), digest(t, l.Engine); got != want {
		t.Errorf("it has %.300s, want %.300s", got, want)
	}
}

// A group in the entry of another term is damage: its leader did not append it.
func TestAGroupInAnEntryOfAnotherTermIsDamage(t *testing.T) {
	l := shipped(t)
	want := l.last
	l.write("a", 1)
	l.term = 2
	l.ship()
	l.to.entries[len(l.to.entries)-1].Term = 1
	var bad *DamagedError
	if _, err := l.to.copy().Plan(t.Context(), Point{}); !errors.As(err, &bad) || bad.LSN != want {
		t.Errorf("%v, want that it is whole up to LSN %d", err, want)
	}
	l.stop()
}
