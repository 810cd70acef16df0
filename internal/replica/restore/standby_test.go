package restore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/replica"
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
	synctest.Test(t, func(t *testing.T) {
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
