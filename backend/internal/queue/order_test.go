package queue_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmq/weir/backend"
)

// bodies claims messages one by one, acknowledges them, and returns their data.
func bodies(t *testing.T, b backend.Backend) string {
	t.Helper()
	var out []string
	for {
		got := take(t, b, func(r *backend.ClaimRequest) { r.Max = 1 })
		if len(got.Deliveries) == 0 {
			return strings.Join(out, " ")
		}
		out = append(out, string(got.Deliveries[0].Data))
		mustAck(t, b, got.Deliveries...)
	}
}

// first claims the message that is next.
func first(t *testing.T, b backend.Backend) *backend.Delivery {
	t.Helper()
	got := take(t, b, func(r *backend.ClaimRequest) { r.Max = 1 })
	if len(got.Deliveries) != 1 {
		t.Fatalf("claimed %d deliveries, want 1", len(got.Deliveries))
	}
	return got.Deliveries[0]
}

// The tiers of messages come in order and the keys of a tier in turn, in one
// process as through a server, and also for messages that were nacked, moved to
// the dead letters and sent back.
func TestMessagesComeByTierAndKey(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		message := func(body string, p backend.Priority, key, id string) backend.Message {
			return backend.Message{Data: []byte(body), Priority: p, FairKey: key, IdempotencyKey: id}
		}
		_, err := b.Append(t.Context(), []backend.Message{
			message("bulk", backend.Bulk, "", ""),
			message("a1", backend.Normal, "a", "k1"), message("a2", backend.Normal, "a", "k2"), message("a3", backend.Normal, "a", "k3"),
			message("plain", backend.Normal, "", ""),
			message("b1", backend.Normal, "b", "k4"),
			message("poison", backend.Critical, "p", ""), message("again", backend.Critical, "p", ""),
		})
		if err != nil {
			t.Fatal(err)
		}
		d := first(t, b)
		if want := map[string]string{backend.HeaderPriority: "critical", backend.HeaderFairKey: "p"}; string(d.Data) != "poison" || len(d.Headers) != len(want) ||
			d.Headers[backend.HeaderPriority] != "critical" || d.Headers[backend.HeaderFairKey] != "p" {
			t.Fatalf("delivered %q with %v, want poison with %v", d.Data, d.Headers, want)
		}
		if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			t.Fatal(err)
		}
		again := first(t, b)
		giveBack(t, b, again, 0)
		letters, err := b.List(t.Context(), "", "", 10)
		if err != nil || len(letters) != 1 || letters[0].Headers[backend.HeaderPriority] != "critical" {
			t.Fatalf("letters %+v, %v", letters, err)
		}
		if err := b.Redrive(t.Context(), "", letters[0]); err != nil {
			t.Fatal(err)
		}
		if got, want := bodies(t, b), "again poison plain a1 b1 a2 a3 bulk"; got != want {
			t.Errorf("claimed %s, want %s", got, want)
		}
	})
}

// One tenant with nine tenths of the messages gets one turn of two.
func TestANoisyTenantTakesNobodysTurn(t *testing.T) {
	everywhere(t, func(t *testing.T, h *host) {
		b := h.open(fresh())
		noisy := slices.Repeat([]backend.Message{{Data: []byte("n"), FairKey: "noisy"}}, 90)
		for _, msgs := range [][]backend.Message{noisy, slices.Repeat([]backend.Message{{Data: []byte("q"), FairKey: "quiet"}}, 10)} {
			if _, err := b.Append(t.Context(), msgs); err != nil {
				t.Fatal(err)
			}
		}
		quiet := 0
		for _, d := range take(t, b, func(r *backend.ClaimRequest) { r.Max = 20 }).Deliveries {
			if d.Headers[backend.HeaderFairKey] == "quiet" {
				quiet++
			}
		}
		if quiet != 10 {
			t.Errorf("20 messages have %d of the quiet tenant, want 10", quiet)
		}
	})
}
