package restore

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
	"github.com/weirmq/weir/tests/bubble"
)

// outage is a log that nobody can read for a while.
type outage struct {
	replica.Log
	away *atomic.Bool
}

func (o outage) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	if o.away.Load() {
		return replica.Entry{}, errors.New("no route to the store")
	}
	return o.Log.Read(ctx, after)
}

// A store that was away says nothing about the leader, which could not reach it either: the
// silence that counts begins when it is back.
func TestAStandbyDoesNotTakeAnOutageForSilence(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := shipped(t)
		d := l.directory(vfs.NewMem(), "/standby")
		var away atomic.Bool
		d.Copy.Log = outage{d.Copy.Log, &away}
		done := make(chan error, 1)
		go func() {
			_, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
			done <- err
		}()
		time.Sleep(5 * time.Second)
		away.Store(true)
		time.Sleep(time.Minute)
		away.Store(false)
		time.Sleep(14 * time.Second)
		if len(done) > 0 {
			t.Fatalf("it led before the leader could say that it lives: %v", <-done)
		}
		l.write("a", 1)
		l.ship()
		time.Sleep(14 * time.Second)
		if len(done) > 0 {
			t.Fatalf("it led while the leader lives: %v", <-done)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		l.Close()
	})
}

// A takeover replays what is behind the base of the mirror: a standby goes over to a newer base
// before that is too much.
func TestAStandbyGoesOverToANewerBase(t *testing.T) {
	l := shipped(t)
	d := l.directory(vfs.NewMem(), "/standby")
	f := &follower{d: d}
	defer f.drop()
	read := func() {
		t.Helper()
		if _, err := f.read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read()
	older := f.m.dir
	for range 2 {
		for range 5 {
			l.write("a", 60)
			l.ship()
		}
		read()
		l.base()
		read()
		if f.m.dir != older || f.m.Base.After == l.pos {
			t.Fatal("it goes over although there is little behind the base")
		}
		f.m.Behind, f.based = rebaseBytes, time.Time{}
		read()
		if f.m.dir == older || f.m.Base.After != l.pos || f.m.Behind != 0 {
			t.Fatalf("in %s it has the base of position %d with %d bytes behind it; the newest is of %d", f.m.dir, f.m.Base.After, f.m.Behind, l.pos)
		}
		if _, err := d.FS.Stat(older); err == nil {
			t.Errorf("%s is still there", older)
		}
		older = f.m.dir
	}
	l.write("a", 3)
	l.ship()
	read()
	if err := f.m.Finish(math.MaxUint64); err != nil {
		t.Fatal(err)
	}
	if got, want := digest(t, open(t, d.FS, f.m.dir)), digest(t, l.Engine); got != want {
		t.Errorf("the standby has %.500s, want %.500s", got, want)
	}
}

// TestAStandbyHasWhatTheStoreHasLost has a database fail over without the newest entries, which a
// standby has read: it keeps them, and does not say that the copy has them.
func TestAStandbyHasWhatTheStoreHasLost(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := shipped(t)
		d := l.directory(vfs.NewMem(), "/standby")
		go func() {
			time.Sleep(time.Second)
			for range 3 {
				l.write("a", 2)
				l.ship()
			}
			time.Sleep(time.Second)
			l.to.lose(2)
		}()
		led, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
		if err != nil || led.LSN != 0 {
			t.Errorf("led %+v, %v, and the copy does not have what was read last", led, err)
		}
		if got, want := digest(t, open(t, d.FS, d.Path)), digest(t, l.Engine); got != want {
			t.Errorf("the standby has %s, want %s", got, want)
		}
		l.Close()
	})
}

// TestAStandbyThatHasReadWhatTheStoreLostMakesRoomForWhoLedSince has another server go on without the
// lost entries, whose own do not yet fill their places.
func TestAStandbyThatHasReadWhatTheStoreLostMakesRoomForWhoLedSince(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		l := shipped(t)
		d, other := l.directory(vfs.NewMem(), "/standby"), l.directory(vfs.NewMem(), "/other")
		want := digest(t, l.Engine)
		go func() {
			time.Sleep(time.Second)
			for range 2 {
				l.write("a", 2)
				l.ship()
			}
			time.Sleep(time.Second)
			l.to.lose(2)
			if _, err := other.Lead(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		led, err := d.Stand(t.Context(), Standby{Silence: 15 * time.Second, Poll: 250 * time.Millisecond})
		if err != nil || led.Term != 3 {
			t.Errorf("led %+v, %v", led, err)
		}
		if got := digest(t, open(t, d.FS, d.Path)); got != want {
			t.Errorf("the standby has %s, the server that led before it %s", got, want)
		}
		l.Close()
	})
}
