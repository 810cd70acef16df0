package embedded_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/embedded"
	"github.com/weirmq/weir/backend/topics"
)

func open(t *testing.T, raw string) *topics.Backend {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := embedded.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func claim(t *testing.T, b backend.Backend, block time.Duration) backend.Claimed {
	t.Helper()
	got, err := b.Claim(context.Background(), backend.ClaimRequest{
		Consumer: "w1", Max: 10, Block: block, ReclaimAfter: 30 * time.Second, MaxDeliveries: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAppendClaimAck(t *testing.T) {
	for _, raw := range []string{"mem://jobs", "file://" + t.TempDir() + "?topic=jobs"} {
		b := open(t, raw)
		if _, err := b.Append(t.Context(), []backend.Message{{Data: []byte("one"), Headers: map[string]string{"a": "b"}, Priority: backend.High}}); err != nil {
			t.Fatal(err)
		}
		got := claim(t, b, time.Second)
		if len(got.Deliveries) != 1 {
			t.Fatalf("claimed %+v", got)
		}
		d := got.Deliveries[0]
		if string(d.Data) != "one" || d.Headers["a"] != "b" || d.Headers[backend.HeaderPriority] != "high" || d.Attempt != 1 {
			t.Errorf("delivered %+v", d)
		}
		if lost, err := b.Ack(t.Context(), []backend.Lease{d.Lease}); err != nil || len(lost) > 0 {
			t.Fatalf("ack: %v, %v", lost, err)
		}
		st, err := b.Stats(t.Context())
		if err != nil || st.XLen != 0 || st.OldestSource != backend.AgeNone {
			t.Errorf("stats %+v, %v", st, err)
		}
	}
}
