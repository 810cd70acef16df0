package restore

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

// serves goes on with a directory that leads now, with a synchronous copy.
func (l *leader) serves(d *Directory, led Led) *leader {
	l.t.Helper()
	e, err := engine.Open(l.t.Context(), engine.Options{Dir: d.Path, FS: d.FS, BootID: "boot", SegmentBytes: 1 << 20, Replica: &engine.Replica{
		Log: d.Copy.Log, Files: d.Copy.Files, Term: led.Term, End: led.End, Since: led.Since, LSN: led.LSN, Sync: true, Every: time.Second, BaseEvery: 5 * time.Second,
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { e.Close() })
	return &leader{Engine: e, t: l.t, to: l.to}
}

// TestABaseThatHoldsWhatTheStoreLostHidesNothing has a database fail over without the newest entries, some
// of which a base has. A server goes on, and is lost with its disk when it has acknowledged more.
func TestABaseThatHoldsWhatTheStoreLostHidesNothing(t *testing.T) {
	for _, with := range []string{"its own directory", "nothing", "a mirror"} {
		for _, c := range []struct{ lost, more int }{{3, 1}, {3, 8}} { // lost of what is in front of the base
			bubble.Run(t, func(t *testing.T) {
				l := &leader{t: t, to: &shelf{files: map[string][]byte{}}}
				d := l.directory(vfs.NewMem(), "/data")
				led, err := d.Lead(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				e := l.serves(d, led)
				e.put("a")
				for range 7 {
					e.write("a", 3)
					time.Sleep(time.Second)
				}
				e.Close()
				b := newest(t, l.to.copy())
				end := b.After - uint64(c.lost)
				if with != "its own directory" {
					d = l.directory(vfs.NewMem(), "/data")
				}
				h, err := d.look(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var m *Mirror
				if with == "a mirror" { // that began with an older base
					all := l.to.files
					l.to.files = without(all, replica.BaseName(b.After))
					if m, err = l.to.copy().Begin(t.Context(), d.FS, d.mirror("a"), nil); err == nil {
						err = m.Follow(t.Context(), end)
					}
					if l.to.files = all; err != nil || m.At != end {
						t.Fatal(m.At, end, err)
					}
				}
				l.to.lose(len(l.to.entries) - int(end))
				if led, err = d.take(t.Context(), h, m); err != nil {
					t.Fatal(err)
				}
				e = l.serves(d, led)
				for range c.more {
					e.write("a", 2)
				}
				want := digest(t, e.Engine)
				if _, got := l.opened(l.directory(vfs.NewMem(), "/new")); got != want {
					t.Errorf("%d entries were lost in front of the newest base; a server that went on with %s wrote %d times, and the one behind it does not have the same (%d bytes of %d)", c.lost, with, c.more, len(got), len(want))
				}
				e.Close()
			})
		}
	}
}

func newest(t *testing.T, c Copy) *replica.Base {
	t.Helper()
	names, err := c.baseNames(t.Context())
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	b, err := c.readBase(t.Context(), names[len(names)-1])
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func without(all map[string][]byte, name string) map[string][]byte {
	rest := map[string][]byte{}
	for n, b := range all {
		if n != name {
			rest[n] = b
		}
	}
	return rest
}
