package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/backendtest"
	"github.com/weirmq/weir/open"
	"github.com/weirmq/weir/tests/bubble"
	"github.com/weirmq/weir/tests/redistest"
)

// The ID on a receipt is the one that the worker sees, and a second message with the
// same key is told apart from the first.
func TestAReceiptNamesTheMessageThatItsWorkerGets(t *testing.T) {
	redis := redistest.Start(t, redistest.Options{})
	for kind, url := range map[string]string{
		"mem":    "mem://receipts",
		"shards": "mem://receipts?shards=3",
		"redis":  redis.URL() + "?stream=receipts",
	} {
		t.Run(kind, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			s, err := open.URL(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			p, err := weir.NewProducer(s, weir.ProducerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			plain, err := p.Send(ctx, weir.Message{Data: []byte("plain")})
			if err != nil || plain.ID == "" || plain.Duplicate {
				t.Fatalf("%+v, %v", plain, err)
			}
			keyed := weir.Message{Data: []byte("keyed"), IdempotencyKey: "order-7"}
			first, err := p.Send(ctx, keyed)
			if err != nil || first.ID == "" || first.Duplicate || first.ID == plain.ID {
				t.Fatalf("%+v, %v", first, err)
			}
			if again, err := p.Send(ctx, keyed); err != nil || again != (weir.Receipt{ID: first.ID, Duplicate: true}) {
				t.Errorf("the same key: %+v, %v; want the ID %s, and that it is a duplicate", again, err, first.ID)
			}

			var mu sync.Mutex
			got := map[string]string{}
			pool, err := weir.NewPool(s, func(_ context.Context, d *weir.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				got[d.ID] = string(d.Data)
				return nil
			}, weir.PoolConfig{Workers: 1, UntilEmpty: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			if err := pool.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if len(got) != 2 || got[plain.ID] != "plain" || got[first.ID] != "keyed" {
				t.Errorf("workers got %v; the receipts were %+v and %+v", got, plain, first)
			}
		})
	}
}

func TestThereIsNoReceiptForWhatIsNotStored(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		g := guard(t, weir.ProducerConfig{})
		defer g.fake.Inject(backendtest.OpAppend, backendtest.Fault{Err: backend.ErrUnavailable})()
		if r, err := g.Send(t.Context(), weir.Message{}); !errors.Is(err, weir.ErrUnavailable) || r != (weir.Receipt{}) {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A producer that is closed stores nothing, with whatever guard, and a publish whose context has
// ended neither.
func TestAClosedProducerStoresNothing(t *testing.T) {
	for _, mode := range []weir.GuardMode{weir.GuardOff, weir.GuardShadow, weir.GuardStatic, weir.GuardProportional, weir.GuardAdaptive} {
		bubble.Run(t, func(t *testing.T) {
			g := guard(t, weir.ProducerConfig{Guard: mode})
			if _, err := g.timed(t.Context()); err != nil {
				t.Fatalf("%s: %v", mode, err)
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if _, err := g.timed(ended); !errors.Is(err, context.Canceled) || errors.Is(err, weir.ErrOutcomeUnknown) {
				t.Errorf("%s: a publish whose context has ended: %v", mode, err)
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := g.timed(t.Context()); !errors.Is(err, weir.ErrClosed) {
				t.Errorf("%s: a publish behind Close: %v", mode, err)
			}
			if err := g.PublishBatch(t.Context(), make([]weir.Message, 3)); !errors.Is(err, weir.ErrClosed) {
				t.Errorf("%s: a batch behind Close: %v", mode, err)
			}
			if n := g.fake.Calls(backendtest.OpAppend); n != 1 {
				t.Errorf("%s: %d appends, want the first alone", mode, n)
			}
		})
	}
}

// A message's own limits hold whichever way it was published.
func TestEveryWayToPublishKeepsTheLimitsOfAMessage(t *testing.T) {
	for name, publish := range map[string]func(*weir.Producer, context.Context, weir.Message) error{
		"Publish":    (*weir.Producer).Publish,
		"TryPublish": (*weir.Producer).TryPublish,
		"Send": func(p *weir.Producer, ctx context.Context, m weir.Message) error {
			_, err := p.Send(ctx, m)
			return err
		},
		"PublishBatch": func(p *weir.Producer, ctx context.Context, m weir.Message) error {
			return p.PublishBatch(ctx, []weir.Message{m})
		},
		"PublishSome": func(p *weir.Producer, ctx context.Context, m weir.Message) error {
			_, err := p.PublishSome(ctx, []weir.Message{m})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				s := weir.New(backendtest.NewFake(backendtest.FakeOptions{}))
				p, err := weir.NewProducer(s, weir.ProducerConfig{Logger: quiet()})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				if err := publish(p, t.Context(), weir.Message{MaxDeliveries: 2, Timeout: 70 * time.Millisecond}); err != nil {
					t.Fatal(err)
				}
				var took []time.Duration
				pool, err := weir.NewPool(s, func(ctx context.Context, _ *weir.Delivery) error {
					began := time.Now()
					<-ctx.Done()
					took = append(took, time.Since(began))
					return ctx.Err()
				}, weir.PoolConfig{Workers: 1, MaxDeliveries: 5, HandlerTimeout: time.Minute, UntilEmpty: time.Second, Logger: quiet()})
				if err != nil {
					t.Fatal(err)
				}
				if err := pool.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantList(t, "how long its handler ran", took, []time.Duration{70 * time.Millisecond, 70 * time.Millisecond})
			})
		})
	}
}
