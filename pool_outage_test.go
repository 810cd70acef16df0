package weir

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// A server that comes back without its data shows as a group that is gone, of all shards or of one: that an outage
// began must not hide it.
func TestPoolTellsThatTheGroupWasGoneInAnOutage(t *testing.T) {
	gone := fmt.Errorf("created again: %w: %w", backend.ErrUnavailable, backend.ErrGroupNotFound)
	for name, meet := range map[string]func(p *Pool, err error){
		"of the stream": func(p *Pool, err error) { p.answered(claimCalls, err) },
		"of a shard":    (*Pool).partly,
	} {
		log := &logged{}
		p := &Pool{log: log.logger()}
		for _, err := range []error{backend.ErrUnavailable, gone, backend.ErrUnavailable, nil} {
			meet(p, err)
		}
		if n := len(log.Lines("messages may be lost: the group was gone")); n != 1 {
			t.Errorf("%s: logged %d times", name, n)
		}
		for range 1000 {
			meet(p, gone)
		}
		if n := len(log.Lines("messages may be lost: the group was gone")); n > 3*failureLines {
			t.Errorf("%s: 1000 times at once are logged %d times", name, n)
		}
	}
}

// flapping counts the lines of a trouble that came and went for half a minute, many times a second, and then lasted:
// it must begin in the log at most every ten seconds, and what has begun must end.
func flapping(t *testing.T, log *logged, begins, ends string) {
	t.Helper()
	if n, over := len(log.Lines(begins)), len(log.Lines(ends)); n < 3 || n > 5 || over != n-1 {
		t.Errorf("the trouble was logged %d times, its end %d times", n, over)
	}
}

func TestPoolDoesNotLogEachOfManyShortOutages(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		log := &logged{}
		p := startPool(t, f, nothing, PoolConfig{Workers: 2, Logger: log.logger(), Block: 100 * time.Millisecond})
		for range 150 {
			f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrUnavailable, Times: 1})
			time.Sleep(200 * time.Millisecond)
		}
		back := f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrUnavailable})
		time.Sleep(11 * time.Second)
		flapping(t, log, "waiting for the backend", "the backend is back")
		back()
		p.finish()
	})
}

func TestPoolDoesNotLogEachClaimThatFailsInPart(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		log := &logged{}
		p := &Pool{log: log.logger()}
		for range 150 {
			p.partly(backend.ErrUnavailable)
			p.partly(nil)
			time.Sleep(200 * time.Millisecond)
		}
		for range 11 {
			p.partly(backend.ErrUnavailable)
			time.Sleep(time.Second)
		}
		flapping(t, log, "claims fail in part", "claims succeed in all parts again")
	})
}
