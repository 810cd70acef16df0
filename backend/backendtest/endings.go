package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) contextCases() []testCase {
	return []testCase{
		{"no call begins with a context that has ended", endedContext},
		{"close ends a waiting claim, and only of its handle", closeEndsClaim},
		{"every call of a closed handle says so", closedHandle},
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
	return append(list, optionalCalls()...)
}

// optionalCalls are those that not every backend has; one without it ends as is wished.
func optionalCalls() []call {
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
		if took := time.Since(start); err == nil || took > prompt {
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
	req := request("a", 1)
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
	if took := time.Since(<-closed); err == nil || took > prompt {
		f.Errorf("a waiting claim ended %s after the close with %v", took, err)
	}
	f.publish(other, text("x")...)
	f.ack(other, f.claim(other, "b", 1)...)
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
	if pending := f.stats(other).Pending; pending != 1 {
		f.Errorf("one message is held, pending is %d", pending)
	}
}

// noGoroutineLeft uses a handle in every way and closes it in the middle of a claim.
func noGoroutineLeft(f *fixture) {
	keeper := f.h.Open(f, f.stream) // what a server starts for a stream stays while a handle is open
	f.publish(keeper, numbered(0, 3)...)
	f.nothingKept(keeper)
	before := stacks()
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
	deadline := time.Now().Add(5 * time.Second)
	for {
		left := map[string]string{}
		for id, stack := range stacks() {
			if _, old := before[id]; !old && strings.Contains(stack, "weirmq/weir/") || !old && strings.Contains(stack, "redis/go-redis") {
				left[id] = stack
			}
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			for _, stack := range left {
				f.Errorf("left behind by a closed handle:\n%s", stack)
			}
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	keeper.Close()
}

// nothingKept empties the stream.
func (f *fixture) nothingKept(b backend.Backend) {
	f.Helper()
	f.ack(b, f.claim(b, "a", 3)...)
}

// stacks returns the stacks of all goroutines but this one, by their numbers.
func stacks() map[string]string {
	buf := make([]byte, 8<<20)
	buf = buf[:runtime.Stack(buf, true)]
	all := map[string]string{}
	for i, stack := range bytes.Split(buf, []byte("\n\n")) {
		var id int
		if _, err := fmt.Sscanf(string(stack), "goroutine %d ", &id); err == nil && i > 0 {
			all[fmt.Sprint(id)] = string(stack)
		}
	}
	return all
}
