package weir

import (
	"context"
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

// A server that is too busy says for how long it is to be left alone.
func TestAPoolComesBackNoSoonerThanTheServerAsks(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		for _, op := range []backendtest.Op{backendtest.OpClaim, backendtest.OpAck} {
			f.Inject(op, backendtest.Fault{Err: &backend.FullError{Reason: "load_shedding", RetryAfter: 20 * time.Second}, Times: 1})
		}
		p := startPool(t, f, nothing, PoolConfig{Workers: 1})
		publish(t, f, 1)
		for _, c := range []struct {
			op          backendtest.Op
			after       time.Duration
			least, most int
		}{
			{backendtest.OpClaim, 19 * time.Second, 1, 1},
			{backendtest.OpAck, 19 * time.Second, 1, 1}, // the claim was answered after 20 s
			{backendtest.OpAck, 5 * time.Second, 2, 2},
		} {
			time.Sleep(c.after)
			if n := f.Calls(c.op); n < c.least || n > c.most {
				t.Errorf("%d calls of %s, want %d to %d", n, c.op, c.least, c.most)
			}
		}
		p.finish()
		p.expect(PoolStats{Acked: 1})
	})
}

// hasty is a backend that has its answer at once, whatever a claim's Block.
type hasty struct{ *backendtest.Fake }

func (h hasty) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	req.Block = 0
	if h.Calls(backendtest.OpClaim) > 1000 {
		return backend.Claimed{}, backend.ErrClosed // or virtual time would stand still
	}
	return h.Fake.Claim(ctx, req)
}

// A backend that does not wait for messages is asked again and again, and not in a busy loop.
func TestABackendThatDoesNotWaitIsNotAskedAllTheTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		p, err := NewPool(New(hasty{f}), nothing, quiet(PoolConfig{Workers: 1}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := f.Calls(backendtest.OpClaim); n < 10 || n > 200 {
			t.Errorf("%d claims in a second", n)
		}
	})
}
