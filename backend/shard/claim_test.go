package shard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// A shard that says nothing costs an idle pool one claim: from then on it is left alone, and what comes to the other is taken.
func TestAClaimThatHadNoAnswerIsNotRepeatedThere(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 2)
		for _, op := range everything {
			fakes[1].Inject(op, backendtest.Fault{Hang: true})
		}
		claim := func() (backend.Claimed, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return b.Claim(ctx, backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute})
		}
		_, _ = claim()
		_, _ = claim() // one of them began with the other shard, and had its answer
		if _, err := fakes[0].Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			began := time.Now()
			if got, err := claim(); err != nil || got.Failed == nil || time.Since(began) > time.Second {
				t.Errorf("after %s: %+v, %v", time.Since(began), got, err)
			}
		}
	})
}

// deaf is a shard whose answer is on its way when it is told that the claim has enough.
type deaf struct{ *backendtest.Fake }

func (d deaf) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	time.Sleep(req.Block)
	req.Block, req.Enough = 0, nil
	return d.Fake.Claim(ctx, req)
}

// What all shards hand out at the same moment is more than a claim wanted. The rest goes back at once, as if it had never been
// handed out, and what is reclaimed goes before what is new.
func TestAClaimGivesBackWhatIsTooMuch(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var fakes [3]*backendtest.Fake
		b := over(t, len(fakes), func(number int, f *backendtest.Fake) backend.Backend {
			fakes[number] = f
			return deaf{f}
		})
		put := func(number int) {
			t.Helper()
			if _, err := fakes[number].Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
				t.Fatal(err)
			}
		}
		put(0)
		if got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "gone", Max: 1, ReclaimAfter: time.Second}); err != nil || len(got.Deliveries) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		time.AfterFunc(time.Millisecond, func() { put(1); put(2) })
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: 2 * time.Second, ReclaimAfter: time.Minute})
		if err != nil || len(got.Deliveries) != 1 || got.Reclaimed != 1 || got.Deliveries[0].Attempt != 2 {
			t.Fatalf("%d deliveries, %d of them reclaimed, %v", len(got.Deliveries), got.Reclaimed, err)
		}
		rest, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute})
		if err != nil || len(rest.Deliveries) != 2 {
			t.Fatalf("%d deliveries were given back, %v", len(rest.Deliveries), err)
		}
		for _, d := range rest.Deliveries {
			if d.Attempt != 1 || d.ID == got.Deliveries[0].ID {
				t.Errorf("%s comes with attempt %d", d.ID, d.Attempt)
			}
		}
	})
}

// waits is a shard whose claims that wait go as they are told, and that notes which were cut off.
type waits struct {
	*backendtest.Fake
	err error
	cut bool
}

func (w *waits) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if req.Block > 0 && w.err != nil {
		return backend.Claimed{}, w.err
	}
	got, err := w.Fake.Claim(ctx, req)
	w.cut = w.cut || ctx.Err() != nil
	return got, err
}

func twoThatWait(t *testing.T, of [2]*waits) backend.Backend {
	t.Helper()
	return over(t, len(of), func(number int, f *backendtest.Fake) backend.Backend {
		of[number].Fake = f
		return of[number]
	})
}

// A shard that fails while a claim waits at it is told as one that fails at once.
func TestAClaimTellsOfWhatFailsWhileItWaits(t *testing.T) {
	for broken := 1; broken <= 2; broken++ {
		bubble.Run(t, func(t *testing.T) {
			var of [2]*waits
			for i := range of {
				if of[i] = new(waits); i < broken {
					of[i].err = backend.ErrUnavailable
				}
			}
			b := twoThatWait(t, of)
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, Block: time.Second, ReclaimAfter: time.Minute})
			if failed := got.Failed; broken == 1 && (err != nil || !errors.Is(failed, backend.ErrUnavailable)) || broken == 2 && !errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("%d of 2 fail: failed %v, %v", broken, failed, err)
			}
		})
	}
}

// A claim that has something is waited for nowhere, and cut off nowhere: what is on its way then would be nobody's.
func TestAClaimThatHasEnoughCutsNothingOff(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		of := [2]*waits{{}, {}}
		b := twoThatWait(t, of)
		time.AfterFunc(time.Second, func() {
			if _, err := of[0].Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 2, Block: time.Minute, ReclaimAfter: time.Hour})
		if err != nil || len(got.Deliveries) != 1 || got.Failed != nil || time.Since(began) != time.Second || of[1].cut {
			t.Errorf("%d deliveries after %s, failed %v, %v, cut off %v", len(got.Deliveries), time.Since(began), got.Failed, err, of[1].cut)
		}
	})
}

// A shard that fails for a moment costs no message that is done; while it stays away an ack says neither that it is done nor
// that it is lost.
func TestAnAckIsRepeatedWhereAShardFailsForAMoment(t *testing.T) {
	for _, op := range []backendtest.Op{backendtest.OpAck, backendtest.OpNack} {
		for fault, ok := range map[backendtest.Fault]bool{
			{Err: backend.ErrUnavailable, Times: 2}: true,
			{Err: backend.ErrUnavailable}:           false,
			{Hang: true}:                            false,
		} {
			bubble.Run(t, func(t *testing.T) {
				b, fakes := inMemory(t, 2)
				var leases []backend.Lease
				for _, f := range fakes {
					if _, err := f.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
						t.Fatal(err)
					}
				}
				got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 2, ReclaimAfter: time.Hour})
				if err != nil || len(got.Deliveries) != 2 {
					t.Fatal(err)
				}
				var returns []backend.Return
				for _, d := range got.Deliveries {
					leases, returns = append(leases, d.Lease), append(returns, backend.Return{Lease: d.Lease})
				}
				fakes[1].Inject(op, fault)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				call := func() ([]string, error) { return b.Ack(ctx, leases) }
				if op == backendtest.OpNack {
					call = func() ([]string, error) { return b.Nack(ctx, returns) }
				}
				if lost, err := call(); len(lost) > 0 || (err == nil) != ok {
					t.Errorf("%s, %+v: lost %v, %v", op, fault, lost, err)
				}
			})
		}
	}
}
