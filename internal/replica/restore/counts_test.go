package restore

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/replica"
)

// A base that covers a gap counts by the entry right behind it, which says that its own leader
// went on there: not by one of another leader, or about another base.
func TestABaseOverAGapCountsByTheEntryOfItsLeader(t *testing.T) {
	for what, change := range map[string]func(g *replica.Group, b replica.Base){
		"of another leader":  func(g *replica.Group, _ replica.Base) { g.Term++ },
		"about another base": func(g *replica.Group, b replica.Base) { g.Last = b.LSN - 1 },
	} {
		l := shipped(t)
		want := digest(t, l.Engine)
		l.write("a", 4) // left out
		l.base()
		b := l.gap()
		g := replica.Group{Term: 1, Last: b.LSN, TimeMS: l.now}
		if change(&g, b); g.Term > 1 {
			next, err := l.to.copy().Log.Lead(t.Context(), "next")
			if err != nil {
				t.Fatal(err)
			}
			l.pos = next.End
		}
		if g.Last > l.last {
			g.Last = l.last // what was left out is not in the log of the next leader
		}
		l.append(g)
		plan, err := l.to.copy().Plan(t.Context(), Point{})
		if err != nil {
			t.Fatalf("an entry %s: %v", what, err)
		}
		if plan.Base.Gap {
			t.Errorf("the base counts by an entry %s", what)
		} else if got := digest(t, l.restored(Point{})); got != want {
			t.Errorf("an entry %s: %s, want %s", what, got, want)
		}
	}
}

// What the log lacks is named, whatever an entry that follows is: of an older leader, of a
// later one whose beginning is not there, or the last one of a leader that had more.
func TestALogThatLacksSomethingIsDamaged(t *testing.T) {
	for what, g := range map[string]func(l *leader) replica.Group{
		"of an older leader": func(l *leader) replica.Group { return replica.Group{Term: 0, Last: l.last, TimeMS: l.now} },
		"of a stop, behind more": func(l *leader) replica.Group {
			return replica.Group{Term: 1, Last: l.last + 3, TimeMS: l.now, Pieces: []replica.Piece{replica.End}}
		},
		"of a later leader whose first is not there": func(l *leader) replica.Group { return replica.Group{Term: 2, Last: l.last, TimeMS: l.now} },
		"of a life, behind more":                     func(l *leader) replica.Group { return replica.Group{Term: 1, Last: l.last + 3, TimeMS: l.now} },
	} {
		l := shipped(t)
		l.append(g(l))
		var bad *DamagedError
		if _, err := l.to.copy().Plan(t.Context(), Point{}); !errors.As(err, &bad) || bad.LSN != l.last {
			t.Errorf("an entry %s: %v, want that the copy is whole up to %d", what, err, l.last)
		}
	}
}

// A base may be ahead of what was shipped when it was taken: what its store has taken over
// comes behind it once more.
func TestABaseAheadOfTheLogIsRestored(t *testing.T) {
	l := shipped(t)
	for lowest := uint32(0); lowest < 3; { // until it lacks log files that are still to be shipped
		l.write("a", 60)
		l.base()
		b, err := l.to.copy().readBase(t.Context(), replica.BaseName(l.pos))
		if err != nil {
			t.Fatal(err)
		}
		lowest = newChain(b).lowest
	}
	l.ship()
	l.write("a", 3)
	l.ship()
	if got, want := digest(t, l.restored(Point{})), digest(t, l.Engine); got != want {
		t.Errorf("restored: %.500s, want %.500s", got, want)
	}
}

// What the disk of a leader has lost its copy may have: with a synchronous one that was
// acknowledged.
func TestALeaderWhoseDiskLostItsEndGoesOnFromTheCopy(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	older := cut(l.fs.FS, 100)
	l.write("a", 5)
	l.ship()
	want := digest(t, l.Engine)
	led, got := l.opened(l.directory(older, "/data"))
	if got != want || led.LSN != l.last {
		t.Errorf("led %+v with %.500s, want LSN %d and %.500s", led, got, l.last, want)
	}
}

// quicker is a log in which another server takes a term in front of each.
type quicker struct{ replica.Log }

func (q quicker) Lead(ctx context.Context, node string) (replica.Lead, error) {
	if lead, err := q.Log.Lead(ctx, "another"); err != nil {
		return lead, err
	}
	return q.Log.Lead(ctx, node)
}

// Who has led between two starts cannot be seen in a copy that is damaged.
func TestALeaderOfADamagedCopyStopsIfAnotherWasQuicker(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	l.stop()
	for name, b := range l.to.files {
		if strings.HasPrefix(name, replica.BasePrefix) {
			l.to.files[name] = b[:len(b)/2]
		}
	}
	d.Copy.Log = quicker{d.Copy.Log}
	if led, err := d.Lead(t.Context()); !errors.Is(err, replica.ErrDamaged) {
		t.Errorf("led %+v, %v", led, err)
	}
}

// Nor is a directory gone on with in front of which another has led between two looks, however little that
// server wrote.
func TestADirectoryIsSetAsideIfAnotherWasQuicker(t *testing.T) {
	l := shipped(t)
	d := l.directory(l.fs.FS, "/data")
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	l.write("a", 5) // not shipped
	want := digest(t, l.Engine)
	l.stop()
	d.Copy.Log = quicker{d.Copy.Log}
	l.opened(d)
	if got := digest(t, open(t, l.fs.FS, "/data.stale-1")); got != want {
		t.Errorf("set aside: %s, want %s", got, want)
	}
}

// apart is a log whose terms begin well behind the entry in front of them, as in a bucket.
type apart struct{ *shelfLog }

func (a apart) Lead(ctx context.Context, node string) (replica.Lead, error) {
	lead, err := a.shelfLog.Lead(ctx, node)
	a.mu.Lock()
	defer a.mu.Unlock()
	lead.End += replica.Window
	a.entries[len(a.entries)-1].Pos = lead.End
	return lead, err
}

// A leader that has stopped has left nothing out, wherever the next term begins.
func TestTakingOverFromAStoppedLeaderLosesNothing(t *testing.T) {
	l := lead(t)
	l.put("a", func(c *api.Config) { c.Durability = api.Disk })
	l.ship()
	l.base()
	l.write("a", 3)
	l.ship()
	l.append(replica.Group{Term: 1, Last: l.last, TimeMS: l.now, Pieces: []replica.Piece{replica.End}})
	d := l.directory(vfs.NewMem(), "/new")
	d.Copy.Log = apart{(*shelfLog)(l.to)}
	if _, err := d.Lead(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := readFile(d.FS, "/new/FORMAT")
	var format struct{ Clean bool }
	if err == nil {
		err = json.Unmarshal(b, &format)
	}
	if err != nil || !format.Clean {
		t.Errorf("nothing was lost, and the directory says %s, %v", b, err)
	}
}

// A directory is the newest there is unless somebody has led since its server did, maybe under a
// number that the store had lost. Who has a term may not be readable, as that of older versions is not.
func TestWhoLedLast(t *testing.T) {
	for what, test := range map[string]struct {
		note   *note
		newest replica.Term
		want   bool
	}{
		"nobody since":                    {&note{Term: 4, Led: "a"}, replica.Term{Number: 4, Node: "a"}, true},
		"another one":                     {&note{Term: 4, Led: "a"}, replica.Term{Number: 5, Node: "b"}, false},
		"another one under its number":    {&note{Term: 4, Led: "a"}, replica.Term{Number: 4, Node: "b"}, false},
		"its number, the name unreadable": {&note{Term: 4, Led: "a"}, replica.Term{Number: 4}, true},
		"a note of an older version":      {&note{Term: 4}, replica.Term{Number: 4, Node: "a"}, true},
		"the store has lost its term":     {&note{Term: 4, Led: "a"}, replica.Term{Number: 3, Node: "b"}, true},
		"killed while it took the next":   {&note{Term: 4, Led: "a", Leading: "a X"}, replica.Term{Number: 5, Node: "a X"}, true},
		"another took it meanwhile":       {&note{Term: 4, Led: "a", Leading: "a X"}, replica.Term{Number: 5, Node: "b"}, false},
		"and others behind it":            {&note{Term: 4, Led: "a", Leading: "a X"}, replica.Term{Number: 6, Node: "a X"}, false},
		"no note":                         {nil, replica.Term{Number: 4, Node: "a"}, false},
	} {
		if got := (&held{used: true, note: test.note}).ledLast(test.newest); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
	if (&held{note: &note{Term: 4}}).ledLast(replica.Term{Number: 4}) {
		t.Error("a directory that is not used has led")
	}
}
