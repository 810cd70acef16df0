package restore

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// TestALeaderGoesOnThoughItsCopyIsDamaged damages the list of the only base. Whoever has led goes
// on with its own directory, nobody else with nothing.
func TestALeaderGoesOnThoughItsCopyIsDamaged(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	want := digest(t, l.Engine)
	l.stop()
	for name, b := range l.to.files {
		if strings.HasPrefix(name, replica.BasePrefix) {
			l.to.files[name] = b[:len(b)/2]
		}
	}
	if led, got := l.opened(d); got != want || led.LSN != 0 {
		t.Errorf("led %+v with %s, want %s", led, got, want)
	}
	if led, err := l.directory(vfs.NewMem(), "/new").Lead(t.Context()); err == nil {
		t.Errorf("a new machine begins with nothing: %+v", led)
	}
}
