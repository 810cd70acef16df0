package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// repeatEvery is how long to wait before asking again a shard that does not answer while
// others do.
const repeatEvery = 100 * time.Millisecond

// Extend extends leases at their shards. Leases of a shard that does not answer, while
// others do, are lost soon enough before they can run out; until then it is tried again.
func (s *Stream) Extend(ctx context.Context, leases []backend.Lease, d time.Duration) ([]string, error) {
	return settle(ctx, s, leases, ofLease, func(p *part, own []backend.Lease) ([]string, error) {
		call, cancel := p.patience(ctx)
		defer cancel()
		began := time.Now()
		lost, err := p.Extend(call, own, d)
		if !s.aloneAway(ctx, p, began, err) {
			return lost, err
		}
		if out := p.down.Load(); out != nil && time.Since(out.since) > d/4 {
			return ids(own, ofLease), nil
		}
		return nil, nil // it is held for now: a holder asks again when a third of d is over
	})
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
	gone, errs := fan(parts, func(_ int, p *part) ([]string, error) { return do(p, own[p]) })
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
