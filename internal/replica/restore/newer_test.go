package restore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/engine"
	"github.com/weirmq/weir/tests/bubble"
)

// TestACopyOfANewerWeirIsLeftToIt has a server begin beside the copy of a newer version. If it took
// the term it would end the leader, and then could not read what it has got.
func TestACopyOfANewerWeirIsLeftToIt(t *testing.T) {
	wait := Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond}
	refused := func(t *testing.T, l *leader, err error) {
		t.Helper()
		want := fmt.Sprintf("has format %d, this weir reads up to format %d: use a newer weir", engine.FormatVersion+1, engine.FormatVersion)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if newest, err := l.to.copy().Log.Newest(t.Context()); err != nil || newest.Number != 1 {
			t.Errorf("term %d has begun (%v)", newest.Number, err)
		}
	}
	t.Run("a server", func(t *testing.T) {
		l := shipped(t)
		l.newer++
		l.base()
		_, err := l.directory(vfs.NewMem(), "/older").Lead(t.Context())
		refused(t, l, err)
	})
	t.Run("a standby", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			l := shipped(t)
			l.newer++
			l.base()
			begun := time.Now()
			_, err := l.directory(vfs.NewMem(), "/older").Stand(t.Context(), wait)
			refused(t, l, err)
			if waited := time.Since(begun); waited > 0 {
				t.Errorf("it waits for %v to say so", waited)
			}
			l.Close()
		})
	})
	t.Run("a standby that was there before", func(t *testing.T) {
		bubble.Run(t, func(t *testing.T) {
			l := shipped(t)
			ended := make(chan error)
			d := l.directory(vfs.NewMem(), "/older")
			go func() {
				_, err := d.Stand(t.Context(), wait)
				ended <- err
			}()
			time.Sleep(time.Second)
			l.newer++
			l.write("a", 1)
			l.ship()
			l.base()
			refused(t, l, <-ended)
			l.Close()
		})
	})
}

// TestARestoreOfACopyOfANewerWeirSaysSo restores what a newer version has made, and what was there
// before.
func TestARestoreOfACopyOfANewerWeirSaysSo(t *testing.T) {
	l := shipped(t)
	before := time.UnixMilli(l.now)
	l.newer++
	l.now += 10_000
	l.write("a", 1)
	l.ship()
	l.base()
	if _, err := l.to.copy().Plan(t.Context(), Point{}); !errors.Is(err, ErrNewer) {
		t.Errorf("the newest state: %v", err)
	}
	plan, err := l.to.copy().Plan(t.Context(), Point{Time: before})
	if err != nil || plan.Base.Format != engine.FormatVersion {
		t.Errorf("the state before: %+v, %v", plan, err)
	}
}
