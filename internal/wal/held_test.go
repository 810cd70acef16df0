package wal

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/tests/bubble"
)

// While the disk does not end a read, of what lies next to it or of the head of a file for a snapshot, other reads
// end, and so do writes.
func TestAReadThatDoesNotEndHoldsUpNeitherOthersNorTheLog(t *testing.T) {
	for name, begin := range map[string]func(l *Log, all []Pos) error{
		"a read": func(l *Log, all []Pos) error { _, err := l.Read(all[1], nil); return err },
		"a snapshot": func(l *Log, _ []Pos) error {
			s, err := l.Snapshot(0)
			if err == nil {
				s.Close()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				held := make(chan struct{})
				var holds atomic.Bool
				fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(o errorfs.Op) error {
					if o.Kind == errorfs.OpFileReadAt && o.Offset < 30<<10 && holds.Load() {
						<-held
					}
					return nil
				}))
				l, _, _ := openLog(t, Options{FS: fs, HotBytes: 2 * chunkBytes}, 0)
				defer mustClose(t, l)
				var all []Pos
				for i := range 300 {
					_, pos := add(t, l, "", fmt.Sprint(i)+string(bytes.Repeat([]byte{'x'}, 10<<10)), Synced)
					all = append(all, pos)
				}
				if _, err := l.Read(all[0], nil); err != nil { // the next one is read with more behind it
					t.Fatal(err)
				}
				holds.Store(true)
				stuck := make(chan error, 1)
				go func() { stuck <- begin(l, all) }()
				synctest.Wait()
				others := make(chan string, 1)
				go func() {
					for _, at := range []int{100, 101, 200, 201, 299} {
						if got, err := l.Read(all[at], nil); err != nil || !strings.HasPrefix(string(got), fmt.Sprint(at)) {
							others <- fmt.Sprintf("number %d: %.10q, %v", at, got, err)
							return
						}
					}
					add(t, l, "", "more", Synced)
					others <- ""
				}()
				select {
				case wrong := <-others:
					if wrong != "" {
						t.Error(wrong)
					}
				case <-time.After(time.Minute):
					t.Error("other reads, or a write, wait for it")
				}
				close(held)
				if err := <-stuck; err != nil {
					t.Error(err)
				}
				synctest.Wait()
			})
		})
	}
}
