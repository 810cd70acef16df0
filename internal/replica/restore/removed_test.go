package restore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

// strict is a log whose positions have no holes: of one it says that something was removed, as a database
// and a topic do.
type strict struct{ replica.Log }

func (s strict) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	e, err := s.Log.Read(ctx, after)
	if err == nil && e.Pos > after+1 {
		return replica.Entry{}, replica.ErrTrimmed
	}
	return e, err
}

// robbed is a leader with an entry behind its newest base that somebody has removed: the one right
// behind it, or a later one.
func robbed(t *testing.T, first, gap bool) (l *leader, c Copy) {
	l = lead(t)
	l.put("a")
	l.ship()
	l.base()
	if gap {
		l.gap()
	}
	at := len(l.to.entries)
	for range 4 {
		l.write("a", 2)
		l.ship()
	}
	if !first {
		at += 2
	}
	l.to.entries = append(l.to.entries[:at:at], l.to.entries[at+1:]...)
	c = l.to.copy()
	c.Log = strict{c.Log}
	return l, c
}

// Whoever has led goes on with its own directory when entries of the copy were removed, nobody else
// with a part of it; and what is in front of them can be restored.
func TestALogThatSomebodyHasRemovedEntriesFromIsDamaged(t *testing.T) {
	for what, first := range map[string]bool{"right behind the base": true, "further behind": false} {
		l, c := robbed(t, first, false)
		var bad *DamagedError
		if _, err := c.Plan(t.Context(), Point{}); !errors.As(err, &bad) || !errors.Is(err, replica.ErrDamaged) {
			t.Errorf("%s: %v, want how far the copy is whole", what, err)
		} else if plan, err := c.Plan(t.Context(), Point{LSN: bad.LSN}); err != nil {
			t.Errorf("%s: what is in front of it: %v", what, err)
		} else if err := c.Build(t.Context(), plan, vfs.NewMem(), "/then"); err != nil {
			t.Errorf("%s: what is in front of it: %v", what, err)
		}
		young := l.directory(vfs.NewMem(), "/new")
		young.Copy = c
		if led, err := young.Lead(t.Context()); !errors.As(err, &bad) {
			t.Errorf("%s: a new machine: %+v, %v", what, led, err)
		}
		d := l.directory(l.fs.FS, "/data")
		d.Copy = c
		if err := d.writeNote(note{Term: l.to.newest.Number}); err != nil {
			t.Fatal(err)
		}
		want := digest(t, l.Engine)
		l.stop()
		if led, got := l.opened(d); got != want || led.LSN != 0 {
			t.Errorf("%s: led %+v with %s, want %s", what, led, got, want)
		}
	}
}

// A base over a gap does not tell whether it counts if the entry is gone that would.
func TestALeaderWhoseBaseLacksItsEntryGoesOn(t *testing.T) {
	l, c := robbed(t, true, true)
	if _, err := c.Plan(t.Context(), Point{}); !errors.Is(err, replica.ErrDamaged) {
		t.Errorf("the base: %v", err)
	}
	d := l.directory(l.fs.FS, "/data")
	d.Copy = c
	if err := d.writeNote(note{Term: 1}); err != nil {
		t.Fatal(err)
	}
	want := digest(t, l.Engine)
	l.stop()
	if led, got := l.opened(d); got != want || led.LSN != 0 {
		t.Errorf("led %+v with %s, want %s", led, got, want)
	}
}

// TestAStandbyOfALogWithoutSomeEntriesDoesNotFetchItsBaseAgainAndAgain is told of it, and takes the
// next base when there is one.
func TestAStandbyOfALogWithoutSomeEntriesDoesNotFetchItsBaseAgainAndAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l, c := robbed(t, false, false)
		d := l.directory(vfs.NewMem(), "/standby")
		d.Copy = c
		takesTheNextBase(t, l, standsPatiently(t, d))
		l.Close()
	})
}

// Of a log that ends in front of the newest base nobody knows what it had behind that, so it is said. That holds of a
// base that covers a gap, too, though what says that it counts is gone.
func TestARestoreSaysThatTheLogHasLostItsEnd(t *testing.T) {
	for what, c := range map[string]struct {
		gap   bool
		lose  int
		lost  bool
		empty bool
	}{
		"of a whole one":                                  {lose: 0},
		"without what is behind it":                       {lose: 1},
		"without what is in front of it":                  {lose: 2, lost: true},
		"over a gap that nobody went on behind":           {gap: true, lose: 1, empty: true},
		"over a gap, without what is in front of its end": {gap: true, lose: 2, lost: true},
	} {
		l := lead(t)
		l.put("a")
		l.ship()
		l.base()
		if c.gap {
			l.gap()
		}
		l.write("a", 2)
		l.ship()
		l.to.lose(c.lose)
		plan, err := l.to.copy().Plan(t.Context(), Point{})
		switch {
		case c.empty && !errors.Is(err, ErrEmpty):
			t.Errorf("%s: %v", what, err)
		case !c.empty && (err != nil || plan.LostEnd != c.lost):
			t.Errorf("%s: %+v, %v", what, plan, err)
		}
		l.stop()
	}
}

// A machine is lost, and so is the log that says whether the only base counts: the next machine begins with that
// base. With nothing it would give all numbers out again.
func TestANewMachineBeginsWithABaseOverAGapWhoseLogIsGone(t *testing.T) {
	l := lead(t)
	l.put("a")
	l.write("a", 2)
	l.ship()
	l.base()
	l.gap()
	want := digest(t, l.Engine)
	l.write("a", 2)
	l.ship()
	l.stop()
	l.to.lose(len(l.to.entries))
	_, got := l.opened(l.directory(vfs.NewMem(), "/new"))
	if !strings.HasPrefix(got, "a ") || !strings.HasPrefix(want, "a ") || records(got) != records(want) {
		t.Errorf("it has %s, want what the base has: %s", got, want)
	}
}

// records are the lines of a digest that show records: numbers that were reserved count as lost.
func records(digest string) (lines string) {
	for line := range strings.Lines(digest) {
		if strings.HasPrefix(line, " ") {
			lines += line
		}
	}
	return lines
}
