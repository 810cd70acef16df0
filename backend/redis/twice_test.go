package redis_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmq/weir"
	"github.com/weirmq/weir/tests/redistest"
)

// A server may forget what it has handed out: a replica that takes over has not heard of it yet, or
// somebody sets the group back. The pool that has the message gets it once more, and does not run
// it beside itself.
func TestAMessageThatTheServerForgotItHandedOutHasOneHandlerAtATime(t *testing.T) {
	onEveryServer(t, func(t *testing.T, s *redistest.Server) {
		b := open(t, s.Addr(), "stream=jobs")
		publish(t, b, 1)
		var running, most, begun atomic.Int64
		release := make(chan struct{})
		pool, err := weir.NewPool(weir.New(b), func(context.Context, *weir.Delivery) error {
			n := running.Add(1)
			defer running.Add(-1)
			for most.Load() < n {
				most.Store(n)
			}
			if begun.Add(1); n == 1 {
				<-release // whatever its context says
			}
			return nil
		}, weir.PoolConfig{Workers: 4, Block: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- pool.Run(ctx) }()
		wait(t, "the handler runs", func() bool { return begun.Load() == 1 })
		admin := s.Client()
		if err := admin.XGroupSetID(t.Context(), "jobs", "weir", "0").Err(); err != nil {
			t.Fatal(err)
		}
		wait(t, "the message is handed out again", func() bool {
			groups, err := admin.XInfoGroups(t.Context(), "jobs").Result()
			return err == nil && groups[0].LastDeliveredID != "0-0"
		})
		publish(t, b, 1)
		wait(t, "the next message is handled", func() bool { return begun.Load() >= 2 })
		close(release)
		wait(t, "nothing is left", func() bool { return admin.XPending(t.Context(), "jobs", "weir").Val().Count == 0 })
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if begun.Load() > 2 {
			t.Errorf("two messages were begun %d times, up to %d at a time", begun.Load(), most.Load())
		}
	})
}
