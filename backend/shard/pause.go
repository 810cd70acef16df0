package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// Pause pauses or resumes all shards, also those by which others have made them more. If one
// cannot be paused, all are as they were.
func (s *Stream) Pause(ctx context.Context, paused bool) error {
	var changed []*part
	err := s.ensure(ctx)
	for n := 0; err == nil; {
		if err = s.keepUp(ctx); err != nil {
			break
		}
		all := s.all()[n:]
		if len(all) == 0 {
			return nil
		}
		was, errs := fan(all, func(_ int, p *part) (bool, error) {
			stats, unread := p.Stats(ctx)
			return unread == nil && stats.Paused, p.named(p.pause(ctx, paused))
		})
		for i, p := range all {
			if !was[i] && (errs[i] == nil || errors.Is(errs[i], backend.ErrOutcomeUnknown)) {
				changed = append(changed, p)
			}
		}
		n, err = n+len(all), firstOf(errs)
	}
	if !paused {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	_, errs := fan(changed, func(_ int, p *part) (struct{}, error) { return struct{}{}, p.named(p.pause(ctx, false)) })
	return errors.Join(append(errs, err)...)
}

// keepUp opens shards that others have added.
func (s *Stream) keepUp(ctx context.Context) error {
	if s.keeper == nil {
		return nil
	}
	found, err := s.keeper.Shards(ctx, 0)
	if err != nil {
		return fmt.Errorf("shards of %q: %w", s.opt.Name, err)
	}
	return s.openTo(ctx, found.Now, time.Now().Add(ripens))
}

func (p *part) pause(ctx context.Context, paused bool) error {
	b, ok := p.Backend.(backend.Pauser)
	if !ok {
		return fmt.Errorf("shard %d: a %s stream cannot be paused", p.number, p.Info().Kind)
	}
	if err := b.Pause(ctx, paused); err != nil {
		return fmt.Errorf("shard %d: %w", p.number, err)
	}
	return nil
}

// pauseLike makes the shards from number on paused if the first one is, and else not: a
// stream may grow in a pause.
func (s *Stream) pauseLike(ctx context.Context, from int) error {
	all := s.all()
	first, err := all[0].Stats(ctx)
	if err != nil {
		if backend.Retryable(err) {
			return err
		}
		return nil // who may not read it may not pause either
	}
	for _, p := range all[min(from, len(all)):] {
		stats, err := p.Stats(ctx)
		if err == nil && stats.Paused != first.Paused {
			err = p.pause(ctx, first.Paused)
		}
		if err != nil && !errors.Is(err, backend.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}
