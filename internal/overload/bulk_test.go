package overload

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/bubble"
)

// A program that publishes in a loop, and comes again when a refusal says so, keeps the
// workers busy, however long messages may wait and however small the queue is.
func TestALoopThatPublishesKeepsTheWorkersBusy(t *testing.T) {
	const messages, workers, service = 2000, 4, 50 * time.Millisecond
	for name, c := range map[string]weir.ProducerConfig{"default": {}, "shallow": {MaxDepth: 100}, "short": {WaitSLO: time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				b := newMemory()
				ctx, cancel := context.WithCancel(t.Context())
				pool := make(chan error)
				go func() {
					s := weir.New(b)
					p, err := weir.NewPool(s, func(context.Context, *weir.Delivery) error {
						time.Sleep(service)
						return nil
					}, weir.PoolConfig{Workers: workers, UntilEmpty: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
					if err == nil {
						err = p.Run(ctx)
					}
					pool <- err
				}()
				c.Logger = slog.New(slog.DiscardHandler)
				p, err := weir.NewProducer(weir.New(b), c)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for range messages {
					for {
						err := p.Publish(ctx, weir.Message{Data: []byte("x")})
						var full *weir.QueueFullError
						if errors.As(err, &full) {
							time.Sleep(full.RetryAfter)
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						break
					}
				}
				_ = p.Close()
				if err := <-pool; err != nil {
					t.Error(err)
				}
				cancel()
				took := time.Since(began) - 10*time.Second
				ideal := messages * service / workers
				if took > ideal*13/10 {
					t.Errorf("with max depth %d and wait_slo %s the work took %s, want no more than 30 %% over %s", c.MaxDepth, c.WaitSLO, took, ideal)
				}
			})
		})
	}
}
