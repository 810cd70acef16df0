package backendtest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/leak"
)

func (s *suite) contextCases() []testCase {
	return []testCase{
		{"no call begins with a context that has ended", endedContext},
		{"close ends a waiting claim, and only of its handle", closeEndsClaim},
		{"every call of a closed handle says so", closedHandle},
		{"what a closed handle has not finished goes to another, counted, and nothing else does", leftByClosed},
	}
}

// call is one call of a backend.
type call struct {
	name string
	do   func(ctx context.Context, b backend.Backend) error
}

// calls are all of them, on one delivery that b may hold.
func calls(d *backend.Delivery) []call {
	list := []call{
		{"append", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Append(ctx, text("x"))
			return err
		}},
		{"append with a key", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Append(ctx, []backend.Message{{IdempotencyKey: "k"}})
			return err
		}},
		{"claim", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Claim(ctx, request("a", 1))
			return err
		}},
		{"extend", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Extend(ctx, []backend.Lease{d.Lease}, held)
			return err
		}},
		{"nack", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Nack(ctx, []backend.Return{{Lease: d.Lease}})
			return err
		}},
		{"dead letter", func(ctx context.Context, b backend.Backend) error {
			return b.DeadLetter(ctx, d, "", backend.Cause{Reason: backend.ReasonPoison})
		}},
		{"ack", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Ack(ctx, []backend.Lease{d.Lease})
			return err
		}},
		{"stats", func(ctx context.Context, b backend.Backend) error {
			_, err := b.Stats(ctx)
			return err
		}},
	}
	return append(list, optionalCalls(d)...)
}

// optionalCalls are those that not every backend has; one without it ends as is wished.
func optionalCalls(d *backend.Delivery) []call {
	return []call{
		{"signal", func(ctx context.Context, b backend.Backend) error {
			if s, can := b.(backend.Signaler); can {
				_, err := s.Signal(ctx, 100)
				return err
			}
			return errNotThere
		}},
		{"publish signal", func(ctx context.Context, b backend.Backend) error {
			if s, can := b.(backend.Signaler); can {
				return s.PublishSignal(ctx, time.Second)
			}
			return errNotThere
		}},
		{"read", func(ctx context.Context, b backend.Backend) error {
			if r, can := b.(backend.Reader); can {
				_, err := r.Read(ctx, backend.ReadRequest{Max: 1})
				return err
			}
			return errNotThere
		}},
		{"list", func(ctx context.Context, b backend.Backend) error {
			if l, can := b.(backend.DeadLetters); can {
				_, err := l.List(ctx, "", "", 1)
				return err
			}
			return errNotThere
		}},
		{"redrive", func(ctx context.Context, b backend.Backend) error {
			if l, can := b.(backend.DeadLetters); can {
				return l.Redrive(ctx, "", backend.DeadLetter{ID: d.ID})
			}
			return errNotThere
		}},
		{"purge", func(ctx context.Context, b backend.Backend) error {
			if l, can := b.(backend.DeadLetters); can {
				_, err := l.Purge(ctx, "", []string{d.ID})
				return err
			}
			return errNotThere
		}},
		{"resume", func(ctx context.Context, b backend.Backend) error {
			if p, can := b.(backend.Pauser); can {
				return p.Pause(ctx, false)
			}
			return errNotThere
		}},
		{"trim", func(ctx context.Context, b backend.Backend) error {
			if t, can := b.(backend.Trimmer); can {
				_, err := t.Trim(ctx, backend.TrimRequest{})
				return err
			}
			return errNotThere
		}},
	}
}

var errNotThere = errors.New("the backend has no such call")

func endedContext(f *fixture) {
	b := f.open()
	f.publish(b, numbered(0, 1)...)
	d := f.claim(b, "a", 1)[0]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range calls(d) {
		start := time.Now()
		err := c.do(ctx, b)
		if took := time.Since(start); err == nil || took > f.prompt() {
			f.Errorf("%s with an ended context: %v after %s", c.name, err, took)
		}
		if !errors.Is(err, errNotThere) && !errors.Is(err, context.Canceled) {
			f.Errorf("%s with an ended context: %v, want context.Canceled", c.name, err)
		}
	}
	f.ack(b, d)
	f.done(b)
}

func closeEndsClaim(f *fixture) {
	b, other := f.open(), f.open()
	f.nothing(b, request("a", 1), "the stream is new")
	req := f.shortRequest("a", 1) // a server that has not heard of the end yet may give it the message below
	req.Block = 15 * time.Second
	closed := make(chan time.Time, 1)
	timer := time.AfterFunc(100*time.Millisecond, func() {
		closed <- time.Now()
		if err := b.Close(); err != nil {
			f.Errorf("close: %v", err)
		}
	})
	defer timer.Stop()
	_, err := b.Claim(f.ctx(), req)
	if took := time.Since(<-closed); err == nil || took > f.prompt() {
		f.Errorf("a waiting claim ended %s after the close with %v", took, err)
	}
	f.publish(other, text("x")...)
	req = f.shortRequest("b", 1) // what the server knew of the other's leases may have left with it
	f.finish(other, req, f.gather(other, req, 1).Deliveries...)
}

func closedHandle(f *fixture) {
	b, other := f.open(), f.open()
	f.publish(b, numbered(0, 1)...)
	d := f.claim(b, "a", 1)[0]
	for range 2 {
		if err := b.Close(); err != nil {
			f.Errorf("close: %v", err)
		}
	}
	for _, c := range calls(d) {
		if err := c.do(f.ctx(), b); !errors.Is(err, backend.ErrClosed) && !errors.Is(err, errNotThere) {
			f.Errorf("%s on a closed handle: %v", c.name, err)
		}
	}
	want := int64(1)
	if f.h.ReleasesOnClose {
		want = 0
	}
	stats := f.statsWhen(other, func(s backend.Stats) bool { return s.Pending == want })
	if stats.Pending != want || stats.Lag != nil && *stats.Lag != 1-want {
		f.Errorf("one message was held, pending is %d, lag %s", stats.Pending, number(stats.Lag))
	}
}

// leftByClosed: a handle finishes some of its messages, in no order, and is closed. If that takes
// seconds the servers had no time for what it has to say, and another stream gets a try.
func leftByClosed(f *fixture) {
	f.untilQuick(5, "a close", func() bool { return finishesAndCloses(f) })
}

func finishesAndCloses(f *fixture) bool {
	a := f.open()
	ids := f.publish(a, numbered(0, 40)...)
	got := f.inOrder(f.gather(a, f.shortRequest("a", 20), 20).Deliveries, ids)
	left := map[string]int{} // ID → attempt that has to come
	for _, id := range ids {
		left[id] = 1
	}
	var over []*backend.Delivery
	for i, d := range got {
		if left[d.ID] = d.Attempt + 1; i%3 == 1 || i > 15 {
			over = append(over, d)
		}
	}
	lost, err := a.Ack(f.ctx(), leases(over))
	if err != nil {
		f.Fatalf("ack: %v", err)
	}
	for _, d := range over {
		if !slices.Contains(lost, d.ID) {
			delete(left, d.ID)
		}
	}
	b := f.open() // before a is closed: what a program has in memory goes with its last handle
	begin := time.Now()
	if err := a.Close(); err != nil {
		f.Fatalf("close: %v", err)
	}
	took := time.Since(begin)
	if f.h.Late > 0 && took >= 3*time.Second {
		return false
	}
	for start, work := time.Now(), time.Now(); len(left) > 0; {
		got, err := b.Claim(f.ctx(), request("b", 7))
		if err != nil {
			f.Fatalf("claim: %v", err)
		}
		if stats := f.stats(b); len(got.Deliveries) > 0 || stats.Pending+stats.Behind+value(stats.Lag) > 0 {
			work = time.Now()
		}
		if time.Since(work) > 2*time.Second+f.late() || time.Since(start) > f.patience() {
			f.Fatalf("%d messages did not come in %s, the last %s without any work left", len(left), time.Since(start), time.Since(work))
		}
		for _, d := range got.Deliveries {
			if left[d.ID] == 0 || left[d.ID] != d.Attempt {
				f.Errorf("after a close of %s message %s came with attempt %d, want %d", took, d.ID, d.Attempt, left[d.ID])
			}
			delete(left, d.ID)
			f.ack(b, d)
		}
	}
	f.done(b)
	return true
}

// noGoroutineLeft uses a handle in every way and closes it in the middle of a claim.
func noGoroutineLeft(f *fixture) {
	keeper := f.h.Open(f, f.stream) // what a server starts for a stream stays while a handle is open
	if !f.h.OneOwner {
		f.publish(keeper, numbered(0, 3)...)
		f.nothingKept(keeper)
	}
	leak.Check(f, prompt, func() {
		for range 3 {
			b := f.h.Open(f, f.stream)
			f.publish(b, numbered(0, 3)...)
			d := f.claim(b, "a", 1)[0]
			for _, c := range calls(d) {
				_ = c.do(f.ctx(), b) // most find the lease gone; the calls count here, not their answers
			}
			ended := make(chan error)
			go func() {
				req := request("b", 100)
				for {
					req.Block = 10 * time.Second
					if _, err := b.Claim(f.ctx(), req); err != nil {
						ended <- err
						return
					}
				}
			}()
			time.Sleep(20 * time.Millisecond)
			b.Close()
			<-ended
		}
	})
	keeper.Close()
}

// nothingKept empties the stream.
func (f *fixture) nothingKept(b backend.Backend) {
	f.Helper()
	f.ack(b, f.claim(b, "a", 3)...)
}
