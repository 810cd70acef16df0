package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

var _ backend.Tallier = (*Backend)(nil)

// Brokers that refuse entries in the ledger are left alone for refusedFirst, and for twice as long each time, up
// to askAgain: a right may be taken away for a moment.
const (
	refusedFirst = time.Second
	askAgain     = time.Minute
)

// offers is what this handle has counted, and why it could not be written down.
type offers struct {
	turn   turn
	name   string // under which it is written; empty: the handle's own
	own    []uint32
	added  time.Time // when there was something to add last
	denied refusal
}

// renewAfter is how long a producer may have nothing to add before it counts anew under another
// name: readers forget those that they have not heard of for backAge.
const renewAfter = backAge / 2

// add adds to what this handle has counted.
func (o *offers) add(more []uint32) {
	now := time.Now()
	if !o.added.IsZero() && now.Sub(o.added) > renewAfter {
		o.name, o.own = newName(), nil
	}
	o.own, o.added = plus(o.own, more), now
}

// refusal is what the brokers refused, and when.
type refusal struct {
	at   time.Time
	err  error
	rest time.Duration // for which they are left alone
}

// note follows an answer; nil: they do not refuse any more.
func (d *refusal) note(err error) {
	if err == nil {
		*d = refusal{}
		return
	}
	*d = refusal{time.Now(), err, min(max(2*d.rest, refusedFirst), askAgain)}
}

// isDenial reports whether brokers will refuse entries in the ledger again. One that was deleted is made
// again by the next.
func isDenial(err error) bool {
	return !backend.Retryable(err) && !errors.Is(err, backend.ErrStreamNotFound)
}

func (d *refusal) still() error {
	if d.err != nil && time.Since(d.at) < d.rest {
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
	some := slices.ContainsFunc(add, func(n uint32) bool { return n != 0 })
	if some {
		b.offers.add(add)
	}
	if err := b.offers.denied.still(); err != nil {
		return nil, nil, err
	}
	if some {
		err = b.ledger.write(call, b.ledger.offers(), &entry{Offered: b.offers.own})
	}
	if err == nil {
		err = b.ledger.refresh(call)
	}
	if err != nil {
		err = fmt.Errorf("what producers are offered, in topic %q: %w", b.set.ledger(), b.cut(ctx, b.explain(err)))
		if isDenial(err) {
			b.offers.denied.note(err)
		}
		return nil, nil, err
	}
	b.offers.denied.note(nil)
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
func (l *ledger) offers() string    { return l.allOffers() + cmp.Or(l.b.offers.name, l.b.group.name()) }

// counted is what a producer had counted by its last entry.
type counted struct {
	at time.Time // the broker's
	n  []uint32
}

// forgetEvery is how often who is gone is forgotten.
const forgetEvery = time.Hour

// forget drops producers, and workers of any group, that were not heard of for backAge. The lock is held.
func (l *ledger) forget(now time.Time) {
	if now.Sub(l.forgot) <= forgetEvery {
		return
	}
	l.forgot = now
	maps.DeleteFunc(l.counts, func(_ string, c counted) bool { return now.Sub(c.at) > backAge })
	maps.DeleteFunc(l.entries, func(key string, e entry) bool {
		return strings.HasPrefix(key, workerPrefix) && now.Sub(e.at) > backAge
	})
}

// noteOffered adds what a producer has counted since its last entry: the sums do not fall
// when it is gone. The lock is held.
func (l *ledger) noteOffered(key string, at time.Time, now []uint32) {
	before := l.counts[key].n
	since := make([]uint32, len(now))
	for i := range now {
		since[i] = now[i]
		if i < len(before) {
			since[i] -= before[i]
		}
	}
	l.sums = plus(l.sums, since)
	l.counts[key] = counted{at, now}
}

func (l *ledger) offered(n int) []uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return plus(make([]uint32, n), l.sums)[:n]
}
