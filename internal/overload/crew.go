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
	stays  *weir.Pool
	leaves *weir.Pool // nil if nobody leaves
	comes  *weir.Pool

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
		if c.leaves, err = r.pool(s, half); err != nil {
			return nil, err
		}
		if c.comes, err = r.pool(s, half); err != nil {
			return nil, err
		}
	}
	c.stays, err = r.pool(s, r.Workers-half)
	return c, err
}

// pool is some of the workers. All of them together read as far ahead as one pool
// does.
func (r *run) pool(s *weir.Stream, workers int) (*weir.Pool, error) {
	batch := (weir.PoolConfig{}).WithDefaults().Batch
	return weir.NewPool(s, r.handle, weir.PoolConfig{
		Workers: workers, Batch: max(1, batch*workers/r.Workers), Logger: slog.New(slog.DiscardHandler),
		HandlerTimeout: -1, Expired: weir.ExpiredDrop, Hooks: weir.Hooks{Settled: r.settled},
	})
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

func (c *crew) start(ctx context.Context, p *weir.Pool) {
	c.all.Go(func() {
		err := p.Run(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.err = errors.Join(c.err, err)
	})
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
