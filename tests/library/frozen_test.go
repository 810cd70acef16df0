package library

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
)

func TestAPublishOnAFrozenRedisEndsWithItsContext(t *testing.T) {
	const late = 50 * time.Millisecond
	s := newSite(t, "orders", "billing")
	stream := openStream(t, s.url)
	p, err := weir.NewProducer(stream, weir.ProducerConfig{LoadSheddingMaxRequests: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Publish(t.Context(), weir.Message{Data: []byte("before")}); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	defer s.Resume()

	publish := map[string]func(context.Context) error{
		"Publish": func(ctx context.Context) error { return p.Publish(ctx, weir.Message{Data: []byte("x")}) },
		"Publish, keyed": func(ctx context.Context) error {
			return p.Publish(ctx, weir.Message{Data: []byte("x"), IdempotencyKey: "k"})
		},
		"TryPublish":      func(ctx context.Context) error { return p.TryPublish(ctx, weir.Message{Data: []byte("x")}) },
		"PublishBatch 50": func(ctx context.Context) error { return p.PublishBatch(ctx, make([]weir.Message, 50)) },
	}
	for name, call := range publish {
		for _, deadline := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond} {
			worst, errs := frozen(t, deadline, call)
			t.Logf("%s, 16 goroutines, deadline %s: the last one returned %s after it (%v)", name, deadline, worst.Round(time.Millisecond), errs)
			if worst > late {
				t.Errorf("%s with a deadline of %s returned %s after it, want at most %s", name, deadline, worst, late)
			}
		}
	}
}

// frozen makes 16 calls at once and returns how long after the deadline the last
// one returned, and how the calls ended.
func frozen(t *testing.T, deadline time.Duration, call func(context.Context) error) (worst time.Duration, errs map[string]int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs = map[string]int{}
	for range 16 {
		wg.Go(func() {
			end := time.Now().Add(deadline)
			ctx, cancel := context.WithDeadline(t.Context(), end)
			defer cancel()
			err := call(ctx)
			over := time.Since(end)
			mu.Lock()
			defer mu.Unlock()
			worst = max(worst, over)
			errs[ending(err)]++
		})
	}
	wg.Wait()
	if errs["stored"] > 0 {
		t.Errorf("a frozen server stored %d messages", errs["stored"])
	}
	return worst, errs
}

func ending(err error) string {
	switch {
	case err == nil:
		return "stored"
	case errors.Is(err, weir.ErrOutcomeUnknown):
		return "outcome unknown"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline, not stored"
	}
	return fmt.Sprint(err)
}
