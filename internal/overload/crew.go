package overload

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/weirmq/weir"
)

// crew is the workers of a run. In the Halved variant half of them leave when the
// disturbance begins, and as many new ones come when it ends.
type crew struct {
	run    *run
	stays  []*weir.Pool
	leaves []*weir.Pool // none if nobody leaves
	comes  []*weir.Pool

	end  context.CancelFunc
	once sync.Once
	all  sync.WaitGroup
	mu   sync.Mutex
	err  error
}

func (r *run) crew(ctx context.Context, target Target) (*crew, error) {
	s, err := r.stream(ctx, target)
	if err != nil {
		return nil, err
	}
	c := &crew{run: r}
	half := 0
	if r.Variant == Halved {
		half = r.Workers / 2
		if c.leaves, err = r.pools(s, half); err != nil {
			return nil, err
		}
		if c.comes, err = r.pools(s, half); err != nil {
			return nil, err
		}
	}
	c.stays, err = r.pools(s, r.Workers-half)
	return c, err
}

// pools are some of the workers, in as many pools as their part of all. If all are in one
// pool, each part of them reads ahead its part of what that pool does.
func (r *run) pools(s *weir.Stream, workers int) (all []*weir.Pool, err error) {
	batch := (weir.PoolConfig{}).WithDefaults().Batch
	if r.Pools == 1 {
		batch = max(1, batch*workers/r.Workers)
	}
	for n := max(1, r.Pools*workers/r.Workers); n > 0; n-- {
		of := workers / n
		workers -= of
		p, err := weir.NewPool(s, r.handle, weir.PoolConfig{
			Workers: of, Batch: batch, Logger: slog.New(slog.DiscardHandler),
			HandlerTimeout: -1, Expired: weir.ExpiredDrop, Hooks: weir.Hooks{Settled: r.settled},
		})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// settled counts what workers set aside.
func (r *run) settled(_ weir.StreamName, o weir.Outcome, messages int) {
	if o == weir.Expired {
		r.ledger.setAside(messages)
	}
}

// work starts the workers.
func (c *crew) work() {
	ctx, end := context.WithCancel(context.Background())
	c.end = end
	c.start(ctx, c.stays)
	if c.leaves == nil {
		return
	}
	first, leave := context.WithCancel(ctx)
	c.start(first, c.leaves)
	from, to := c.run.disturbance()
	c.all.Go(func() {
		defer leave()
		if sleep(ctx, from-c.run.now()) == nil {
			leave()
			_ = sleep(ctx, to-c.run.now())
		}
		if ctx.Err() == nil {
			c.start(ctx, c.comes)
		}
	})
}

func (c *crew) start(ctx context.Context, pools []*weir.Pool) {
	for _, p := range pools {
		c.all.Go(func() {
			err := p.Run(ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			c.err = errors.Join(c.err, err)
		})
	}
}

// stop ends the workers and returns what went wrong.
func (c *crew) stop() error {
	c.once.Do(func() {
		if c.end != nil {
			c.end()
		}
		c.all.Wait()
	})
	return c.err
}
