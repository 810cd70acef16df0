package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

// hold keeps a router from moving until the returned call.
func hold(e *Engine, name string) (release func()) {
	r := e.routes.get(name)
	r.turn.Lock()
	return r.turn.Unlock
}

func TestWhatTheSourceLostIsBurntInTheDestination(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "1")
	put(t, e, "in", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 3 }))
	putRouter(t, e, "r", "in", "out")
	// In this order: the router copies as soon as it gets to run.
	write(t, e, "out", "90")
	write(t, e, "in", "1")
	mustFull(t, e, "out")
	release := hold(e, "r")
	write(t, e, "in", "2", "3", "4", "5", "6")
	e.dropBehind(e.reg.get("in"))
	release()
	wantFull(t, e, "out", "[1=90 2=1 5=4 6=5 7=6]", "[3-4 source_trim]")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openOn(t, fs, "1")
	wantFull(t, e, "out", "[1=90 2=1 5=4 6=5 7=6]", "[3-4 source_trim]")
}

func TestARouterCopiesBeforeACapTakes(t *testing.T) {
	for _, class := range []api.Durability{api.Ephemeral, api.Disk} {
		e := openOn(t, vfs.NewMem(), "1")
		put(t, e, "in", configOf(class, func(c *api.Config) { c.CapRecords = 2 }))
		putRouter(t, e, "r", "in", "out")
		release := hold(e, "r")
		for i := range 10 {
			write(t, e, "in", fmt.Sprint(i))
		}
		release()
		wantFull(t, e, "out", "[1=0 2=1 3=2 4=3 5=4 6=5 7=6 8=7 9=8 10=9]", "[]")
		write(t, e, "in", "10", "11", "12", "13", "14")
		if s := stateOf(t, e, "out"); s.HeadSeq != 15 || s.Count != 15 {
			t.Fatal(s.HeadSeq, s.Count)
		}
		if in := e.reg.get("in"); !in.routes.behind.empty() || len(in.Index.Refs(nil, 0, 100)) > 2 {
			t.Fatal("the source keeps what its routers have copied")
		}
	}
}

func TestAFullDestinationIsWaitedFor(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	put(t, e, "out", configOf(api.Disk, func(c *api.Config) { c.CapRecords, c.Discard = 2, api.DiscardReject }))
	putRouter(t, e, "r", "in", "out")
	write(t, e, "in", "1", "2", "3")
	write(t, e, "in", "4", "5")
	wantFull(t, e, "out", "[1=1 2=2]", "[]")
	if _, err := e.DeleteRecords(bg, "out", &api.DeleteRequest{HasBefore: true, BeforeSeq: 2}); err != nil {
		t.Fatal(err)
	}
	wantFull(t, e, "out", "[2=2 3=3]", "[]")
	put(t, e, "out", configOf(api.Disk))
	wantFull(t, e, "out", "[2=2 3=3 4=4 5=5]", "[]")
}

// A destination that is full takes nothing from another one of the same source, not even of a write
// that a cap takes at once.
func TestAFullDestinationTakesNothingFromOthers(t *testing.T) {
	for _, class := range []api.Durability{api.Ephemeral, api.Disk} {
		e := openOn(t, vfs.NewMem(), "1")
		put(t, e, "in", configOf(class, func(c *api.Config) { c.CapRecords = 2 }))
		put(t, e, "full", configOf(api.Disk, func(c *api.Config) { c.CapRecords, c.Discard = 1, api.DiscardReject }))
		putRouter(t, e, "a", "in", "full")
		putRouter(t, e, "b", "in", "roomy")
		release := hold(e, "b")
		write(t, e, "in", "1", "2", "3", "4", "5")
		wantFull(t, e, "full", "[1=1]", "[]")
		write(t, e, "in", "6")
		wantFull(t, e, "full", "[1=1]", "[]")
		stay := hold(e, "a") // else it may have read something by now, for which there is room when it writes
		release()
		wantFull(t, e, "roomy", "[1=1 2=2 3=3 4=4 5=5 6=6]", "[]")
		stay()
		if !e.reg.get("in").routes.behind.empty() {
			t.Error("the source keeps what the full destination has no room for")
		}
		put(t, e, "full", configOf(api.Disk))
		wantFull(t, e, "full", "[1=1 5=5 6=6]", "[2-4 source_trim]")
	}
}

// What a source has lost above its live records is nothing to a router that is past it.
func TestARouterCopiesBeforeACapTakesThoughSomethingIsLost(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	put(t, e, "in", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 3 }))
	putRouter(t, e, "r", "in", "mid")
	write(t, e, "mid", "90")
	release := hold(e, "r")
	write(t, e, "in", "1", "2", "3", "4", "5")
	e.dropBehind(e.reg.get("in"))
	release()
	wantFull(t, e, "mid", "[1=90 4=3 5=4 6=5]", "[2-3 source_trim]")
	put(t, e, "mid", configOf(api.Disk, func(c *api.Config) { c.CapRecords = 4 }))
	putRouter(t, e, "s", "mid", "out")
	release = hold(e, "s")
	write(t, e, "mid", "a", "b", "c", "d", "e", "f")
	release()
	wantFull(t, e, "out", "[1=a 2=b 3=c 4=d 5=e 6=f]", "[]")
}

func TestExactlyOnceCopiesSayWhereTheyAreFrom(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	putRouter(t, e, "r", "in", "out", func(c *api.RouterConfig) { c.Guarantee = api.ExactlyOnce })
	_, err := e.Write(bg, "in", &api.WriteRequest{Records: []api.Record{{Data: []byte("1"), Meta: []byte(`{"k":[1]}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	in := e.reg.get("in")
	want := fmt.Sprintf(`{"k":[1],"_topics_router":{"idempotency_key":"r/%d/%d/1","router":"r","source_topic":"in","source_topic_id":%d,"source_epoch":%d,"source_seq":1}}`,
		in.ID, in.CreatedTS, in.ID, in.CreatedTS)
	_, err = e.Diff(bg, "out", &api.DiffRequest{Limit: 10, MaxBatchBytes: 1 << 20, IncludeMeta: true}, func(r *api.Record) {
		if string(r.Meta) != want {
			t.Errorf("%s\nwant %s", r.Meta, want)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAcknowledgedJobsAreNotCopied(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	put(t, e, "in", configOf(api.Disk, queueConfig))
	putRouter(t, e, "r", "in", "out")
	release := hold(e, "r")
	write(t, e, "in", "1", "2", "3")
	claimJobs(t, e, "in", "n", 2)
	ack(t, e, "in", "n", 2)
	release()
	wantFull(t, e, "out", "[1=1 2=3]", "[]")
}

func TestAVisitOfManyRecordsIsCutShort(t *testing.T) {
	e := openOn(t, vfs.NewMem(), "1")
	putRouter(t, e, "r", "in", "out")
	release := hold(e, "r")
	for range 3 {
		write(t, e, "in", strings.Fields(strings.Repeat("1 ", 1000))...)
	}
	release()
	if s := stateOf(t, e, "out"); s.HeadSeq != 3000 {
		t.Fatal(s.HeadSeq)
	}
}
