package shard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/tests/bubble"
)

// odd is a shard that answers as it is told.
type odd struct {
	*backendtest.Fake
	appends int
	got     backend.Claimed // by the first claim; nothing is there for others
}

func (o *odd) Append(context.Context, []backend.Message) ([]backend.Appended, error) {
	o.appends++
	return nil, errors.Join(backend.ErrUnavailable, backend.ErrOutcomeUnknown)
}

func (o *odd) Claim(ctx context.Context, req backend.ClaimRequest) (got backend.Claimed, _ error) {
	if got, o.got = o.got, got; len(got.Dead)+len(got.Lost) == 0 {
		select {
		case <-time.After(req.Block):
		case <-req.Enough:
		case <-ctx.Done():
		}
	}
	return got, nil
}

// of opens a stream of shards.
func of(t *testing.T, shards ...*odd) backend.Backend {
	t.Helper()
	return over(t, len(shards), func(number int, f *backendtest.Fake) backend.Backend {
		shards[number].Fake = f
		return shards[number]
	})
}

// An error without results is about all messages: what may be stored is sent to no other shard.
func TestAnAppendOfUnknownOutcomeIsMadeOnce(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		for range 10 { // each shard may be the first
			one, other := &odd{}, &odd{}
			b := of(t, one, other)
			if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); !errors.Is(err, backend.ErrOutcomeUnknown) || one.appends+other.appends != 1 {
				t.Errorf("%d appends: %v", one.appends+other.appends, err)
			}
		}
	})
}

// What a claim has moved, or lost, is told at once and not when it has waited.
func TestAClaimThatHasOnlyDeadOrLostMessagesTellsThem(t *testing.T) {
	for want, got := range map[string]backend.Claimed{
		"0:7": {Dead: []backend.DeadLetter{{ID: "7", OriginID: "7"}}},
		"0:8": {Lost: []string{"8"}},
	} {
		bubble.Run(t, func(t *testing.T) {
			b := of(t, &odd{got: got}, &odd{})
			began := time.Now()
			told, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, Block: time.Minute, ReclaimAfter: time.Minute})
			ids := told.Lost
			for _, d := range told.Dead {
				ids = append(ids, d.ID)
			}
			if err != nil || !slices.Equal(ids, []string{want}) || time.Since(began) > time.Second {
				t.Errorf("after %s: %+v, %v", time.Since(began), told, err)
			}
		})
	}
}

// A pool learns that a shard is away also from a claim that has not asked it.
func TestAClaimSaysThatAShardIsAway(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		b, fakes := inMemory(t, 2)
		if _, err := b.Append(t.Context(), make([]backend.Message, 4)); err != nil {
			t.Fatal(err)
		}
		for _, op := range everything {
			fakes[1].Inject(op, backendtest.Fault{Err: backend.ErrUnavailable})
		}
		if _, err := b.Stats(t.Context()); err == nil {
			t.Error("the statistics of all are there without one")
		}
		_, _ = b.(backend.Signaler).Signal(t.Context(), 1) // which notes it
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: time.Minute})
		if err != nil || !errors.Is(got.Failed, backend.ErrUnavailable) {
			t.Errorf("%v, %v", got.Failed, err)
		}
	})
}
