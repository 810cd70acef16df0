package weir

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

// buryAtOnce is how many messages are moved to the dead letters at the same time:
// after an overload there are many, and each is a call.
const buryAtOnce = 16

// expireLoop sets aside the messages whose deadlines passed before a handler began. It is
// a loop of its own so that failed deliveries do not wait behind them.
func (p *Pool) expireLoop(ctx context.Context) {
	for open := true; open; {
		select {
		case <-p.expired.kick:
		case <-p.expired.done:
			open = false
		}
		jobs := p.drainLane(&p.expired)
		for len(jobs) > 0 {
			n := min(len(jobs), maxSettle)
			if p.cfg.Expired == ExpiredDrop {
				p.drop(ctx, jobs[:n])
			} else {
				p.buryExpired(ctx, jobs[:n])
			}
			jobs = jobs[n:]
		}
	}
}

// drop acknowledges expired messages.
func (p *Pool) drop(ctx context.Context, jobs []*job) {
	for _, j := range jobs {
		p.logExpired(j, lateBy(j))
	}
	leases := appendLeases(make([]backend.Lease, 0, len(jobs)), jobs)
	lost, ok := p.tell(ctx, jobs, false, func(ctx context.Context) ([]string, error) {
		return p.backend.Ack(ctx, leases)
	})
	p.settled(jobs, lost, ok, Expired)
}

// buryExpired moves expired messages to the dead letters.
func (p *Pool) buryExpired(ctx context.Context, jobs []*job) {
	p.buryEach(jobs, func(j *job) {
		text := lateBy(j)
		p.logExpired(j, text)
		lost, ok := p.moveDead(ctx, j, backend.Cause{Reason: backend.ReasonExpired, Error: text, NotStarted: true})
		p.settled([]*job{j}, lost, ok, Expired)
	})
}

// buryEach calls bury for every job, for several at a time: their leases run out meanwhile.
func (p *Pool) buryEach(jobs []*job, bury func(*job)) {
	var calls sync.WaitGroup
	slots := make(chan struct{}, buryAtOnce)
	for _, j := range jobs {
		slots <- struct{}{}
		calls.Go(func() {
			bury(j)
			<-slots
		})
	}
	calls.Wait()
}

// lateBy says how long ago a message's deadline was.
func lateBy(j *job) string {
	at := j.delivery.Deadline
	return fmt.Sprintf("its deadline %s had passed %s before a handler could begin", at.UTC().Format(time.RFC3339Nano), time.Since(at).Round(time.Millisecond))
}
