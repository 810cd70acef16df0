package restore

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
)

// short is a log that says once, when it is asked for what is behind a position, that it ends there.
type short struct {
	replica.Log
	at *uint64
}

func (s short) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	if s.at != nil && *s.at > 0 && after == *s.at {
		*s.at = 0
		return replica.Entry{}, io.EOF
	}
	return s.Log.Read(ctx, after)
}

// A server that has taken the lead knows how far the log went, and who restores has read it: what a store
// does not find for a moment must not become a directory that lacks it.
func TestALogThatSeemsToEndEarlyIsNotGoneOnFrom(t *testing.T) {
	l := shipped(t)
	for range 5 {
		l.write("a", 1)
		l.ship()
	}
	want := digest(t, l.Engine)
	l.stop()
	end := l.to.entries[len(l.to.entries)-1].Pos
	at := end - 3

	d := l.directory(vfs.NewMem(), "/new")
	d.Copy.Log = short{d.Copy.Log, &at}
	if led, err := d.Lead(t.Context()); err == nil {
		t.Errorf("a server leads with LSN %d", led.LSN)
	}
	if _, err := d.FS.Stat("/new/FORMAT"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
	if _, got := l.opened(d); got != want {
		t.Errorf("the next start has %s, want %s", got, want)
	}

	c := l.to.copy()
	plan, err := c.Plan(t.Context(), Point{})
	if err != nil {
		t.Fatal(err)
	}
	at = end - 3
	c.Log = short{c.Log, &at}
	if err := c.Build(t.Context(), plan, vfs.NewMem(), "/restored"); err == nil {
		t.Error("a directory was built that lacks the end")
	}
}
