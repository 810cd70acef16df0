package restore

import (
	"bytes"
	"context"
	"io"
	"maps"
	"slices"
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

// flawed is files whose answer is another than was put there when they are asked for the first time.
type flawed struct {
	*tearing
	flaw func([]byte) []byte
}

func (f flawed) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := f.Files.Get(ctx, name)
	if err != nil || !f.first(name) {
		return in, err
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	return io.NopCloser(bytes.NewReader(f.flaw(bytes.Clone(b)))), err
}

func cutOff(b []byte) []byte { return b[:len(b)/2] }

func flipped(b []byte) []byte {
	if len(b) > 0 {
		b[len(b)/2] ^= 0x80
	}
	return b
}

// What one answer says is not yet damage: a proxy that has kept the half of an object, or a bit that was lost
// on its way, would else make a restore give up a whole copy.
func TestOneDamagedAnswerIsNoDamagedCopy(t *testing.T) {
	for _, flaw := range []func([]byte) []byte{cutOff, flipped} {
		l := shipped(t)
		want := digest(t, l.Engine)
		l.stop()
		c := l.to.copy()
		c.Files = flawed{&tearing{Files: c.Files, asked: map[string]bool{}}, flaw}
		if got, err := l.rebuilt(c, Point{}); err != nil || got != want {
			t.Errorf("%v, and the directory has %s, want %s", err, got, want)
		}
	}
}

// rebuilt plans and builds a directory from c, and says what is in it.
func (l *leader) rebuilt(c Copy, p Point) (string, error) {
	plan, err := c.Plan(l.t.Context(), p)
	if err != nil {
		return "", err
	}
	fs := vfs.NewMem()
	if err := c.Build(l.t.Context(), plan, fs, "/new"); err != nil {
		return "", err
	}
	e := open(l.t, fs, "/new")
	defer e.Close()
	return digest(l.t, e), nil
}

// A base whose file is damaged or gone is not needed: the log leads from the one in front of it to the same
// state, and to any other behind that.
func TestARestoreDoesWithoutADamagedBase(t *testing.T) {
	l := shipped(t)
	first := l.to.copy().objects(t)
	l.write("a", 3)
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	at := Point{LSN: l.last}
	wantAt := digest(t, l.Engine)
	l.write("a", 3)
	l.ship()
	want := digest(t, l.Engine)
	l.stop()
	both := l.to.copy().objects(t)
	for _, name := range slices.Sorted(maps.Keys(l.to.files)) {
		whole := l.to.files[name]
		if strings.HasPrefix(name, replica.BasePrefix) || len(whole) == 0 {
			continue
		}
		for _, flaw := range []func(){
			func() { l.to.files[name] = flipped(bytes.Clone(whole)) },
			func() { l.to.files[name] = cutOff(whole) },
			func() { delete(l.to.files, name) },
		} {
			flaw()
			var told []string
			c := l.to.copy()
			c.Trouble = func(err error) { told = append(told, err.Error()) }
			for p, want := range map[Point]string{{}: want, at: wantAt} {
				got, err := l.rebuilt(c, p)
				switch newest := both[len(both)-1]; {
				case slices.Contains(first[0], name) && slices.Contains(newest, name):
					if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "no other base does without it") {
						t.Errorf("both bases lack %s: %v", name, err)
					}
				case err != nil || got != want:
					t.Errorf("without %s: %v, and the directory has %s, want %s", name, err, got, want)
				case slices.Contains(newest, name) && !strings.Contains(strings.Join(told, "\n"), name):
					t.Errorf("nobody is told that %s is damaged: %q", name, told)
				}
			}
		}
		l.to.files[name] = whole
	}
}

// objects are those of each base, oldest first.
func (c Copy) objects(t *testing.T) (all [][]string) {
	t.Helper()
	names, err := c.baseNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := c.readBase(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var objects []string
		for _, f := range b.Files {
			objects = append(objects, f.Object)
		}
		all = append(all, objects)
	}
	return all
}
