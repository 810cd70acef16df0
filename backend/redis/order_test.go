package redis_test

import (
	"testing"

	"github.com/weirmq/weir/backend"
)

// lastID is the last ID that there can be: a stream with it takes no more.
const lastID = "18446744073709551615-18446744073709551615"

// A script that fails in its middle is not undone: what it has done by then has to
// be harmless. Here the key that it writes to last, or first, is of another type or full.
func TestAScriptThatFailsInItsMiddleLosesNothing(t *testing.T) {
	addr, s := startServer(t)
	admin := s.Client()
	do := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}

	t.Run("a message that cannot become a dead letter stays", func(t *testing.T) {
		b := open(t, addr, "stream=dead")
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		do("SET", "{dead}:dlq", "not a stream")
		if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err == nil {
			t.Error("a letter was stored in a string")
		}
		if stats, err := b.Stats(t.Context()); err != nil || stats.Pending != 1 {
			t.Fatalf("the message is gone: %+v, %v", stats, err)
		}
		do("DEL", "{dead}:dlq")
		if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Error(err)
		}
	})

	t.Run("a key whose message was not stored does not count", func(t *testing.T) {
		b := open(t, addr, "stream=keyed")
		keyed := []backend.Message{{Data: []byte("x"), IdempotencyKey: "k"}}
		do("XADD", "keyed", lastID, "a", "b")
		if _, err := b.Append(t.Context(), keyed); err == nil {
			t.Error("an entry was stored behind the last ID")
		}
		do("DEL", "keyed")
		if r, err := b.Append(t.Context(), keyed); err != nil || r[0].Deduped {
			t.Errorf("the repeat: %+v, %v", r, err)
		}
		if got := claim(t, b, backend.ClaimRequest{Max: 1}); len(got.Deliveries) != 1 {
			t.Error("the repeat was not stored")
		}
	})

	t.Run("a letter that cannot be sent back stays", func(t *testing.T) {
		b := open(t, addr, "stream=back")
		publish(t, b, 1)
		d := claim(t, b, backend.ClaimRequest{Max: 1}).Deliveries[0]
		if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		letters, err := b.List(t.Context(), "", "", 1)
		if err != nil || len(letters) != 1 {
			t.Fatal(letters, err)
		}
		do("XADD", "back", lastID, "a", "b")
		if err := b.Redrive(t.Context(), "", letters[0]); err == nil {
			t.Error("an entry was stored behind the last ID")
		}
		if left, err := b.List(t.Context(), "", "", 1); err != nil || len(left) != 1 {
			t.Errorf("the letter is gone: %v, %v", left, err)
		}
	})
}
