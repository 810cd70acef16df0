package shard_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
)

// Shards may be on several servers: what one of them refuses is of no use without its name.
func TestAnErrorNamesTheShard(t *testing.T) {
	b, fakes := inMemory(t, 3)
	var leases []backend.Lease
	keys := make([]backend.Message, 50)
	for i := range keys {
		keys[i] = backend.Message{Data: []byte("x"), IdempotencyKey: fmt.Sprint(i)}
	}
	if _, err := b.Append(t.Context(), keys); err != nil {
		t.Fatal(err)
	}
	for len(leases) < len(keys) {
		got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: len(keys), ReclaimAfter: 1 << 40})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got.Deliveries {
			leases = append(leases, d.Lease)
		}
	}
	refused := errors.New("refused")
	for _, op := range everything {
		fakes[1].Inject(op, backendtest.Fault{Err: refused})
	}
	for i := range keys {
		keys[i].IdempotencyKey += " again"
	}
	for what, call := range map[string]func() error{
		"append": func() error { _, err := b.Append(t.Context(), keys); return err },
		"one of an append": func() (err error) {
			stored, _ := b.Append(t.Context(), keys)
			for _, s := range stored {
				err = errors.Join(err, s.Err)
			}
			return err
		},
		"stats":          func() error { _, err := b.Stats(t.Context()); return err },
		"signal":         func() error { _, err := b.(backend.Signaler).Signal(t.Context(), 1); return err },
		"publish signal": func() error { return b.(backend.Signaler).PublishSignal(t.Context(), 1) },
		"ack":            func() error { _, err := b.Ack(t.Context(), leases); return err },
	} {
		if err := call(); !errors.Is(err, refused) || !strings.Contains(err.Error(), "jobs.1: ") || strings.Contains(err.Error(), "jobs.1: jobs.1: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The stream has one name, and so have its dead letters: who names those it has anyway finds them there.
func TestTheDeadLettersOfShardsHaveOneName(t *testing.T) {
	b, _ := inMemory(t, 2)
	info := b.Info()
	if info.Stream != "jobs" || info.DeadLetter != "jobs.dlq" {
		t.Errorf("%+v", info)
	}
	if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: 1, ReclaimAfter: 1 << 40})
	if err != nil || len(got.Deliveries) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := b.DeadLetter(t.Context(), got.Deliveries[0], "jobs.dlq", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"": 1, "jobs.dlq": 1, "others": 0} {
		if list, err := b.(backend.DeadLetters).List(t.Context(), name, "", 10); err != nil || len(list) != want {
			t.Errorf("in %q: %+v, %v", name, list, err)
		}
	}
}
