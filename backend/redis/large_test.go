package redis_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/weirmq/weir/backend"
)

// What a claim takes of the memory is a little more than what it hands out.
func TestAClaimTakesLittleMoreMemoryThanItHandsOut(t *testing.T) {
	const claims, each, size = 20, 100, 256
	addr, _ := startServer(t)
	b := open(t, addr, "stream=jobs")
	msgs := make([]backend.Message, each)
	for i := range msgs {
		msgs[i].Data = bytes.Repeat([]byte("x"), size)
	}
	for range claims + 1 {
		if _, err := b.Append(t.Context(), msgs); err != nil {
			t.Fatal(err)
		}
	}
	take := func() {
		t.Helper()
		if got := claim(t, b, backend.ClaimRequest{Max: each}).Deliveries; len(got) != each || len(got[each-1].Data) != size {
			t.Fatalf("%d deliveries", len(got))
		}
	}
	take() // the first one also creates the group
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range claims {
		take()
	}
	runtime.ReadMemStats(&after)
	if n := (after.TotalAlloc - before.TotalAlloc) / (claims * each); n > 1600 {
		t.Errorf("%d bytes for a delivery of %d", n, size)
	}
}
