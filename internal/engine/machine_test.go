package engine

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// What this process may not open, or has no descriptors for, is no damage, which --mark would accept.
func TestWhatAProcessCannotOpenIsNotDamaged(t *testing.T) {
	mem := vfs.NewMem()
	e, err := Open(bg, rotOptions(mem))
	if err != nil {
		t.Fatal(err)
	}
	write(t, e, "a", `"`+strings.Repeat("x", 9000)+`"`, `"`+strings.Repeat("y", 9000)+`"`)
	sealNow(t, e)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	for _, what := range []struct {
		suffix string
		why    error
	}{{".sst", syscall.EMFILE}, {".sst", syscall.EACCES}, {"wal", syscall.ENFILE}, {"kv", syscall.EMFILE}} {
		failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(o errorfs.Op) error {
			if o.Kind.ReadOrWrite() == errorfs.OpIsRead && strings.HasSuffix(o.Path, what.suffix) && o.Kind != errorfs.OpFileReadAt {
				return &fs.PathError{Op: "open", Path: o.Path, Err: what.why}
			}
			return nil
		}))
		for _, mark := range []bool{false, true} {
			var report strings.Builder
			n, err := Repair(bg, rotOptions(failing), mark, &report)
			if n != 0 || !OfMachine(err) || strings.Contains(err.Error(), "restore a backup") || report.Len() > 0 {
				t.Errorf("%s: %v, marking %v: %d places, %v\n%s", what.suffix, what.why, mark, n, err, report.String())
			}
		}
		if _, err := Verify(bg, rotOptions(failing), 0); !OfMachine(err) {
			t.Errorf("%s: %v: verified: %v", what.suffix, what.why, err)
		}
	}
	var report strings.Builder
	if n, err := Repair(bg, rotOptions(mem), false, &report); n != 0 || err != nil {
		t.Errorf("%d places, %v\n%s", n, err, report.String())
	}
}
