package engine

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

func TestATopicCreatedAgainOverRestartsHoldsNothingOfTheFormerOne(t *testing.T) {
	fs := vfs.NewMem()
	e := openOn(t, fs, "a")
	put(t, e, "first", configOf(api.Fsync))
	put(t, e, "t", configOf(api.Fsync))
	write(t, e, "first", "stays, so that the segment does, too")
	write(t, e, "t", "former")
	sealNow(t, e)
	if _, err := e.DeleteTopic(bg, "t", false); err != nil {
		t.Fatal(err)
	}
	sealNow(t, e)
	reopen := func() {
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openOn(t, fs, "a")
	}
	reopen()
	put(t, e, "t", configOf(api.Fsync))
	write(t, e, "t", "new")
	sealNow(t, e)
	reopen()
	if records, gaps := mustFull(t, e, "t"); len(records) != 1 || records[0] != "1=new" || gaps != nil {
		t.Fatalf("%v and gaps %v, want the new record alone", records, gaps)
	}
}
