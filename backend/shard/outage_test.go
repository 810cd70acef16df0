package shard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/shard"
	"github.com/weirmq/weir/tests/bubble"
)

var everything = []backendtest.Op{
	backendtest.OpAppend, backendtest.OpClaim, backendtest.OpExtend, backendtest.OpAck, backendtest.OpNack, backendtest.OpDeadLetter,
	backendtest.OpStats, backendtest.OpSignal, backendtest.OpPublishSignal,
}

// One of three shards goes away for five minutes, while handlers that take longer than a
// lease run. What is on the others goes on as if nothing were the matter: no handler is
// stopped, everything published is handled, and publishing goes on. When the shard is
// back, so is what it held.
func TestTheOthersGoOnWhileAShardIsAway(t *testing.T) {
	t.Run("it refuses", func(t *testing.T) { oneIsAway(t, backendtest.Fault{Err: backend.ErrUnavailable}) })
	t.Run("it says nothing", func(t *testing.T) { oneIsAway(t, backendtest.Fault{Hang: true}) })
}

func oneIsAway(t *testing.T, fault backendtest.Fault) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 3)
		s := weir.New(b)
		defer s.Close()
		var begun, done, stopped atomic.Int64
		pool, err := weir.NewPool(s, func(ctx context.Context, d *weir.Delivery) error {
			begun.Add(1)
			select {
			case <-time.After(45 * time.Second):
			case <-ctx.Done():
				if !strings.HasPrefix(d.ID, "1:") {
					stopped.Add(1)
				}
				return ctx.Err()
			}
			done.Add(1)
			return nil
		}, weir.PoolConfig{Workers: 30, ReclaimAfter: 30 * time.Second, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		publish := func(n int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range n {
				if _, err := b.Append(ctx, []weir.Message{{Data: []byte("x")}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		publish(30)
		time.Sleep(10 * time.Second) // all are running
		var back []func()
		for _, op := range everything {
			back = append(back, fakes[1].Inject(op, fault))
		}
		time.Sleep(40 * time.Second)
		before := begun.Load()
		publish(100)
		time.Sleep(4 * time.Minute)
		if n := begun.Load() - before; n < 100 {
			t.Errorf("%d of 100 messages were begun in four minutes", n)
		}
		for _, heal := range back {
			heal()
		}
		time.Sleep(4 * time.Minute)
		if n := stopped.Load(); n > 0 {
			t.Errorf("%d handlers of messages of other shards were stopped", n)
		}
		stats, err := b.Stats(t.Context())
		if err != nil || stats.Pending != 0 || *stats.Lag != 0 {
			t.Errorf("left: %+v, %v", stats, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// away opens a stream of two shards; lose makes calls of the second one suffer a fault.
func away(t *testing.T, fault backendtest.Fault, ops []backendtest.Op) (b backend.Backend, lose func()) {
	t.Helper()
	b, fakes := inMemory(t, 2)
	return b, func() {
		for _, op := range ops {
			fakes[1].Inject(op, fault)
		}
	}
}

// A shard that takes no notice of calls is left out, though nobody waits as long as a
// server may take: who gives up after a second has waited for nothing once or twice.
func TestPublishingLeavesOutAShardThatSaysNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, lose := away(t, backendtest.Fault{Hang: true}, everything)
		lose()
		failed := 0
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := b.Append(ctx, []backend.Message{{Data: []byte("x")}}); err != nil {
				failed++
			}
			cancel()
		}
		if failed > 1 {
			t.Errorf("%d of 200 messages were not stored", failed)
		}
	})
}

// Acks and extends that wait for a shard in vain, no longer than a pool lets them, hold up
// those of the other shards once.
func TestSettlingGoesOnBesideAShardThatSaysNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, lose := away(t, backendtest.Fault{Hang: true}, everything)
		for range 40 {
			if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
				t.Fatal(err)
			}
		}
		const reclaim = 6 * time.Second
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 40, ReclaimAfter: reclaim})
		if err != nil || len(got.Deliveries) != 40 {
			t.Fatalf("claimed %d, %v", len(got.Deliveries), err)
		}
		var leases []backend.Lease
		here := 0
		for _, d := range got.Deliveries {
			leases = append(leases, d.Lease)
			if strings.HasPrefix(d.ID, "0:") {
				here++
			}
		}
		lose()
		settle := func(what string, call func(ctx context.Context) ([]string, error)) (lost []string) {
			for try := 1; ; try++ {
				ctx, cancel := context.WithTimeout(t.Context(), reclaim/3)
				lost, err := call(ctx)
				cancel()
				if err == nil {
					return lost
				}
				if try == 2 {
					t.Fatalf("%s: %v", what, err)
				}
			}
		}
		settle("extend", func(ctx context.Context) ([]string, error) { return b.Extend(ctx, leases, reclaim) })
		lost := settle("ack", func(ctx context.Context) ([]string, error) { return b.Ack(ctx, leases) })
		if len(lost) != len(leases)-here {
			t.Errorf("%d of %d were lost, %d are held by the shard that is there", len(lost), len(leases), here)
		}
	})
}

// What is held of a shard that is away, or takes no extends, is given up before its lease can
// have run out, however long the calls take that tell so.
func TestALeaseOfAShardThatIsAwayIsGivenUpInTime(t *testing.T) {
	for _, takes := range []time.Duration{0, time.Second, 5 * time.Second, 9 * time.Second} {
		for _, ops := range [][]backendtest.Op{everything, {backendtest.OpExtend}} {
			bubble.Run(t, func(t *testing.T) { givenUpInTime(t, takes, ops) })
		}
	}
}

func givenUpInTime(t *testing.T, takes time.Duration, ops []backendtest.Op) {
	b, lose := away(t, backendtest.Fault{Delay: takes, Err: backend.ErrUnavailable}, ops)
	for range 20 {
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	const lease = 30 * time.Second
	began := time.Now()
	got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 20, ReclaimAfter: lease})
	if err != nil {
		t.Fatal(err)
	}
	var leases []backend.Lease
	for _, d := range got.Deliveries {
		if strings.HasPrefix(d.ID, "1:") {
			leases = append(leases, d.Lease)
		}
	}
	lose()
	for n := time.Duration(1); n < 10; n++ { // as a pool does, when a third of the lease is over
		time.Sleep(time.Until(began.Add(n * lease / 3)))
		at := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), lease/3)
		lost, err := b.Extend(ctx, leases, lease)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(lost) > 0 {
			break
		}
		for i := range leases {
			leases[i].Since = at
		}
	}
	if held := time.Since(began); held >= lease {
		t.Errorf("if %v takes %s and fails, a lease of %s is given up after %s", ops, takes, lease, held)
	}
}

// What a claim has got from one shard does not wait for another one that says nothing until its
// leases are over.
func TestAClaimDoesNotKeepWhatItHasForAShardThatSaysNothing(t *testing.T) {
	for earlier := range 2 { // a claim begins with one shard or the other
		bubble.Run(t, func(t *testing.T) {
			b, lose := away(t, backendtest.Fault{Hang: true}, everything)
			for range 20 {
				if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
					t.Fatal(err)
				}
			}
			const lease = 10 * time.Second
			req := backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: lease}
			for range earlier {
				if _, err := b.Claim(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			lose()
			ctx, cancel := context.WithTimeout(t.Context(), 2*lease)
			defer cancel()
			req.Max = 100
			got, err := b.Claim(ctx, req)
			if err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			for _, d := range got.Deliveries {
				if left := time.Until(d.Since.Add(lease)); left < lease/2 {
					t.Fatalf("%s comes with a lease of which %s are left", d.ID, left)
				}
			}
		})
	}
}

// last answers a claim just before the context of that ends.
type last struct {
	backend.Backend
	end context.CancelFunc
}

func (l *last) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	defer l.end()
	return l.Backend.Claim(ctx, req)
}

// A claim whose context ends while the shards are asked one after the other does not say
// that there is nothing.
func TestAClaimThatEndsBetweenTwoShardsSaysSo(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: 3, Open: func(_ context.Context, number int) (backend.Backend, error) {
			return &last{backendtest.NewFake(backendtest.FakeOptions{Stream: fmt.Sprintf("jobs.%d", number)}), cancel}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		got, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "w", Max: 1, Block: 15 * time.Second, ReclaimAfter: time.Minute})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A waiting claim that has got something does not keep it for a shard that takes no notice.
func TestAWaitingClaimDoesNotKeepWhatItHasForAShardThatSaysNothing(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 2)
		defer fakes[1].Inject(backendtest.OpClaim, backendtest.Fault{Skip: 1, Hang: true})()
		time.AfterFunc(time.Second, func() {
			if _, err := fakes[0].Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
				t.Error(err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		got, err := b.Claim(ctx, backend.ClaimRequest{Consumer: "w", Max: 10, Block: 20 * time.Second, ReclaimAfter: 30 * time.Second})
		if err != nil || len(got.Deliveries) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("a message that came after a second was given out after %s", took)
		}
	})
}

// As long as a shard is away every claim says so, also those that do not ask it any more.
func TestEveryClaimSaysThatAShardIsAway(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 2)
		for _, op := range everything {
			fakes[1].Inject(op, backendtest.Fault{Err: backend.ErrUnavailable})
		}
		for n := range 3 {
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 10, ReclaimAfter: time.Minute})
			if err != nil || !errors.Is(got.Failed, backend.ErrUnavailable) {
				t.Errorf("claim %d: %+v, %v", n, got, err)
			}
			time.Sleep(time.Second)
		}
	})
}

// A claim that is full before it comes to a shard says what that one said last, and which it is.
func TestEveryClaimSaysThatAShardRefuses(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 2)
		if _, err := fakes[0].Append(t.Context(), make([]backend.Message, 10)); err != nil {
			t.Fatal(err)
		}
		refusal := errors.New("no such thing")
		mend := fakes[1].Inject(backendtest.OpClaim, backendtest.Fault{Err: refusal})
		said := 0
		claim := func() error {
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: time.Minute})
			if err != nil || len(got.Deliveries) != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			return got.Failed
		}
		for n := range 6 {
			switch err := claim(); {
			case errors.Is(err, refusal) && strings.Contains(err.Error(), fakes[1].Info().Stream+": "):
				said++
			case said > 0 || err != nil:
				t.Errorf("claim %d: %v", n, err)
			}
		}
		if said == 0 {
			t.Error("no claim says it")
		}
		mend()
		for range 2 { // one of them asks it
			_ = claim()
		}
		if err := claim(); err != nil {
			t.Errorf("after it has answered: %v", err)
		}
	})
}

// A lease that was extended is as good as new, though its shard was away before: if that goes
// away again its time counts from the last extension.
func TestAShardThatComesAndGoesCostsNoLease(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 2)
		if _, err := fakes[1].Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		const lasts = 30 * time.Second
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "w", Max: 1, ReclaimAfter: lasts})
		if err != nil || len(got.Deliveries) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		lease := got.Deliveries[0].Lease
		extend := func() {
			t.Helper()
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), lasts/3)
			defer cancel()
			if lost, err := b.Extend(ctx, []backend.Lease{lease}, lasts); err != nil || len(lost) > 0 {
				t.Fatalf("lost %v, %v", lost, err)
			}
			lease.Since = began
		}
		for range 3 {
			var heals []func()
			for _, op := range everything {
				heals = append(heals, fakes[1].Inject(op, backendtest.Fault{Err: backend.ErrUnavailable}))
			}
			time.Sleep(lasts / 3)
			extend()
			for _, heal := range heals {
				heal()
			}
			time.Sleep(2 * time.Second)
			extend()
		}
	})
}
