package restore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errDisk = errors.New("input/output error")

// failing returns d on a disk that fails once, at one operation, and says at which that was; nil: it came to fewer.
func failing(d *Directory, at int64) (_ *Directory, failed func() *errorfs.Op) {
	var n atomic.Int64 // files are fetched side by side
	var op atomic.Pointer[errorfs.Op]
	f := *d
	f.FS = errorfs.Wrap(d.FS, errorfs.InjectorFunc(func(o errorfs.Op) error {
		if o.Kind == errorfs.OpFileClose || n.Add(1) != at {
			return nil
		}
		op.Store(&o)
		return errDisk
	}))
	return &f, op.Load
}

// The disk fails once at each operation of a server that takes over, in turn. Either the start ends and the next
// one has what the copy has, or this one has it, unless the disk did not say that it is there.
func TestATakeoverOnADiskThatFailsOnceLosesNothing(t *testing.T) {
	l, old, want, _ := overtaken(t)
	for what, begin := range map[string]func() *Directory{
		"a new machine": func() *Directory { return l.directory(vfs.NewMem(), "/new") },
		"an old leader": func() *Directory { return l.directory(cut(old.FS, 100), "/data") },
	} {
		told := 0
		for at := int64(1); ; at++ {
			d := begin()
			faulty, failed := failing(d, at)
			_, err := faulty.Lead(t.Context())
			op := failed()
			if op == nil {
				if err != nil || told < 50 {
					t.Errorf("%s: %v; before that it was told %d times", what, err, told)
				}
				break
			}
			how := fmt.Sprintf("%s: operation %d, on %s, failed, and it was told %v", what, op.Kind, op.Path, err)
			if errors.Is(err, errDisk) {
				told++
			} else if op.Kind == errorfs.OpFileSync {
				t.Error(how)
			}
			if err != nil {
				if _, got := l.opened(d); got != want {
					t.Errorf("%s: the next start has %s, want %s", how, got, want)
				}
				continue
			}
			e := open(t, d.FS, d.Path)
			if got := digest(t, e); got != want {
				t.Errorf("%s: it has %s, want %s", how, got, want)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
