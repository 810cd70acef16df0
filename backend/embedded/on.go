package embedded

import (
	"context"
	"sync"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/backend/internal/queue"
	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine"
)

// On returns the backend of a topic in an engine that somebody else opened and closes,
// after the backend. It is for looking: its reads do not count as those of a client.
func On(ctx context.Context, e *engine.Engine, topic string) (backend.Backend, error) {
	late := new(sync.WaitGroup)
	return queue.New(ctx, service{e: e, late: late, look: true}, queue.Options{
		Topic: topic, Config: created(api.Disk), Limits: api.DefaultLimits(), Kind: "embedded",
		Release: func() error { late.Wait(); return nil },
	})
}

// created is the configuration of a queue that does not exist yet.
func created(class api.Durability) api.Config {
	cfg := api.DefaultConfig()
	cfg.Type = api.TypeQueue
	cfg.Durability = class
	cfg.IdempotencyWindowMS = uint64(idempotencyWindow.Milliseconds())
	// Deliveries have to be counted across the crash of a worker, which here takes the
	// engine down too.
	cfg.LeasesDurable = class >= api.Disk
	return cfg
}
