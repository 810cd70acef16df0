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

// A deleted router is in nobody's way and in nobody's list: its topics go without it, and
// what a cap takes from its source is kept for the others alone.
func TestADeletedRouterLeavesNothingBehind(t *testing.T) {
	full := func(c *api.Config) { c.CapRecords, c.Discard = 1, api.DiscardReject }
	e := openOn(t, vfs.NewMem(), "a")
	put(t, e, "in", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 2 }))
	put(t, e, "full", configOf(api.Disk, full))
	putRouter(t, e, "stuck", "in", "full")
	putRouter(t, e, "quick", "in", "out")
	for i := range 5 {
		write(t, e, "in", fmt.Sprint(i))
	}
	if _, err := e.DeleteRouter(bg, "stuck"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		write(t, e, "in", fmt.Sprint(i))
		stateOf(t, e, "out") // and with it all copies
	}
	in := e.reg.get("in")
	in.mu.Lock()
	if !in.routes.behind.empty() {
		t.Errorf("of what a cap took %+v is kept for a router that was deleted", in.routes.behind)
	}
	in.mu.Unlock()
	for topic, want := range map[string]string{"full": "[]", "in": "[quick]"} {
		res, err := e.DeleteTopic(bg, topic, false)
		if got := fmt.Sprint(res.RoutersRemoved); err != nil || got != want {
			t.Errorf("with %s go the routers %s, want %s: %v", topic, got, want, err)
		}
	}
}
