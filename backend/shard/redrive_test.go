package shard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
)

// What dies again while a redrive runs is listed before the letters of the next shard: it neither takes their place nor is sent
// back once more.
func TestARedriveSendsTheLettersOfEveryShardOnce(t *testing.T) {
	b, _ := inMemory(t, 2)
	const n = 500 // several pages of each shard
	msgs := make([]backend.Message, n)
	for i := range msgs {
		msgs[i] = backend.Message{Data: fmt.Append(nil, i), IdempotencyKey: fmt.Sprint(i)}
	}
	if _, err := b.Append(t.Context(), msgs); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	kill := func() {
		for {
			got, err := b.Claim(t.Context(), backend.ClaimRequest{Consumer: "c", Max: n, ReclaimAfter: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Deliveries) == 0 {
				return
			}
			for _, d := range got.Deliveries {
				seen[string(d.Data)]++
				if err := b.DeadLetter(t.Context(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	kill()
	letters, err := weir.New(b).DeadLetters("")
	if err != nil {
		t.Fatal(err)
	}
	done, err := letters.Redrive(t.Context(), weir.RedriveConfig{Delay: -1, Progress: func(*weir.DeadLetter, error) { kill() }})
	if done.Sent != n || err != nil {
		t.Errorf("%+v, %v", done, err)
	}
	wrong := 0
	for _, times := range seen {
		if times != 2 {
			wrong++
		}
	}
	if wrong > 0 || len(seen) != n {
		t.Errorf("%d of %d messages were sent back never or more than once", wrong, len(seen))
	}
}
