package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// denial is why there is no count, nil if there need not be one, and since when.
type denial struct {
	at  time.Time
	err error
}

// askAgain is how long a service that cannot count is not asked again.
const askAgain = time.Minute

// Tally adds to the counters of all producers of the queue, and reads the queue with the
// same call. An older server cannot count.
func (b *Backend) Tally(ctx context.Context, add []uint32) ([]uint32, *backend.Signal, error) {
	if no := b.noTally.Load(); no != nil && time.Since(no.at) < askAgain {
		return nil, nil, no.err
	}
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	res, err := b.svc.Tally(ctx, b.opt.Topic, add)
	if api.IsCode(err, api.CodeNotAQueue) {
		b.noTally.Store(&denial{at: time.Now()}) // nobody works on a log
		return nil, nil, nil
	}
	if err != nil {
		if err = b.fail(err, false); !backend.Retryable(err) && ctx.Err() == nil {
			err = fmt.Errorf("the server does not count what producers are offered: %w", err)
			b.noTally.Store(&denial{time.Now(), err})
		}
		return nil, nil, err
	}
	st := api.TopicState{TopicCounters: res.TopicCounters, Queue: res.Queue}
	b.otherwise.Store(int64(res.HeadSeq-res.Count) - res.Finished)
	var s backend.Signal
	s.XLen, s.Pending, s.Delayed, s.Lag = numbers(&st)
	s.Retrying = retrying(&st)
	workers := s.Pending
	s.Workers, s.Counted, s.Finished, s.Paused = &workers, true, &res.Finished, res.Paused
	return res.Sums, &s, nil
}
