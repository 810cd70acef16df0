package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTheTimeOfARecordThatHasNone is not known.
func TestTheTimeOfARecordThatHasNone(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	g.create("timeless")
	g.put(&kgo.Record{Topic: "timeless", Value: []byte("x"), Timestamp: time.UnixMilli(-1)})
	if d := gather(t, g.open("timeless"), 1)[0]; !d.Enqueued.IsZero() {
		t.Errorf("published at %s", d.Enqueued)
	}
}
