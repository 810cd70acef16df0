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
	// missedMost is how many of a consumer's pending entries are searched for those it
	// never received.
	missedMost = 10_000
	// missedSlack is how much earlier than this process's clock says a claim may have
	// been executed.
	missedSlack = time.Second
)

// missed keeps track of claims whose answers never arrived. The server has counted a
// delivery for each message they hold, but no one here has seen it: it is given back
// uncounted before anything else is claimed, so that a slow or broken link cannot push
// a message to its delivery limit. A crashed process counts as usual.
type missed struct {
	claims sync.RWMutex // read-locked by each claim in progress
	most   atomic.Int64 // deliveries in one answer; 0: as many as are asked for

	mu    sync.Mutex
	since map[string]time.Time // guarded by mu; consumer -> the start of its first claim without an answer
}

// note records that a claim of a consumer was not answered.
func (m *missed) note(consumer string, start time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = map[string]time.Time{}
	}
	if _, earlier := m.since[consumer]; !earlier && len(m.since) < maxNames {
		m.since[consumer] = start
	}
}

// of returns when the first claim of a consumer began that was not answered.
func (m *missed) of(consumer string) (since time.Time, any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, any = m.since[consumer]
	return since, any
}

func (m *missed) recovered(consumer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.since, consumer)
}

// limit returns how many deliveries to ask for: fewer after an answer that never
// arrived.
func (m *missed) limit(want int) int {
	if most := int(m.most.Load()); most > 0 {
		return min(want, most)
	}
	return want
}

// ended records how a consumer's claim for n deliveries that began at start went.
func (m *missed) ended(consumer string, n, want int, start time.Time, err error) {
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
		m.note(consumer, start)
	}
	if late {
		m.most.Store(int64(max(1, n/2)))
	}
}

// recoverMissed gives back what unanswered claims of a consumer may have been given. It does not run
// beside another claim, whose deliveries would look the same.
func (b *Backend) recoverMissed(ctx context.Context, consumer string) error {
	m := &b.missed
	since, any := m.of(consumer)
	if !any || !m.claims.TryLock() {
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
	oldest := time.Since(since) + missedSlack
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
		b.orphans.Store(true) // there are some now, at the front
	}
	m.recovered(consumer)
	return nil
}
