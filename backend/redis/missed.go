package redis

import (
	"context"
	"errors"
	"maps"
	"math"
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
	since map[string]beginning // guarded by mu; by consumer, of its first claim without an answer
	// counted is how many deliveries counted of an orphan before it was to be taken, notCounted if
	// nobody has asked; guarded by mu. It is there from its scan to the answer of the script.
	counted map[string]int
}

// beginning is when a claim began, and the newest ID that had been delivered by then, as far as this
// process knows.
type beginning struct {
	at   time.Time
	seen id
	read bool // the claim has asked for what is new
}

const notCounted = -1

// note records that a claim of a consumer was not answered.
func (m *missed) note(consumer string, start beginning) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.since == nil {
		m.since = map[string]beginning{}
	}
	if first, earlier := m.since[consumer]; earlier {
		first.read = first.read || start.read
		m.since[consumer] = first
	} else if len(m.since) < maxNames {
		m.since[consumer] = start
	}
}

// of returns how the first claim of a consumer began that was not answered.
func (m *missed) of(consumer string) (since beginning, any bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	since, any = m.since[consumer]
	return since, any
}

// taking notes the counts of orphans that are about to be taken.
func (m *missed) taking(counts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counted == nil {
		m.counted = make(map[string]int, len(counts))
	}
	maps.Copy(m.counted, counts)
}

// took forgets orphans that are taken, or certainly are not.
func (m *missed) took(ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range ids {
		delete(m.counted, name)
	}
}

// counts reports whether a delivery of which no answer came was counted as one by that claim. A scan
// takes orphans over and does not count, a read hands out what nobody has had before.
func (m *missed) counts(p pendingEntry, since beginning) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, known := m.counted[p.id]; known {
		return before != notCounted && p.count > before
	}
	v, err := parseID(p.id)
	return since.read && p.count < 2 && err == nil && since.seen.less(v)
}

func (m *missed) recovered(consumer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if delete(m.since, consumer); len(m.since) == 0 {
		m.counted = nil
	}
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
func (m *missed) ended(consumer string, n, want int, start beginning, err error) {
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

// findPlace asks, before the first claim, how far the group has got: what lies before that is not new to
// it. What cannot be read is not known.
func (b *Backend) findPlace(ctx context.Context) {
	if b.placed.Swap(true) {
		return
	}
	groups := redis.NewRawCmd(ctx, "XINFO", "GROUPS", b.keys.stream)
	if b.do(ctx, groups) != nil {
		return
	}
	all, _ := each(groups, math.MaxInt, (*replyReader).group)
	for _, g := range all {
		if v, err := parseID(g.last); err == nil && g.name == b.keys.group {
			b.acked.reached(v)
		}
	}
}

// pendingOf returns what a consumer holds from one ID to another, missedMost entries at most.
func (b *Backend) pendingOf(ctx context.Context, consumer, from, to string) ([]pendingEntry, error) {
	page := redis.NewRawCmd(ctx, "XPENDING", b.keys.stream, b.keys.group, from, to, missedMost, consumer)
	if err := b.do(ctx, page); err != nil {
		return nil, err
	}
	return each(page, missedMost, (*replyReader).pendingEntry)
}

// recoverMissed gives back what unanswered claims of a consumer may have been given, and what they had
// only taken over from others as it was. It does not run beside another claim, whose deliveries would
// look the same.
func (b *Backend) recoverMissed(ctx context.Context, consumer string) error {
	m := &b.missed
	since, any := m.of(consumer)
	if !any || !m.claims.TryLock() {
		return nil
	}
	defer m.claims.Unlock()
	pending, err := b.pendingOf(ctx, consumer, "-", "+")
	if err != nil {
		return err
	}
	var back []backend.Return
	oldest := time.Since(since.at) + missedSlack
	for _, p := range pending {
		if p.idle <= oldest && !b.acked.holds(p.id) {
			back = append(back, backend.Return{
				Lease:      backend.Lease{ID: p.id, Consumer: consumer, Attempt: p.count, Since: time.Now()},
				NotStarted: m.counts(p, since),
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
