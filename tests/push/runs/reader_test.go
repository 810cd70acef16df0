package runs

import (
	"testing"
	"time"

	"github.com/weirmq/weir/bench/load"
)

func frames(t *testing.T, list ...[2]string) (*reader, error) {
	t.Helper()
	r := &reader{at: map[string]*place{"a": {}}}
	for _, f := range list {
		if err := r.take(load.Frame{Event: []byte(f[0]), Data: []byte(f[1])}, time.Now()); err != nil {
			return r, err
		}
	}
	return r, nil
}

var (
	oneTwo = [2]string{"record", `{"topic":"a","from_seq":0,"head_seq":2,"records":[{"$seq":1,"data":0},{"$seq":2,"data":0}],"to_seq":2}`}
	gap    = [2]string{"tombstone", `{"topic":"a","reason":"cap","gap_from":3,"gap_to":7,"earliest_seq":8,"head_seq":8}`}
	eight  = [2]string{"record", `{"topic":"a","from_seq":7,"head_seq":8,"records":[{"$seq":8,"data":0}],"to_seq":8}`}
)

// What a reader got may only hold gaps that a tombstone announces.
func TestReaderAcceptsAnnouncedGapsAlone(t *testing.T) {
	r, err := frames(t, oneTwo, gap, eight, [2]string{"caught-up", `{"topic":"a","head_seq":8}`})
	if err != nil {
		t.Fatal(err)
	}
	if r.records != 3 || r.tombstones != 1 || r.position("a") != 8 {
		t.Fatalf("%d records, %d tombstones, at %d", r.records, r.tombstones, r.position("a"))
	}
	for name, bad := range map[string][][2]string{
		"a gap":          {oneTwo, eight},
		"a repetition":   {oneTwo, oneTwo},
		"a hole inside":  {{"record", `{"topic":"a","from_seq":0,"head_seq":3,"records":[{"$seq":1},{"$seq":3}],"to_seq":3}`}},
		"a wrong end":    {{"record", `{"topic":"a","from_seq":0,"head_seq":3,"records":[{"$seq":1}],"to_seq":3}`}},
		"a late gap":     {oneTwo, {"tombstone", `{"topic":"a","gap_from":2,"gap_to":7}`}},
		"another topic":  {{"caught-up", `{"topic":"b","head_seq":0}`}},
		"an error frame": {{"error", `{"code":"slow_consumer","error":"slow","message":"slow"}`}},
	} {
		if _, err := frames(t, bad...); err == nil {
			t.Errorf("%s was not seen", name)
		}
	}
}

// Records are compared with what was acknowledged, one by one.
func TestExpectedWalksOverBatchesInOrder(t *testing.T) {
	walk := func() expected {
		return expected{batches: []batch{{first: 1, n: 10, count: 2}, {first: 3, n: 4, count: 1}}}
	}
	if e := walk(); e.done("a") == nil {
		t.Fatal("nothing is missing although every record is")
	}
	e := walk()
	for _, want := range [][2]uint64{{1, 10}, {2, 11}, {3, 4}} {
		if seq, n, ok := e.next(); !ok || seq != want[0] || n != want[1] {
			t.Fatalf("record %d at %d, want %v", n, seq, want)
		}
	}
	if err := e.done("a"); err != nil {
		t.Fatal(err)
	}
}
