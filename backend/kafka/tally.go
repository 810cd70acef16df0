package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

var _ backend.Tallier = (*Backend)(nil)

// askAgain is how long brokers that refuse entries in the ledger are left alone.
const askAgain = time.Minute

// offers is what this handle has counted, and why it could not be written down.
type offers struct {
	turn   turn
	own    []uint32
	denied refusal
}

// refusal is what the brokers refused, and when.
type refusal struct {
	at  time.Time
	err error
}

// isDenial reports whether brokers will refuse entries in the ledger again. One that was deleted is made
// again by the next.
func isDenial(err error) bool {
	return !backend.Retryable(err) && !errors.Is(err, backend.ErrStreamNotFound)
}

func (d *refusal) still() error {
	if d.err != nil && time.Since(d.at) < askAgain {
		return d.err
	}
	return nil
}

// Tally writes down what this handle has counted in all, and returns the sums of what all
// have. It takes one append, if there is anything to add, and one read.
func (b *Backend) Tally(ctx context.Context, add []uint32) ([]uint32, *backend.Signal, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	if err := b.offers.turn.take(call); err != nil {
		return nil, nil, b.cut(ctx, err)
	}
	defer b.offers.turn.give()
	b.offers.own = plus(b.offers.own, add)
	if err := b.offers.denied.still(); err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(add, func(n uint32) bool { return n != 0 }) {
		err = b.ledger.write(call, b.ledger.offers(), &entry{Offered: b.offers.own})
	}
	if err == nil {
		err = b.ledger.refresh(call)
	}
	if err != nil {
		err = fmt.Errorf("what producers are offered, in topic %q: %w", b.set.ledger(), b.cut(ctx, b.explain(err)))
		if isDenial(err) {
			b.offers.denied = refusal{time.Now(), err}
		}
		return nil, nil, err
	}
	return b.ledger.offered(len(add)), nil, nil
}

// plus adds counters, which wrap.
func plus(sums, add []uint32) []uint32 {
	sums = append(sums, make([]uint32, max(0, len(add)-len(sums)))...)
	for i, n := range add {
		sums[i] += n
	}
	return sums
}

func (l *ledger) allOffers() string { return "offered/" + l.b.set.group + "/" }
func (l *ledger) offers() string    { return l.allOffers() + l.b.group.name() }

// noteOffered adds what a producer has counted since its last entry: the sums do not fall
// when it is gone. The lock is held.
func (l *ledger) noteOffered(key string, now []uint32) {
	before := l.counts[key]
	since := make([]uint32, len(now))
	for i := range now {
		since[i] = now[i]
		if i < len(before) {
			since[i] -= before[i]
		}
	}
	l.sums = plus(l.sums, since)
	l.counts[key] = now
}

func (l *ledger) offered(n int) []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return plus(make([]uint32, n), l.sums)[:n]
}
