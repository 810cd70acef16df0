package kafka_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/tests/kafkatest"
)

func TestAMisspeltGroupDoesNotHandleTheHistoryAgain(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Options{})
	for _, kind := range []string{"share", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			base := broker.URL() + "/jobs-" + kind + "?partitions=2&group_type=" + kind + "&group="
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			publish := func(texts ...string) {
				t.Helper()
				b := open(t, base+"none")
				defer b.Close()
				if _, err := b.Append(ctx, messages(texts...)); err != nil {
					t.Fatal(err)
				}
			}
			publish("a", "b", "c")

			b := open(t, base+kind+"-biling&create=never")
			defer b.Close()
			if _, err := b.Claim(ctx, claim(1)); !errors.Is(err, backend.ErrGroupNotFound) || backend.Retryable(err) || !strings.Contains(err.Error(), "biling") {
				t.Errorf("create=never: %v", err)
			}
			if s, err := b.Stats(ctx); !errors.Is(err, backend.ErrGroupNotFound) {
				t.Errorf("a reading with create=never: %+v, %v", s, err)
			}
			pool, err := weir.NewPool(weir.New(b), func(context.Context, *weir.Delivery) error { return nil }, weir.PoolConfig{})
			if err != nil {
				t.Fatal(err)
			}
			if err := pool.Run(ctx); !errors.Is(err, weir.ErrGroupNotFound) {
				t.Errorf("a pool with create=never ended with %v", err)
			}

			begin := func(query string) *lateWorker {
				return &lateWorker{t: t, ctx: ctx, b: open(t, base+kind+"-mail&"+query)}
			}
			first := begin("start=$")
			if s, err := first.b.Stats(ctx); err != nil || s.Lag == nil || *s.Lag != 0 {
				t.Errorf("a group that will begin at the end: %+v, %v", s, err)
			}
			first.nothing()
			publish("d")
			first.b.Close() // before it has got anything
			publish("e")
			second := begin("start=$")
			defer second.b.Close()
			if got := second.take(2); got != "d e" {
				t.Errorf("got %s", got)
			}
			known := begin("create=never")
			defer known.b.Close()
			if _, err := known.b.Claim(ctx, claim(1)); err != nil {
				t.Errorf("create=never with a group that is there: %v", err)
			}
		})
	}
}

// lateWorker is a member of a group that begins late.
type lateWorker struct {
	t   *testing.T
	ctx context.Context
	b   backend.Backend
}

// nothing claims in vain.
func (w *lateWorker) nothing() {
	w.t.Helper()
	for range 3 {
		if got, err := w.b.Claim(w.ctx, claim(10)); err != nil || len(got.Deliveries) > 0 {
			w.t.Fatalf("%d, %v, want nothing", len(got.Deliveries), err)
		}
	}
}

// take claims and acks n, and returns their texts in order.
func (w *lateWorker) take(n int) string {
	w.t.Helper()
	var texts []string
	await(w.t, "the rest", func() bool {
		got, err := w.b.Claim(w.ctx, claim(10))
		if err != nil {
			w.t.Fatal(err)
		}
		for _, d := range got.Deliveries {
			texts = append(texts, string(d.Data))
			if _, err := w.b.Ack(w.ctx, []backend.Lease{d.Lease}); err != nil {
				w.t.Fatal(err)
			}
		}
		return len(texts) >= n
	})
	slices.Sort(texts)
	return strings.Join(texts, " ")
}
