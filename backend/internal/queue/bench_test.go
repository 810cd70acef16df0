package queue_test

import (
	"testing"
	"time"

	"github.com/weirmq/weir/backend"
)

// BenchmarkWork publishes, claims and acknowledges batches of 100 messages.
func BenchmarkWork(b *testing.B) {
	for _, kind := range []string{"mem", "file"} {
		b.Run(kind, func(b *testing.B) {
			h := &host{kind: kind, dir: b.TempDir()}
			q := h.openFor(b, fresh())
			defer q.Close()
			msgs := make([]backend.Message, 100)
			for i := range msgs {
				msgs[i] = backend.Message{Data: []byte(`{"order":12345,"customer":"acme","total":"12.50"}`), Headers: map[string]string{"traceparent": "00-1"}}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := q.Append(b.Context(), msgs); err != nil {
					b.Fatal(err)
				}
				got, err := q.Claim(b.Context(), backend.ClaimRequest{Consumer: "w", Max: 100, ReclaimAfter: time.Minute})
				if err != nil || len(got.Deliveries) != 100 {
					b.Fatal(len(got.Deliveries), err)
				}
				if _, err := q.Ack(b.Context(), leases(got.Deliveries...)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100, "µs/message")
		})
	}
}
