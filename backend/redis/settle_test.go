package redis_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
	"github.com/weirmq/weir/tests/stall"
)

// What is given back is nobody's: the lease it had holds nothing any more.
func TestALeaseEndsWithItsNack(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 1)
	d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
	nack := func(d *backend.Delivery, wantLost int) {
		t.Helper()
		if lost, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, NotStarted: true, Error: "why"}}); err != nil || len(lost) != wantLost {
			t.Errorf("nack: lost %v, %v; want %d lost", lost, err, wantLost)
		}
	}
	nack(d, 0)
	nack(d, 1)
	if lost, err := b.Extend(t.Context(), []backend.Lease{d.Lease}, time.Minute); err != nil || len(lost) != 1 {
		t.Errorf("extend after the nack: lost %v, %v", lost, err)
	}
	if err := b.DeadLetter(t.Context(), d, "", backend.Cause{}); !errors.Is(err, backend.ErrLeaseLost) {
		t.Errorf("dead letter after the nack: %v", err)
	}
	next := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries
	if len(next) != 1 || next[0].Attempt != d.Attempt || next[0].Consumer != d.Consumer {
		t.Fatalf("claimed again: %+v", next)
	}
	nack(d, 1) // late, and in all but its time like the next
	if lost, err := b.Extend(t.Context(), []backend.Lease{next[0].Lease}, time.Minute); err != nil || len(lost) != 0 {
		t.Errorf("extend of the next: lost %v, %v", lost, err)
	}
	nack(next[0], 0)
}

// A delay longer than ReclaimAfter ends by the server's clock.
func TestLongDelayIsByTheServersClock(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 1)
	d := claim(t, b, backend.ClaimRequest{Max: 1, ReclaimAfter: 10 * time.Millisecond}).Deliveries[0]
	if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Delay: 100 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	start, stalled := time.Now(), stall.Watch()
	wait(t, "it comes again", func() bool {
		return len(claim(t, b, backend.ClaimRequest{Max: 1, ReclaimAfter: 10 * time.Millisecond}).Deliveries) == 1
	})
	if took := time.Since(start); took < 80*time.Millisecond || took > 2*time.Second+stalled() {
		t.Errorf("it came after %v", took)
	}
	if n := s.Client().Exists(t.Context(), "{jobs}:retry:weir").Val(); n != 0 {
		t.Error("its note is left")
	}
}

// A message that its handler wants back soon is there soon, also on a stream where
// nothing else happens, and a pool's own retries are taken over from nobody.
func TestARetryOnAnIdleStreamComesInItsTime(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		began := make(chan time.Time, 3)
		p, err := weir.NewPool(weir.New(b), func(_ context.Context, d *weir.Delivery) error {
			began <- time.Now()
			if d.Attempt < 3 {
				return weir.RetryIn(100*time.Millisecond, errors.New("not yet"))
			}
			return nil
		}, weir.PoolConfig{Workers: 2, Block: 20 * time.Second, ReclaimAfter: 5 * time.Minute, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		publish(t, b, 1)
		first, stalled := <-began, stall.Watch()
		<-began
		if took := (<-began).Sub(first); took < 200*time.Millisecond || took > 10*time.Second+stalled() {
			t.Errorf("two retries in 100 ms each took %s", took)
		}
		wait(t, "it is done", func() bool { return p.Stats().Acked == 1 })
		if got := p.Stats(); got.Reclaimed != 0 || got.Retried != 2 {
			t.Errorf("%+v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Somebody deletes an entry while its handler fails. From 7.0 on the server forgets the delivery
// when it is given back: that is told, and no note of it is left.
func TestAMessageThatIsGoneWhenItIsGivenBackIsReported(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		ids := publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1, ReclaimAfter: 100 * time.Millisecond}).Deliveries[0]
		s.Client().XDel(t.Context(), "jobs", ids...)
		lost, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Error: "no"}})
		if err != nil {
			t.Fatal(err)
		}
		told := len(lost)
		for range 10 {
			got := claim(t, b, backend.ClaimRequest{Max: 1, ReclaimAfter: 100 * time.Millisecond})
			told += len(got.Lost)
			time.Sleep(20 * time.Millisecond)
		}
		if told == 0 {
			t.Error("nobody was told that the message is gone")
		}
		if n := s.Client().HLen(t.Context(), "{jobs}:retry:weir").Val(); n != 0 {
			t.Errorf("%d notes are left", n)
		}
	})
}

// Somebody deletes an entry whose handler gives it up: the letter holds what was delivered.
func TestALetterOfAMessageThatIsGoneHoldsIt(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		msg := backend.Message{Data: []byte("poison"), Headers: map[string]string{"k": "v"}, Priority: backend.High}
		if _, err := b.Append(t.Context(), []backend.Message{msg}); err != nil {
			t.Fatal(err)
		}
		foreign := s.Client().XAdd(t.Context(), &goredis.XAddArgs{Stream: "jobs", Values: []string{"job", "7"}})
		if err := foreign.Err(); err != nil {
			t.Fatal(err)
		}
		for _, d := range take(t, b, 2) {
			s.Client().XDel(t.Context(), "jobs", d.ID)
			if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
				t.Fatal(err)
			}
		}
		list, err := b.List(t.Context(), "", "", 10)
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		for i, want := range []string{`poison map[k:v weir-priority:high]`, `{"job":"7"} map[]`} {
			if got := fmt.Sprint(string(list[i].Data), " ", list[i].Headers); got != want || list[i].Enqueued.IsZero() {
				t.Errorf("letter %d holds %s, published %v; want %s", i, got, list[i].Enqueued, want)
			}
		}
	})
}

// A lease that ended holds nothing, though whoever has the message now has it with the same count.
func TestALeaseThatHasEndedSettlesNothing(t *testing.T) {
	addr, _ := startServer(t)
	b, elsewhere := open(t, addr, "stream=jobs"), open(t, addr, "stream=jobs")
	settlesNothing := func(when string, d *backend.Delivery) {
		t.Helper()
		late := d.Lease
		late.Since = late.Since.Add(-time.Hour)
		for verb, call := range map[string]func() ([]string, error){
			"ack":    func() ([]string, error) { return b.Ack(t.Context(), []backend.Lease{late}) },
			"extend": func() ([]string, error) { return b.Extend(t.Context(), []backend.Lease{d.Lease}, time.Minute) },
			"nack":   func() ([]string, error) { return b.Nack(t.Context(), []backend.Return{{Lease: d.Lease}}) },
		} {
			if lost, err := call(); err != nil || len(lost) != 1 {
				t.Errorf("%s %s: lost %v, %v", verb, when, lost, err)
			}
		}
		if err := b.DeadLetter(t.Context(), d, "", backend.Cause{}); !errors.Is(err, backend.ErrLeaseLost) {
			t.Errorf("dead letter %s: %v", when, err)
		}
	}
	publish(t, b, 1)
	d := claim(t, b, backend.ClaimRequest{Consumer: "a", Max: 1}).Deliveries[0]
	if _, err := elsewhere.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Error: "why"}}); err != nil {
		t.Fatal(err)
	}
	settlesNothing("of what was given back", d)
	d = claim(t, b, backend.ClaimRequest{Consumer: "a", Max: 1}).Deliveries[0]
	if _, err := elsewhere.Nack(t.Context(), []backend.Return{{Lease: d.Lease, NotStarted: true}}); err != nil {
		t.Fatal(err)
	}
	next := claim(t, elsewhere, backend.ClaimRequest{Consumer: "b", Max: 1}).Deliveries[0]
	if next.ID != d.ID || next.Attempt != d.Attempt {
		t.Fatalf("claimed %+v, then %+v", d.Lease, next.Lease)
	}
	settlesNothing("of what another has", d)
	if lost, err := elsewhere.Ack(t.Context(), []backend.Lease{next.Lease}); err != nil || len(lost) != 0 {
		t.Errorf("the one who has it: lost %v, %v", lost, err)
	}
}

// However a delivery ends, nothing that was noted of it stays.
func TestWhatIsDoneLeavesNoNote(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	notes := func() int64 { return s.Client().HLen(t.Context(), "{jobs}:retry:weir").Val() }
	for name, end := range map[string]func(d *backend.Delivery) error{
		"an ack": func(d *backend.Delivery) error {
			_, err := b.Ack(t.Context(), []backend.Lease{d.Lease})
			return err
		},
		"a late ack": func(d *backend.Delivery) error {
			late := d.Lease
			late.Since = late.Since.Add(-time.Hour)
			_, err := b.Ack(t.Context(), []backend.Lease{late})
			return err
		},
		"a dead letter": func(d *backend.Delivery) error {
			return b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison})
		},
	} {
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Error: "why"}}); err != nil {
			t.Fatal(err)
		}
		d = claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		if n := notes(); d.Attempt != 2 || n != 1 {
			t.Fatalf("attempt %d, %d notes", d.Attempt, n)
		}
		if err := end(d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := notes(); n != 0 {
			t.Errorf("%s leaves %d notes", name, n)
		}
	}
}

// The workers who had a message last may have said nothing: one gave it back, another is gone.
func TestALetterHasTheLastErrorThatWasTold(t *testing.T) {
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 1)
	req := backend.ClaimRequest{Max: 1, MaxDeliveries: 3, ReclaimAfter: 10 * time.Millisecond}
	for _, said := range []string{"it is broken", ""} {
		d := claim(t, b, req).Deliveries[0]
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Error: said}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(claim(t, b, req).Deliveries); n != 1 {
		t.Fatalf("%d deliveries at the limit", n)
	}
	var dead []backend.DeadLetter
	wait(t, "it is a dead letter", func() bool {
		dead = claim(t, b, req).Dead
		return len(dead) == 1
	})
	if dead[0].Error != "it is broken" || dead[0].Attempts != 3 {
		t.Errorf("%+v", dead[0])
	}
}

// What comes with orphans and has no place in a claim is nobody's: it is claimed next, for the first time.
func TestNewMessagesWithoutAPlaceBesideOrphansAreGivenBack(t *testing.T) {
	addr, s := startServer(t)
	b := open(t, addr, "stream=jobs")
	publish(t, b, 2)
	req := backend.ClaimRequest{Max: 2, ReclaimAfter: 10 * time.Millisecond}
	req.Consumer = "gone"
	claim(t, open(t, addr, "stream=jobs"), req)
	wait(t, "the leases end", func() bool {
		pending := s.Client().XPendingExt(t.Context(), &goredis.XPendingExtArgs{Stream: "jobs", Group: "weir", Start: "-", End: "+", Count: 2}).Val()
		return len(pending) == 2 && pending[1].Idle > req.ReclaimAfter
	})
	publish(t, b, 2)
	req.Consumer = "a"
	if got := claim(t, b, req); got.Reclaimed != 2 || len(got.Deliveries) != 2 {
		t.Fatalf("%d deliveries, %d reclaimed", len(got.Deliveries), got.Reclaimed)
	}
	req.ReclaimAfter = time.Hour
	got := claim(t, b, req).Deliveries
	if len(got) != 2 || got[0].Attempt != 1 || got[1].Attempt != 1 {
		t.Errorf("the next claim gave %d: %+v", len(got), got)
	}
}

// An ack is two commands, of which a server may refuse the second, as while it hands over. By the time that the
// ack is sent again the lease may be so old that it is checked, and there is nothing left to check.
func TestWhatIsDoneLeavesNoNoteThoughHalfOfItsAckWasRefused(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		admin := s.Client()
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		if _, err := b.Nack(t.Context(), []backend.Return{{Lease: d.Lease, Error: "once"}}); err != nil {
			t.Fatal(err)
		}
		again := claim(t, b, backend.ClaimRequest{Max: 1, ReclaimAfter: time.Minute})
		if len(again.Deliveries) != 1 || admin.HLen(t.Context(), "{jobs}:retry:weir").Val() != 1 {
			t.Fatalf("%+v, and the note of its error", again)
		}
		if err := admin.XAck(t.Context(), "jobs", "weir", d.ID).Err(); err != nil { // the first half
			t.Fatal(err)
		}
		late := again.Deliveries[0].Lease
		late.Since = late.Since.Add(-time.Minute)
		if _, err := b.Ack(t.Context(), []backend.Lease{late}); err != nil {
			t.Fatal(err)
		}
		if notes := admin.HGetAll(t.Context(), "{jobs}:retry:weir").Val(); len(notes) > 0 {
			t.Errorf("left: %v", notes)
		}
	})
}
