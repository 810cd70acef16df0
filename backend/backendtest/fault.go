package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// Op is a call that a fault can be injected into.
type Op string

// The calls of a Fake.
const (
	OpAppend        Op = "append"
	OpClaim         Op = "claim"
	OpExtend        Op = "extend"
	OpAck           Op = "ack"
	OpNack          Op = "nack"
	OpDeadLetter    Op = "dead_letter"
	OpStats         Op = "stats"
	OpSignal        Op = "signal"
	OpPublishSignal Op = "publish_signal"
	OpRead          Op = "read"
	OpList          Op = "list"
	OpRedrive       Op = "redrive"
	OpPurge         Op = "purge"
	OpTrim          Op = "trim"
	OpPause         Op = "pause"
)

// Fault is what goes wrong in a call. Its parts happen in the order of the fields. If
// the context ends while a call waits, the call ends.
type Fault struct {
	// Skip is how many calls are left alone first; Times is how many are hit after
	// that, 0: all.
	Skip, Times int

	// Delay is how long to wait before doing anything.
	Delay time.Duration
	// Err makes the call do nothing and return it: a FullError, ErrUnavailable …
	Err error
	// Stored, with Err, lets an append store that many of its first messages: the
	// results say which, and Err is the error of the others.
	Stored int
	// Repeat, for a claim, makes every held message an orphan, as if ReclaimAfter had
	// passed: the holder continues and another has the message too.
	Repeat bool
	// Late is how long to wait before answering once everything is done.
	Late time.Duration
	// LoseAnswer does what was asked and returns ErrOutcomeUnknown.
	LoseAnswer bool
	// Hang waits until the context ends or the fault is removed: before anything is done, or after it with
	// LoseAnswer.
	Hang bool
}

// Full returns a fault's Err for a server that has no room.
func Full(reason string, retryAfter time.Duration) error {
	return &backend.FullError{Reason: reason, RetryAfter: retryAfter, Err: errors.New("fake: no room")}
}

// injected is a fault that has been injected.
type injected struct {
	Fault
	removed chan struct{} // closed by its removal; ends a hang
}

// Inject injects a fault into the calls of op on this handle, ahead of earlier ones: the newest
// one that has calls left is used. remove removes it and releases calls that hang; it may be
// called twice.
func (f *Fake) Inject(op Op, fault Fault) (remove func()) {
	in := &injected{Fault: fault, removed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[op] = append(f.faults[op], in)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, other := range f.faults[op] {
			if other == in {
				f.faults[op] = append(f.faults[op][:i:i], f.faults[op][i+1:]...)
				close(in.removed)
				return
			}
		}
	}
}

// Calls returns how often op was called on this handle.
func (f *Fake) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// Active returns how many calls of op are in progress on this handle.
func (f *Fake) Active(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active[op]
}

// hit counts a call and returns the fault that hits it, if any.
func (f *Fake) hit(op Op) *injected {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	f.active[op]++
	list := f.faults[op]
	for i := len(list) - 1; i >= 0; i-- {
		in := list[i]
		switch {
		case in.Skip > 0:
			in.Skip--
		case in.Times == 0:
			return in
		case in.Times > 0:
			if in.Times--; in.Times == 0 {
				in.Times = -1 // used up; 0 would mean all
			}
			return in
		}
	}
	return nil
}

// call runs do under the fault of this call; do sees the fault for what only its
// call can do with it.
func (f *Fake) call(ctx context.Context, op Op, do func(*injected) error) error {
	in := f.hit(op)
	defer f.done(op)
	if in == nil {
		in = &injected{}
	}
	if err := f.wait(ctx, in.Delay, in.Hang && !in.LoseAnswer, in.removed); err != nil {
		return err
	}
	if in.Err != nil && in.Stored == 0 {
		return in.Err
	}
	err := do(in)
	if err == nil && in.Late > 0 { // else a context that has just ended does not take back what is done
		err = f.wait(ctx, in.Late, false, in.removed)
	}
	if err != nil || !in.LoseAnswer {
		return err
	}
	err = f.wait(ctx, 0, in.Hang, in.removed)
	return errors.Join(fmt.Errorf("fake: answer lost: %w", backend.ErrOutcomeUnknown), err)
}

func (f *Fake) done(op Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.active[op]--
}

// wait ends after d, and with hang only when the fault is removed; a context or
// Close ends both.
func (f *Fake) wait(ctx context.Context, d time.Duration, hang bool, removed <-chan struct{}) error {
	if err := f.ended(ctx); err != nil {
		return err
	}
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-f.closed:
			return backend.ErrClosed
		}
	}
	if !hang {
		return nil
	}
	select {
	case <-removed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-f.closed:
		return backend.ErrClosed
	}
}

func (f *Fake) ended(ctx context.Context) error {
	select {
	case <-f.closed:
		return backend.ErrClosed
	default:
		return ctx.Err()
	}
}
