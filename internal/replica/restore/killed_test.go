package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/replica"
)

// silentLog is a log that does not answer who wants to lead.
type silentLog struct{ replica.Log }

func (silentLog) Lead(context.Context, string) (replica.Lead, error) {
	return replica.Lead{}, errors.New("no answer")
}

// A start that ended before it had a term has noted which one it wanted. If another server has
// taken that, the directory is an old one.
func TestATermThatAnotherServerTookIsNotTheOwn(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	want := digest(t, l.Engine)
	l.write("a", 5) // not shipped
	l.stop()
	failing := *d
	failing.Copy.Log = silentLog{d.Copy.Log}
	if _, err := failing.Lead(t.Context()); err == nil {
		t.Fatal("it leads without an answer")
	}
	l.opened(l.directory(vfs.NewMem(), "/new"))
	if _, got := l.opened(d); got != want {
		t.Errorf("it goes on with %s, want %s", got, want)
	}
}

// A new machine is killed at each change that its first start makes: the next one has what the
// copy has, and takes nothing for the directory of another server.
func TestAKilledFirstStartIsFinished(t *testing.T) {
	l := shipped(t)
	want := digest(t, l.Engine)
	for fail := 0; ; fail++ {
		d := l.directory(vfs.NewMem(), "/new")
		var changes atomic.Int64 // files are fetched side by side
		faulty := *d
		faulty.FS = errorfs.Wrap(d.FS, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind.ReadOrWrite() == errorfs.OpIsWrite && o.Kind != errorfs.OpFileClose && changes.Add(1) > int64(fail) {
				return errors.New("killed")
			}
			return nil
		}))
		_, err := faulty.Lead(t.Context())
		if _, got := l.opened(d); got != want {
			t.Fatalf("killed at change %d (%v): the directory holds %s, want %s", fail, err, got, want)
		}
		if err == nil {
			return
		}
	}
}

// What a base says of its files decides where they are written.
func TestABaseWithFilesOutsideTheDirectoryIsDamaged(t *testing.T) {
	l := shipped(t)
	var name, text string
	for n, b := range l.to.files {
		if strings.HasPrefix(n, replica.BasePrefix) {
			name, text = n, string(b)
		}
	}
	for _, bad := range []string{"../FORMAT", "/FORMAT", "wal/../../FORMAT", "kv/", "REPLICA", "other/FORMAT"} {
		changed := strings.Replace(text, `"FORMAT"`, `"`+bad+`"`, 1)
		if changed == text {
			t.Fatalf("no FORMAT in %s", text)
		}
		l.to.files[name] = []byte(changed)
		if _, err := l.directory(vfs.NewMem(), "/new").Lead(t.Context()); !errors.Is(err, replica.ErrDamaged) {
			t.Errorf("a base with the file %q: %v", bad, err)
		}
	}
}

// refusing are files of which one cannot be read.
type refusing struct {
	replica.Files
	name string
}

func (r refusing) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if name == r.name {
		return nil, fmt.Errorf("%w: %s", replica.ErrRefused, name)
	}
	return r.Files.Get(ctx, name)
}

// A base that cannot be read may be whole, whatever the others are: the copy counts as damaged
// only if all of them are.
func TestABaseThatCannotBeReadIsNotDamaged(t *testing.T) {
	l := shipped(t)
	l.base()
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	l.stop()
	names, err := d.Copy.baseNames(t.Context())
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	l.to.files[names[1]] = []byte("{")
	d.Copy.Files = refusing{d.Copy.Files, names[0]}
	if led, err := d.Lead(t.Context()); !errors.Is(err, replica.ErrRefused) || errors.Is(err, replica.ErrDamaged) {
		t.Errorf("it leads, %+v, %v", led, err)
	}
}
