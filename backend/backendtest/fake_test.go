package backendtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/bubble"
)

func probe(consumer string) backend.ClaimRequest {
	return backend.ClaimRequest{Consumer: consumer, Max: 10, ReclaimAfter: time.Second}
}

func stored(t *testing.T, f *Fake) string {
	t.Helper()
	got, err := f.Append(context.Background(), []backend.Message{{Data: []byte("x")}})
	if err != nil {
		t.Fatal(err)
	}
	return got[0].ID
}

func TestFaultDelaysACallByItsTime(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := NewFake(FakeOptions{})
		f.Inject(OpAppend, Fault{Delay: time.Minute, Times: 1})
		start := time.Now()
		stored(t, f)
		stored(t, f)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("two appends, the first delayed by a minute, took %s", took)
		}
	})
}

func TestFaultRefusesACallAndOnlyTheOnesItIsFor(t *testing.T) {
	f := NewFake(FakeOptions{})
	f.Inject(OpAppend, Fault{Skip: 1, Times: 2, Err: Full(backend.ReasonQueueFull, time.Second)})
	for i, refused := range []bool{false, true, true, false} {
		_, err := f.Append(t.Context(), []backend.Message{{}})
		var full *backend.FullError
		if errors.As(err, &full) != refused {
			t.Errorf("append %d: %v", i, err)
		}
	}
	if n := f.Calls(OpAppend); n != 4 {
		t.Errorf("4 appends were counted as %d", n)
	}
	if stats, _ := f.Stats(t.Context()); stats.XLen != 2 {
		t.Errorf("2 of 4 appends went through, %d are stored", stats.XLen)
	}
}

func TestFaultStoresTheFirstMessagesOfABatch(t *testing.T) {
	f := NewFake(FakeOptions{})
	f.Inject(OpAppend, Fault{Err: backend.ErrUnavailable, Stored: 2})
	got, err := f.Append(t.Context(), make([]backend.Message, 3))
	if !errors.Is(err, backend.ErrUnavailable) || len(got) != 3 || got[1].ID == "" || got[1].Err != nil || got[2].ID != "" || got[2].Err == nil {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestFaultLosesTheAnswerOfAnAppendThatIsStored(t *testing.T) {
	f := NewFake(FakeOptions{})
	f.Inject(OpAppend, Fault{LoseAnswer: true, Times: 1})
	messages := []backend.Message{{IdempotencyKey: "k"}}
	if got, err := f.Append(t.Context(), messages); !errors.Is(err, backend.ErrOutcomeUnknown) || got != nil {
		t.Errorf("got %v, %v", got, err)
	}
	got, err := f.Append(t.Context(), messages)
	if err != nil || !got[0].Deduped {
		t.Errorf("the repeat: %+v, %v", got, err)
	}
}

func TestFaultHangsUntilTheContextEndsOrItIsRemoved(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := NewFake(FakeOptions{})
		remove := f.Inject(OpAck, Fault{Hang: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := f.Ack(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that hangs ended with %v", err)
		}
		done := make(chan error)
		go func() {
			_, err := f.Ack(t.Context(), nil)
			done <- err
		}()
		synctest.Wait()
		if n := f.Active(OpAck); n != 1 {
			t.Errorf("%d calls under way, one hangs", n)
		}
		remove()
		remove()
		if err := <-done; err != nil {
			t.Errorf("a call that was let go ended with %v", err)
		}
	})
}

func TestFaultRepeatsADeliveryThatIsHeld(t *testing.T) {
	f := NewFake(FakeOptions{})
	id := stored(t, f)
	first, _ := f.Claim(t.Context(), probe("a"))
	f.Inject(OpClaim, Fault{Repeat: true, Times: 1})
	second, _ := f.Again().Claim(t.Context(), probe("b"))
	if len(second.Deliveries) != 0 {
		t.Fatal("a fault of one handle hit another")
	}
	second, err := f.Claim(t.Context(), probe("b"))
	if err != nil || len(second.Deliveries) != 1 || second.Deliveries[0].ID != id || second.Deliveries[0].Attempt != 2 {
		t.Fatalf("got %+v, %v", second, err)
	}
	if lost, err := f.Ack(t.Context(), []backend.Lease{first.Deliveries[0].Lease}); err != nil || fmt.Sprint(lost) != fmt.Sprint([]string{id}) {
		t.Errorf("the first holder's ack: lost %v, %v", lost, err)
	}
}

func TestFakeClaimWakesForAMessageAndEndsAtItsBlock(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := NewFake(FakeOptions{})
		time.AfterFunc(time.Second, func() { stored(t, f) })
		req := probe("a")
		req.Block = 3 * time.Second
		start := time.Now()
		if got, err := f.Claim(t.Context(), req); err != nil || len(got.Deliveries) != 1 || time.Since(start) != time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(start), got, err)
		}
		f.Ack(t.Context(), nil)
		start = time.Now()
		if got, err := f.Claim(t.Context(), req); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("after %s: %+v, %v", time.Since(start), got, err)
		}
	})
}

func TestFakeTellsTheLoadItIsToldToPretend(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		f := NewFake(FakeOptions{})
		stored(t, f)
		f.Claim(t.Context(), probe("a"))
		f.PublishSignal(t.Context(), time.Second)
		if got, _ := f.Signal(t.Context(), 100); got.Workers == nil || *got.Workers != 1 || got.Pending != 1 || *got.Lag != 0 {
			t.Errorf("one message is held: %+v", got)
		}
		time.Sleep(time.Second)
		if got, _ := f.Signal(t.Context(), 100); got.Workers != nil {
			t.Errorf("the published number outlives its second: %d", *got.Workers)
		}
		f.SetLagUnknown(true)
		if got, _ := f.Stats(t.Context()); got.Lag != nil {
			t.Errorf("an unknown lag is %d", *got.Lag)
		}
		f.Pretend(&backend.Signal{Pending: 201})
		if got, _ := f.Signal(t.Context(), 100); got.Pending != 201 {
			t.Errorf("told to pretend 201, got %+v", got)
		}
		f.Pretend(nil)
		if got, _ := f.Signal(t.Context(), 100); got.Pending != 1 {
			t.Errorf("the real load is 1, got %+v", got)
		}
	})
}
