package crashfs

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestALinkAndACloneDoNotStopEachOther, as they do in vfs.MemFS after some thousands.
func TestALinkAndACloneDoNotStopEachOther(t *testing.T) {
	fs := New()
	f, err := fs.Create("a", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	const links = 20_000
	var both sync.WaitGroup
	both.Go(func() {
		for i := range links {
			name := fmt.Sprint("b", i)
			if err := fs.Link("a", name); err != nil {
				t.Error(err)
			}
			if err := fs.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	both.Go(func() {
		for range links {
			fs.CrashClone(vfs.CrashCloneCfg{})
		}
	})
	both.Wait()
}
