package redis_test

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/stall"
)

func TestMessageGoesRound(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	msg := backend.Message{Data: []byte("x\x00y"), Headers: map[string]string{"b": "2", "a": "1"}, Priority: backend.High, FairKey: "t"}
	if _, err := b.Append(t.Context(), []backend.Message{msg}); err != nil {
		t.Fatal(err)
	}
	got := claim(t, b, backend.ClaimRequest{Max: 10, MaxDeliveries: 3})
	if len(got.Deliveries) != 1 {
		t.Fatalf("claimed %d", len(got.Deliveries))
	}
	d := got.Deliveries[0]
	if string(d.Data) != "x\x00y" || d.Headers["a"] != "1" || d.Headers["weir-priority"] != "high" || d.Headers["weir-fair-key"] != "t" ||
		d.Attempt != 1 || time.Since(d.Enqueued) > time.Minute {
		t.Fatalf("%+v", d)
	}
	s, err := b.Stats(t.Context())
	if err != nil || s.Pending != 1 || s.Lag == nil || *s.Lag != 0 || s.OldestSource != backend.AgePending || s.Approx {
		t.Fatalf("%+v %v", s, err)
	}
	lost, err := b.Ack(t.Context(), []backend.Lease{d.Lease})
	if err != nil || len(lost) != 0 {
		t.Fatal(lost, err)
	}
	if s, err = b.Stats(t.Context()); err != nil || s.Pending != 0 || s.OldestSource != backend.AgeNone {
		t.Fatalf("%+v %v", s, err)
	}
}

func TestOrphanIsReclaimedAndBuriedAtTheLimit(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 1)
	const after = 20 * time.Millisecond
	for attempt := 1; attempt <= 3; attempt++ {
		var got backend.Claimed
		wait(t, "the message is delivered", func() bool {
			got = claim(t, b, backend.ClaimRequest{Max: 10, MaxDeliveries: 3, ReclaimAfter: after})
			return len(got.Deliveries) == 1
		})
		if d := got.Deliveries[0]; d.Attempt != attempt || got.Reclaimed != min(1, attempt-1) {
			t.Fatalf("attempt %d: %+v reclaimed %d", attempt, d, got.Reclaimed)
		}
	}
	var got backend.Claimed
	wait(t, "the message is buried", func() bool {
		got = claim(t, b, backend.ClaimRequest{Max: 10, MaxDeliveries: 3, ReclaimAfter: after})
		return len(got.Dead) == 1
	})
	letter := got.Dead[0]
	if len(got.Deliveries) != 0 || letter.Attempts != 3 || letter.Reason != backend.ReasonMaxDeliveries || string(letter.Data) != "m0" {
		t.Fatalf("%+v", got)
	}
	s, err := b.Stats(t.Context())
	if err != nil || s.Pending != 0 || s.DeadLetters == nil || *s.DeadLetters != 1 {
		t.Fatalf("%+v %v", s, err)
	}
}

func TestIdempotentAppendStoresOnce(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	msg := []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}}
	first, err := b.Append(t.Context(), msg)
	if err != nil || first[0].Deduped {
		t.Fatal(first, err)
	}
	second, err := b.Append(t.Context(), msg)
	if err != nil || !second[0].Deduped || second[0].ID != first[0].ID {
		t.Fatal(second, err)
	}
}

func TestBlockingClaimEndsWithItsContextOrTheFirstMessage(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	start, stalled := time.Now(), stall.Watch()
	claim(t, b, backend.ClaimRequest{Max: 1, Block: 50 * time.Millisecond})
	if took := time.Since(start); took < 40*time.Millisecond || took > time.Second+stalled() {
		t.Fatalf("an empty claim took %s", took)
	}
	done := make(chan backend.Claimed, 1)
	go func() {
		got, _ := b.Claim(background, backend.ClaimRequest{Consumer: "c", Max: 1, Block: 10 * time.Second, ReclaimAfter: time.Minute})
		done <- got
	}()
	publish(t, b, 1)
	if got := <-done; len(got.Deliveries) != 1 {
		t.Fatalf("%+v", got)
	}
}
