package redis_test

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/redistest"
)

// While dead letters cannot be stored, because the server is full, their key is of another type or
// the user may not write it, messages past their limit stay, and the others are handed out.
func TestWhatCannotBeBuriedKeepsNobodyWaiting(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		admin := s.Client()
		const many = 300
		publish(t, b, many)
		claim(t, b, backend.ClaimRequest{Consumer: "died", Max: many, ReclaimAfter: 10 * time.Millisecond})
		if err := admin.Set(t.Context(), "{jobs}:dlq", "not a stream", 0).Err(); err != nil {
			t.Fatal(err)
		}
		req := backend.ClaimRequest{Consumer: "c", Max: 10, ReclaimAfter: 10 * time.Millisecond, MaxDeliveries: 1}
		wait(t, "a claim finds what is past its limit, and cannot move it", func() bool {
			got, err := b.Claim(t.Context(), req)
			return err != nil || got.Failed != nil
		})
		publish(t, b, 3)
		var got []*backend.Delivery
		for range 3 {
			claimed, _ := b.Claim(t.Context(), req)
			got = append(got, claimed.Deliveries...)
		}
		if len(got) != 3 || got[0].Attempt != 1 {
			t.Errorf("%d of 3 new messages were handed out", len(got))
		}
		if n := admin.XPending(t.Context(), "jobs", "weir").Val().Count; n != many+3 {
			t.Errorf("%d are pending, %d were not buried and 3 are held", n, many)
		}
		leases := make([]backend.Lease, len(got))
		for i, d := range got {
			leases[i] = d.Lease
		}
		if _, err := b.Ack(t.Context(), leases); err != nil {
			t.Fatal(err)
		}
		if err := admin.Del(t.Context(), "{jobs}:dlq").Err(); err != nil {
			t.Fatal(err)
		}
		buried := 0
		wait(t, "all become dead letters", func() bool {
			claimed, err := b.Claim(t.Context(), req)
			if buried += len(claimed.Dead); err != nil || len(claimed.Deliveries) > 0 {
				t.Fatalf("%d, %v", len(claimed.Deliveries), err)
			}
			return buried == many
		})
	})
}
