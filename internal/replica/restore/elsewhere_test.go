package restore

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// named is a log that knows which copy it is of.
type named struct {
	replica.Log
	id string
}

func (n named) ID(context.Context) (string, error) { return n.id, nil }

// TestACopyThatWasLeftIsNotGoneBackTo has a server keep its copy in another place for a while, fewer or more
// terms than in the first: what it has written there is not in the first, and whose its terms are, nobody knows.
func TestACopyThatWasLeftIsNotGoneBackTo(t *testing.T) {
	for _, terms := range []int{1, 5} {
		l := shipped(t)
		l.stop()
		first := l.directory(l.fs.FS, "/data")
		first.Copy.Log = named{first.Copy.Log, "first"}
		if err := first.writeNote(note{Term: 1, Copy: "first"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if led, _ := l.opened(first); led.LSN == 0 {
				t.Errorf("a server on its own copy: led %+v", led)
			}
		}
		second := *first
		second.Copy = (&shelf{files: map[string][]byte{}}).copy()
		second.Copy.Log = named{second.Copy.Log, "second"}
		var told strings.Builder
		second.Logger = slog.New(slog.NewTextHandler(&told, nil))
		for range terms {
			if led, _ := l.opened(&second); led.LSN != 0 {
				t.Errorf("a server on an empty copy: led %+v", led)
			}
		}
		if n := strings.Count(told.String(), "has led another copy"); n != 1 { // its mount may be missing
			t.Errorf("%d times in %d starts it is told that a new copy begins: %s", n, terms, told.String())
		}
		l.Engine = open(t, l.fs.FS, "/data")
		l.write("a", 3)
		want := digest(t, l.Engine)
		l.stop()
		if led, err := first.Lead(t.Context()); err == nil || !strings.Contains(err.Error(), "another one since") {
			t.Errorf("after %d terms elsewhere: led %+v, %v", terms, led, err)
		}
		if got := digest(t, open(t, l.fs.FS, "/data")); got != want {
			t.Errorf("after %d terms elsewhere the directory holds %s, want %s", terms, got, want)
		}
	}
}

// TestATermThatNobodyCanReadIsAnothers has the object that says who leads be damaged.
func TestATermThatNobodyCanReadIsAnothers(t *testing.T) {
	l, d, want, _ := overtaken(t)
	l.to.newest.Node = ""
	if _, got := l.opened(d); got != want {
		t.Errorf("the old leader goes on with %s, want %s", got, want)
	}
}

// TestATermThatWasLostIsAnothers has a database fail over without the newest term, whose number another server then
// gets: what that one acknowledges is not for the first one to roll back.
func TestATermThatWasLostIsAnothers(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	l.write("a", 5)
	want := digest(t, l.Engine)
	l.stop()
	before := l.to.newest
	next := l.directory(vfs.NewMem(), "/next")
	next.Node = "next"
	led, _ := l.opened(next)
	e := open(t, next.FS, next.Path)
	for range 20 { // so that it has more than the copy
		(&leader{Engine: e, t: t}).write("a", 1)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	l.to.lose(1)
	l.to.newest = before
	again, _ := l.opened(d)
	if again.Term != led.Term {
		t.Fatalf("the terms are %d and %d: this test shows nothing", led.Term, again.Term)
	}
	l.term, l.pos = again.Term, again.End
	l.ship()
	for range 2 {
		if _, got := l.opened(next); got != want {
			t.Errorf("it goes on with %s, want %s", got, want)
		}
	}
}
