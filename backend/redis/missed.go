package redis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

const (
	// missedMost is how many of a consumer's pending entries are looked through for
	// those it never got.
	missedMost = 10_000
	// missedSlack is how much longer ago than by this process's clock a claim may have
	// been executed.
	missedSlack = time.Second
)

// missed keeps account of claims whose answers did not come. The server has counted
// a delivery for what they hold, but nobody here has seen it: it is given back
// uncounted before anything else is claimed, so that a slow or broken link cannot
// bring a message to its delivery limit. A process that crashes counts as ever.
type missed struct {
	claims sync.RWMutex // held for reading by each claim under way
	since  atomic.Int64 // Unix ns; the start of the first claim without an answer; 0: none
	most   atomic.Int64 // deliveries in one answer; 0: as many as are asked for
}

// limit returns how many deliveries to ask for: fewer after an answer that did not come.
func (m *missed) limit(want int) int {
	if most := int(m.most.Load()); most > 0 {
		return min(want, most)
	}
	return want
}

// ended is told how a claim for n deliveries went that began at start.
func (m *missed) ended(n, want int, start time.Time, err error) {
	if err == nil {
		if most := m.most.Load(); most > 0 && int64(n) == most {
			if most *= 2; most >= int64(want) {
				most = 0
			}
			m.most.Store(most)
		}
		return
	}
	late := errors.Is(err, backend.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)
	if late || errors.Is(err, context.Canceled) {
		m.since.CompareAndSwap(0, start.UnixNano())
	}
	if late {
		m.most.Store(int64(max(1, n/2)))
	}
}

// recoverMissed gives back what claims without an answer may have been given. It
// waits for no other claim: what that one is being given now looks the same.
func (b *Backend) recoverMissed(ctx context.Context, consumer string) error {
	m := &b.missed
	since := m.since.Load()
	if since == 0 || !m.claims.TryLock() {
		return nil
	}
	defer m.claims.Unlock()
	page := redis.NewRawCmd(ctx, "XPENDING", b.keys.stream, b.keys.group, "-", "+", missedMost, consumer)
	if err := b.do(ctx, page); err != nil {
		return err
	}
	r := &replyReader{page.Val()}
	n, err := r.array()
	if err != nil {
		return err
	}
	var back []backend.Return
	oldest := time.Since(time.Unix(0, since)) + missedSlack
	for range n {
		p, err := r.pendingEntry()
		if err != nil {
			return err
		}
		if p.idle <= oldest && !b.acked.holds(p.id) {
			back = append(back, backend.Return{
				Lease:      backend.Lease{ID: p.id, Consumer: consumer, Attempt: p.count, Since: time.Now()},
				NotStarted: true,
			})
		}
	}
	if len(back) > 0 {
		if _, err := b.Nack(ctx, back); err != nil {
			return err
		}
		start := cursorStart
		b.cursor.Store(&start)
		b.orphans.Store(true) // they are there now, in front
	}
	m.since.CompareAndSwap(since, 0)
	return nil
}
