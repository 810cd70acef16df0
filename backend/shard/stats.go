package shard

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

// sum adds numbers of which some may be unknown: then it is unknown too. What is unknown
// of a shard that is empty counts as 0 if others know theirs.
func sum[T any](of []T, number func(*T) *int64, empty func(*T) bool) *int64 {
	total, known := int64(0), false
	for i := range of {
		n := number(&of[i])
		switch {
		case n != nil:
			total, known = total+*n, true
		case !empty(&of[i]):
			return nil
		}
	}
	if !known {
		return nil
	}
	return &total
}

func noStats(s *backend.Stats) bool   { return s.XLen == 0 && s.Pending == 0 }
func noSignal(s *backend.Signal) bool { return s.XLen == 0 && s.Pending == 0 }

// waiting is how many messages nobody has claimed; if that is unknown, how many were
// counted.
func waiting(lag *int64, behind int64) int64 {
	if lag != nil {
		return *lag
	}
	return behind
}

// Stats is the sum of all shards; the age is that of the oldest message of all. What is
// missing in one shard is missing if it is in all.
func (s *Stream) Stats(ctx context.Context) (backend.Stats, error) {
	each, errs := fan(s.all(), func(_ int, p *part) (backend.Stats, error) {
		stats, err := p.Stats(ctx)
		return stats, p.named(err)
	})
	if err := firstOf(errs); err != nil {
		return backend.Stats{}, err
	}
	all := backend.Stats{
		OldestSource: backend.AgeNone,
		Lag:          sum(each, func(one *backend.Stats) *int64 { return one.Lag }, noStats),
		DeadLetters:  sum(each, func(one *backend.Stats) *int64 { return one.DeadLetters }, noStats),
	}
	for i := range each {
		one := &each[i]
		if one.At.After(all.At) {
			all.At = one.At
		}
		all.XLen += one.XLen
		all.Pending += one.Pending
		all.Paused = all.Paused || one.Paused
		all.Delayed += one.Delayed
		if all.Lag == nil {
			all.Behind += waiting(one.Lag, one.Behind)
		}
		if one.Workers != nil && (all.Workers == nil || *one.Workers > *all.Workers) {
			all.Workers = one.Workers // they work for all shards
		}
	}
	all.Missing = missing(each)
	oldest(&all, each)
	return all, nil
}

// missing returns what no shard has: the group, if one has at least the stream.
func missing(each []backend.Stats) error {
	first := each[0].Missing
	for i := range each {
		err := each[i].Missing
		if err == nil {
			return nil
		}
		if errors.Is(err, backend.ErrGroupNotFound) {
			first = err
		}
	}
	return first
}

// oldest takes over the highest age. If that of a shard is unknown it is an estimate.
func oldest(all *backend.Stats, each []backend.Stats) {
	unknown := false
	for i := range each {
		one := &each[i]
		switch {
		case one.OldestSource == backend.AgeNone:
		case one.OldestSource == backend.AgeUnknown:
			unknown = true
		case all.OldestSource == backend.AgeNone || one.OldestAge > all.OldestAge:
			all.OldestAge, all.OldestSource, all.Approx = one.OldestAge, one.OldestSource, one.Approx
		}
	}
	if unknown {
		if all.Approx = true; all.OldestSource == backend.AgeNone {
			all.OldestSource, all.Approx = backend.AgeUnknown, false
		}
	}
}

// Signal is the sum of what the shards say; what one of them does not know is unknown.
func (s *Stream) Signal(ctx context.Context, most int64) (backend.Signal, error) {
	each, errs := fan(s.all(), func(_ int, p *part) (backend.Signal, error) { return p.signal(ctx, most) })
	if err := firstOf(errs); err != nil {
		return backend.Signal{}, err
	}
	all := backend.Signal{
		Workers:  sum(each, func(one *backend.Signal) *int64 { return one.Workers }, noSignal),
		Lag:      sum(each, func(one *backend.Signal) *int64 { return one.Lag }, noSignal),
		Finished: sum(each, func(one *backend.Signal) *int64 { return one.Finished }, noSignal),
	}
	for i := range each {
		all.Pending += each[i].Pending
		all.Delayed += each[i].Delayed
		all.Retrying += each[i].Retrying
		all.GivenBack += each[i].GivenBack
		all.XLen += each[i].XLen
		all.Paused = all.Paused || each[i].Paused
		all.Counted = all.Counted || each[i].Counted
		if all.Lag == nil {
			all.Behind += waiting(each[i].Lag, each[i].Behind)
		}
	}
	return all, nil
}

// signal reads a shard and remembers how much is waiting there.
func (p *part) signal(ctx context.Context, most int64) (backend.Signal, error) {
	before, began := p.waiting.Load(), time.Now()
	var sig backend.Signal
	var err error
	if b, ok := p.Backend.(backend.Signaler); ok {
		sig, err = b.Signal(ctx, most)
	} else {
		var stats backend.Stats
		stats, err = p.Stats(ctx)
		sig = backend.Signal{Pending: stats.Pending, Lag: stats.Lag, Behind: stats.Behind, Delayed: stats.Delayed, XLen: stats.XLen, Workers: &stats.Pending, Counted: true}
	}
	if err == nil {
		p.waiting.Add(waiting(sig.Lag, sig.Behind) - before)
	} else {
		p.failed(ctx, began, err)
	}
	return sig, p.named(err)
}

// PublishSignal does so for every shard that exists.
func (s *Stream) PublishSignal(ctx context.Context, ttl time.Duration) error {
	_, errs := fan(s.all(), func(_ int, p *part) (struct{}, error) {
		if b, ok := p.Backend.(backend.Signaler); ok {
			return struct{}{}, p.named(b.PublishSignal(ctx, ttl))
		}
		return struct{}{}, nil
	})
	for i, err := range errs {
		if missing := errors.Is(err, backend.ErrStreamNotFound) || errors.Is(err, backend.ErrGroupNotFound); missing && slices.Contains(errs, nil) {
			errs[i] = nil
		}
	}
	return firstOf(errs)
}
