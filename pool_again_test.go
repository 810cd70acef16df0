package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/capture"
)

// A claim may return to a pool what it works on: its lease was lost, or taken by a claim
// whose answer is on its way. What the handler ends well is done, and nothing has two
// handlers at a time.
func TestPoolThatIsGivenItsOwnMessagesAgain(t *testing.T) {
	away := backendtest.Fault{Err: backend.ErrUnavailable}
	for name, c := range map[string]struct {
		faults    map[backendtest.Op]backendtest.Fault
		workers   int           // 10
		takes     time.Duration // a handler
		fails     bool          // it ends with its context's cause once that has ended
		runs      int           // of each of the first five messages
		unsettled uint64        // deliveries
	}{
		"the handlers end while the claim's answer is on its way": {
			faults: map[backendtest.Op]backendtest.Fault{backendtest.OpClaim: {Skip: 1, Times: 1, Repeat: true, Late: time.Second}},
			takes:  100 * time.Millisecond, runs: 1, unsettled: 5,
		},
		"the handlers run, and end well": {
			faults: map[backendtest.Op]backendtest.Fault{backendtest.OpClaim: {Skip: 1, Times: 1, Delay: 500 * time.Millisecond, Repeat: true}},
			takes:  time.Second, runs: 1,
		},
		"the handlers run while they come again and again, and end well": {
			faults: map[backendtest.Op]backendtest.Fault{backendtest.OpClaim: {Skip: 1, Times: 3, Delay: 200 * time.Millisecond, Repeat: true}},
			takes:  time.Second, runs: 1,
		},
		"the handlers run, and fail": {
			faults: map[backendtest.Op]backendtest.Fault{backendtest.OpClaim: {Skip: 1, Times: 1, Delay: 500 * time.Millisecond, Repeat: true}},
			takes:  time.Second, fails: true, runs: 2,
		},
		"the handlers outlast their leases, and end well": {
			faults:  map[backendtest.Op]backendtest.Fault{backendtest.OpExtend: away, backendtest.OpAck: away},
			workers: 5, takes: 3500 * time.Millisecond, runs: 1, unsettled: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 10)
				var heals []func()
				for op, fault := range c.faults {
					heals = append(heals, f.Inject(op, fault))
				}
				var mu sync.Mutex
				runs, atWork := map[string]int{}, map[string]bool{}
				p := startPool(t, f, func(ctx context.Context, d *Delivery) error {
					mu.Lock()
					if atWork[d.ID] {
						t.Errorf("message %s has two handlers", d.ID)
					}
					atWork[d.ID] = true
					runs[d.ID]++
					mu.Unlock()
					time.Sleep(c.takes)
					mu.Lock()
					defer mu.Unlock()
					atWork[d.ID] = false
					if c.fails {
						return context.Cause(ctx)
					}
					return nil
				}, PoolConfig{Workers: cmp.Or(c.workers, 10), Batch: 5, ReclaimAfter: 3 * time.Second, MaxDeliveries: 10})
				time.Sleep(10 * time.Second)
				for _, heal := range heals {
					heal()
				}
				time.Sleep(time.Minute)
				p.finish()
				for id, n := range runs {
					want := 1
					if len(id) == 1 && id <= "5" {
						want = c.runs
					}
					if n != want {
						t.Errorf("message %s was handled %d times, want %d", id, n, want)
					}
				}
				p.expect(PoolStats{Acked: 10, Unsettled: c.unsettled})
				if len(runs) != 10 || len(f.Acked()) != 10 {
					t.Errorf("%d handled, %d acked", len(runs), len(f.Acked()))
				}
			})
		})
	}
}

// What another worker gave back before a handler began was taken over from nobody.
func TestPoolTakesOverOnlyWhatWasBegun(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 10)
		got := claimAll(t, f)
		returns := make([]backend.Return, len(got))
		for i, d := range got {
			returns[i] = backend.Return{Lease: d.Lease, NotStarted: i < 7}
		}
		if _, err := f.Again().Nack(t.Context(), returns); err != nil {
			t.Fatal(err)
		}
		p := startPool(t, f, nothing, PoolConfig{Workers: 2})
		time.Sleep(time.Second)
		p.finish()
		if got := p.Stats(); got.Acked != 10 || got.Reclaimed != 3 {
			t.Errorf("%+v; want 3 taken over of 10", got)
		}
	})
}

// What a pool is given again while its handler has it is given back if the pool ends, and does
// not wait for a worker that never comes.
func TestAPoolThatEndsGivesBackWhatItWasGivenAgain(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		f.Inject(backendtest.OpClaim, backendtest.Fault{Skip: 1, Times: 1, Delay: 500 * time.Millisecond, Repeat: true})
		p := startPool(t, f, func(ctx context.Context, _ *Delivery) error {
			time.Sleep(3 * time.Second)
			return context.Cause(ctx)
		}, PoolConfig{Workers: 1})
		time.Sleep(2 * time.Second)
		p.finish()
		p.expect(PoolStats{Returned: 1})
		if got := claimAll(t, f); len(got) != 1 {
			t.Errorf("%d messages can be claimed, want 1", len(got))
		}
	})
}

// A message that comes again while its handler hangs is handled once that is given up.
func TestAMessageGivenAgainDoesNotWaitForAHandlerThatHangs(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		f.Inject(backendtest.OpClaim, backendtest.Fault{Skip: 1, Times: 1, Delay: 500 * time.Millisecond, Repeat: true})
		hangs := make(chan struct{})
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			if d.Attempt == 1 {
				<-hangs
			}
			return nil
		}, PoolConfig{Workers: 2})
		time.Sleep(10 * time.Second)
		p.expect(PoolStats{Acked: 1})
		close(hangs)
		p.finish()
	})
}

// An ack whose answer was lost is done if its lease is gone before it has run out. If it is
// gone later, somebody else has the message.
func TestAnAckThatMayHaveComeTooLateIsNotCounted(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1)
		heal := f.Inject(backendtest.OpAck, backendtest.Fault{Err: backend.ErrOutcomeUnknown})
		p := startPool(t, f, nothing, PoolConfig{Workers: 1})
		time.Sleep(31 * time.Second)
		if got := claimAll(t, f); len(got) != 1 {
			t.Fatalf("another worker was given %d messages", len(got))
		}
		heal()
		time.Sleep(10 * time.Second)
		p.finish()
		p.expect(PoolStats{Unsettled: 1})
	})
}

// What another worker was given while it waited here for a worker is not handled.
func TestAMessageThatIsLostWhileItWaitsIsNotHandled(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 2)
		var handled []string
		p := startPool(t, f, func(_ context.Context, d *Delivery) error {
			handled = append(handled, string(d.Data))
			time.Sleep(25 * time.Second)
			return nil
		}, PoolConfig{Workers: 1, ReclaimAfter: time.Minute})
		time.Sleep(5 * time.Second)
		thief := f.Again()
		thief.Inject(backendtest.OpClaim, backendtest.Fault{Repeat: true, Times: 1})
		got, err := thief.Claim(t.Context(), backend.ClaimRequest{Consumer: "thief", Max: 2, ReclaimAfter: time.Hour})
		if err != nil || len(got.Deliveries) != 2 {
			t.Fatal(got, err)
		}
		time.Sleep(time.Minute)
		p.finish()
		if len(handled) != 1 {
			t.Errorf("handled %q, want one", handled)
		}
	})
}

// forgetful is a backend that hands out again what it has forgotten that it handed out, as a
// server does that restarts without its leases.
type forgetful struct{ *backendtest.Fake }

func (f forgetful) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	got, err := f.Fake.Claim(ctx, req)
	for _, d := range got.Deliveries {
		d.Attempt = 1
	}
	got.Reclaimed = 0
	return got, err
}

// A server that restarts may forget that it handed out a message, whose handler still runs, or
// whose ack it has not answered. To the pool that is nothing new.
func TestAServerThatForgetsItsLeasesHandsOutNothingTwice(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // a handler
		acks  backendtest.Fault
		away  time.Duration // how much longer than a claim waits no claim is answered
	}{
		"the ack is repeated under a lease that is gone": {acks: backendtest.Fault{Err: backend.ErrOutcomeUnknown, Times: 1}},
		"the ack is refused":                             {acks: backendtest.Fault{Err: errors.New("no"), Times: 1}},
		"the handler still runs":                         {takes: 10 * time.Second},
		"the ack was in doubt before the claim":          {takes: 10 * time.Second, acks: backendtest.Fault{Err: backend.ErrOutcomeUnknown, Times: 1}, away: 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 1)
				f.Inject(backendtest.OpAck, c.acks)
				var mu sync.Mutex
				runs, atWork := 0, map[string]bool{}
				p, err := NewPool(New(forgetful{f}), func(_ context.Context, d *Delivery) error {
					mu.Lock()
					if runs++; atWork[d.ID] {
						t.Errorf("message %s has two handlers", d.ID)
					}
					atWork[d.ID] = true
					mu.Unlock()
					time.Sleep(c.takes)
					mu.Lock()
					defer mu.Unlock()
					atWork[d.ID] = false
					return nil
				}, quiet(PoolConfig{Workers: 2}))
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- p.Run(ctx) }()
				time.Sleep(10 * time.Millisecond) // the first ack has been sent

				away := f.Inject(backendtest.OpClaim, backendtest.Fault{Err: backend.ErrUnavailable})
				time.Sleep(c.takes / 2) // the claim that waits has ended, and the next has failed
				before := f.Again()
				before.Inject(backendtest.OpClaim, backendtest.Fault{Repeat: true})
				got, err := before.Claim(ctx, backend.ClaimRequest{Consumer: "of before", Max: 1, ReclaimAfter: time.Minute})
				if err != nil || len(got.Deliveries) != 1 {
					t.Fatal(got, err)
				}
				if _, err := before.Nack(ctx, []backend.Return{{Lease: got.Deliveries[0].Lease, NotStarted: true}}); err != nil {
					t.Fatal(err)
				}
				publish(t, f, 1) // wakes the claim that waits
				time.Sleep(5*time.Second + c.away)
				away()
				time.Sleep(time.Minute)
				end()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if acked := len(f.Acked()); runs != 2 || acked != 2 {
					t.Errorf("2 messages: %d runs of handlers, %d acked", runs, acked)
				}
			})
		})
	}
}

// assisted is a backend of which a group is made again by a claim that does not wait, if there is one.
type assisted struct {
	*backendtest.Fake
	told atomic.Bool
}

func (a *assisted) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if req.Block == 0 && !a.told.Swap(true) {
		return backend.Claimed{}, fmt.Errorf("created again: %w: %w", backend.ErrUnavailable, backend.ErrGroupNotFound)
	}
	return a.Fake.Claim(ctx, req)
}

// A group that is made again is told to one claim. Whichever that is, the pool's log has it.
func TestAGroupMadeAgainIsLoggedByWhicheverClaimMadeIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := backendtest.NewFake(backendtest.FakeOptions{})
		publish(t, f, 1000)
		a, logs := &assisted{Fake: f}, &capture.Buffer{}
		p, err := NewPool(New(a), func(context.Context, *Delivery) error {
			time.Sleep(time.Millisecond)
			return nil
		}, PoolConfig{Logger: slog.New(slog.NewTextHandler(logs, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Minute)
		end()
		if err := <-done; err != nil || !a.told.Load() || p.Stats().Acked != 1000 {
			t.Fatalf("%v, told %v: %+v", err, a.told.Load(), p.Stats())
		}
		if n := strings.Count(logs.String(), "created again"); n != 1 {
			t.Errorf("said %d times:\n%s", n, logs)
		}
	})
}

// What somebody else has is left to him: a handler that fails without its lease, and a message that waits without one, are
// neither given back nor buried.
func TestWhatAnotherWorkerHasIsNotGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		ended bool // before its handler could begin
	}{
		"the handler fails":       {err: errors.New("no")},
		"the handler says poison": {err: Poison(errors.New("no"))},
		"no handler has begun":    {ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				f := backendtest.NewFake(backendtest.FakeOptions{})
				publish(t, f, 2)
				p := startPool(t, f, func(ctx context.Context, d *Delivery) error {
					<-ctx.Done() // the lease is lost
					if c.ended && string(d.Data) == "0" {
						time.Sleep(time.Second)
					}
					return c.err
				}, PoolConfig{Workers: 1, ReclaimAfter: 30 * time.Second})
				time.Sleep(time.Second)
				thief := f.Again()
				thief.Inject(backendtest.OpClaim, backendtest.Fault{Repeat: true, Times: 1})
				got, err := thief.Claim(t.Context(), backend.ClaimRequest{Consumer: "thief", Max: 2, ReclaimAfter: time.Hour})
				if err != nil || len(got.Deliveries) != 2 {
					t.Fatal(got, err)
				}
				if c.ended {
					time.Sleep(9500 * time.Millisecond) // the heartbeat has found out
				} else {
					time.Sleep(time.Minute)
				}
				p.finish()
				if n := f.Calls(backendtest.OpNack) + f.Calls(backendtest.OpDeadLetter); n > 0 {
					t.Errorf("%d calls for messages of another worker", n)
				}
				if lost, err := thief.Ack(t.Context(), []backend.Lease{got.Deliveries[0].Lease, got.Deliveries[1].Lease}); err != nil || len(lost) > 0 {
					t.Errorf("lost %v, %v", lost, err)
				}
			})
		})
	}
}

// names notes which messages extends were about.
type names struct {
	*backendtest.Fake
	extended func(id string)
}

func (n names) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	for i := range leases {
		n.extended(leases[i].ID)
	}
	return n.Fake.Extend(ctx, leases, d)
}

// There are more leases than one call extends, and it takes its time: what is done meanwhile is not in the next one.
func TestAHeartbeatNamesNothingThatIsDone(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		const messages = 2 * maxSettle
		f := backendtest.NewFake(backendtest.FakeOptions{})
		f.Inject(backendtest.OpExtend, backendtest.Fault{Delay: 2 * time.Second})
		publish(t, f, messages)
		var mu sync.Mutex
		done := map[string]bool{}
		extends, wrong := 0, 0
		p, err := NewPool(New(names{f, func(id string) {
			mu.Lock()
			defer mu.Unlock()
			if extends++; id == "" || done[id] {
				wrong++
			}
		}}), func(_ context.Context, d *Delivery) error {
			time.Sleep(11 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			done[d.ID] = true
			return nil
		}, quiet(PoolConfig{Workers: messages, Batch: 1000, ReclaimAfter: 30 * time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
		defer end()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if extends < maxSettle || wrong > 0 {
			t.Errorf("%d extends, %d of messages that were done", extends, wrong)
		}
	})
}
