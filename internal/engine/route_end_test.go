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

// Once the end of a source is acknowledged, nothing more of it comes to the
// topics that its routers fed.
func TestNothingIsCopiedAfterTheEndOfASource(t *testing.T) {
	bubble.Run(t, nothingIsCopiedAfterTheEnd)
}

func nothingIsCopiedAfterTheEnd(t *testing.T) {
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
		if _, err := e.DeleteTopic(bg, source, false); err != nil {
			t.Fatal(err)
		}
		before := stateOf(t, e, "copy").HeadSeq
		time.Sleep(time.Millisecond) // of the bubble: until everything is idle
		if after := stateOf(t, e, "copy").HeadSeq; after != before {
			late++
		}
	}
	if late > 0 {
		t.Errorf("after %d of 400 deletes copies of the source were still made", late)
	}
}
