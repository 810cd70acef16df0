package engine

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/tests/bubble"
)

// What was written to a source before it or its router was deleted is copied, and nothing
// comes to the destination once the deletion is acknowledged.
func TestTheEndOfARouterComesAfterTheCopiesOfWhatWasWritten(t *testing.T) {
	bubble.Run(t, endAfterCopies)
}

func endAfterCopies(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "a")
	defer e.Close()
	put(t, e, "copy", configOf(api.Disk))
	late := 0
	for i := range 400 {
		source := fmt.Sprint("source", i)
		put(t, e, source, configOf(api.Disk))
		if _, err := e.PutRouter(bg, "r", api.RouterConfig{Source: source, Dest: "copy"}); err != nil {
			t.Fatal(err)
		}
		if _, err := tryWrite(e, source, `1`, `2`, `3`); err != nil {
			t.Fatal(err)
		}
		for range i % 40 {
			runtime.Gosched()
		}
		end := func() error { _, err := e.DeleteTopic(bg, source, false); return err }
		if i%2 == 1 {
			end = func() error { _, err := e.DeleteRouter(bg, "r"); return err }
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		before := stateOf(t, e, "copy").HeadSeq
		if want := 3 * uint64(i+1); before != want {
			t.Fatalf("the destination has %d records after %d rounds, want %d", before, i+1, want)
		}
		time.Sleep(time.Millisecond) // of the bubble: until everything is idle
		if after := stateOf(t, e, "copy").HeadSeq; after != before {
			late++
		}
	}
	if late > 0 {
		t.Errorf("after %d of 400 ends copies were still made", late)
	}
}
