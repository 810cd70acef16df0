package shard

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/weirmq/weir/backend"
)

// repeatEvery is how long to wait before asking again a shard that does not answer while
// others do.
const repeatEvery = 100 * time.Millisecond

// Extend extends leases at their shards. A lease of a shard that does not answer, while
// others do, is lost soon enough before it can run out; until then it is tried again.
func (s *Stream) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	return settle(ctx, s, leases, ofLease, func(p *part, own []backend.Lease) ([]string, error) {
		half, done := halfway(ctx)
		defer done()
		call, cancel := p.patience(half)
		defer cancel()
		began := time.Now()
		lost, err := p.Extend(call, own, d)
		if err == nil {
			p.doubtful.clear(own)
			return lost, nil
		}
		alone := s.aloneAway(ctx, p, began, err)
		lost = append(lost, p.doubtful.add(own, began, d, alone)...)
		if alone {
			return lost, nil // the others are held for now: a holder asks again when a third of d is over
		}
		return lost, err
	})
}

// doubtful are leases of a shard that could not be extended: whether it answers other calls
// says nothing about them.
type doubtful struct {
	mu  sync.Mutex
	all map[lease]doubt
}

type lease struct {
	id, token string
	attempt   int
}

// doubt is when a lease was extended last, and whether its holder believes that it has been
// since.
type doubt struct {
	since time.Time
	told  bool
}

func leaseOf(l *backend.Lease) lease { return lease{l.ID, l.Token, l.Attempt} }

// add notes that leases could not be extended for d by a call that began then, and returns
// the IDs of those that have to be given up. told says that the holder is told that the others
// are held; else he learns of the error.
func (l *doubtful) add(leases []backend.Lease, began time.Time, d time.Duration, told bool) (over []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[lease]doubt{}
	}
	maps.DeleteFunc(l.all, func(_ lease, x doubt) bool { return began.Sub(x.since) > 2*d }) // settled, or given up
	for i := range leases {
		key := leaseOf(&leases[i])
		x, known := l.all[key]
		if !known {
			x.since = leases[i].Since
		}
		x.told = x.told || told
		l.all[key] = x
		// Told once more, the holder asks at the latest when 11/15 of d are over, and may have to repeat it.
		if x.told && began.Sub(x.since) > 2*d/5 {
			over = append(over, leases[i].ID)
		}
	}
	return over
}

// clear notes that leases were extended, or are lost.
func (l *doubtful) clear(leases []backend.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range leases {
		if len(l.all) == 0 {
			return
		}
		delete(l.all, leaseOf(&leases[i]))
	}
}

// Ack completes deliveries at their shards. Those of a shard that has been away for a
// while, when others answer, are lost: their messages come back when the shard is there.
func (s *Stream) Ack(ctx context.Context, leases []backend.Lease) ([]string, error) {
	return settle(ctx, s, leases, ofLease, func(p *part, own []backend.Lease) ([]string, error) {
		return s.insist(ctx, p, ids(own, ofLease), func(ctx context.Context) ([]string, error) { return p.Ack(ctx, own) })
	})
}

// Nack gives deliveries back to their shards. A shard that does not answer is as for Ack.
func (s *Stream) Nack(ctx context.Context, returns []backend.Return) ([]string, error) {
	return settle(ctx, s, returns, ofReturn, func(p *part, own []backend.Return) ([]string, error) {
		return s.insist(ctx, p, ids(own, ofReturn), func(ctx context.Context) ([]string, error) { return p.Nack(ctx, own) })
	})
}

// insist repeats a call that a shard does not answer, while others do: the caller would
// repeat it for all, and those that have answered would call its messages lost. If it
// was known that the shard is away, the call is made once.
func (s *Stream) insist(ctx context.Context, p *part, all []string, call func(context.Context) ([]string, error)) ([]string, error) {
	known := p.down.Load() != nil
	for {
		one, cancel := p.patience(ctx)
		began := time.Now()
		lost, err := call(one)
		cancel()
		if !s.aloneAway(ctx, p, began, err) {
			return lost, err
		}
		if known {
			return all, nil
		}
		select {
		case <-time.After(repeatEvery):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// halfway ends when half of the time of ctx is over: a shard that says nothing must not keep
// the caller from learning in time which leases of the others are lost.
func halfway(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ends := ctx.Deadline()
	if !ends {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

// patience bounds a call to a shard that is known to be away.
func (p *part) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.down.Load() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, overdue)
}

// aloneAway reports whether an error of a call that began then means that the shard does not
// answer while another one does.
func (s *Stream) aloneAway(ctx context.Context, p *part, began time.Time, err error) bool {
	if !backend.Retryable(err) {
		return false
	}
	if p.failed(ctx, began, err); ctx.Err() != nil {
		return false
	}
	for _, other := range s.all() {
		if other == p || other.down.Load() != nil {
			continue
		}
		call, cancel := context.WithTimeout(ctx, overdue)
		began := time.Now()
		_, err := other.Stats(call)
		cancel()
		if !backend.Retryable(err) {
			return true
		}
		other.failed(ctx, began, err)
	}
	return false
}

func ids[T any](items []T, id func(*T) *string) []string {
	all := make([]string, len(items))
	for i := range items {
		all[i] = *id(&items[i])
	}
	return all
}

func ofLease(l *backend.Lease) *string   { return &l.ID }
func ofReturn(r *backend.Return) *string { return &r.ID }

// settle lets each shard do its items, whose IDs are its own then. An item of no shard
// is lost.
func settle[T any](ctx context.Context, s *Stream, items []T, id func(*T) *string, do func(*part, []T) ([]string, error)) (lost []string, err error) {
	own := map[*part][]T{}
	var parts []*part
	for _, item := range items {
		at := id(&item)
		p, name := s.split(*at)
		if p == nil {
			lost = append(lost, *at)
			continue
		}
		if own[p] == nil {
			parts = append(parts, p)
		}
		*at = name
		own[p] = append(own[p], item)
	}
	if len(parts) == 0 {
		return lost, ctx.Err()
	}
	gone, errs := fan(parts, func(_ int, p *part) ([]string, error) {
		gone, err := do(p, own[p])
		return gone, p.named(err)
	})
	for i, p := range parts {
		for _, name := range gone[i] {
			lost = append(lost, p.prefix+name)
		}
	}
	return lost, firstOf(errs)
}

// DeadLetter moves a delivery to the dead letters of its shard.
func (s *Stream) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	p, name := s.split(d.ID)
	if p == nil {
		return fmt.Errorf("message %q: %w: it is of no shard", d.ID, backend.ErrLeaseLost)
	}
	own := *d
	own.ID = name
	return p.DeadLetter(ctx, &own, s.shelf(p, to), cause)
}
