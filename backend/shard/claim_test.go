package shard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/backend/shard"
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
		b, err := shard.Open(t.Context(), shard.Options{Name: "jobs", Shards: 3, Open: func(_ context.Context, number int) (backend.Backend, error) {
			f := backendtest.NewFake(backendtest.FakeOptions{Stream: fmt.Sprint("jobs.", number)})
			fakes[number] = f
			return deaf{f}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
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
