package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirmq/weir/backend"
)

// Pause pauses or resumes all shards. If one cannot be paused, none is.
func (s *Stream) Pause(ctx context.Context, paused bool) error {
	if err := s.ensure(ctx); err != nil {
		return err
	}
	all := s.all()
	_, errs := fan(all, func(_ int, p *part) (struct{}, error) { return struct{}{}, p.pause(ctx, paused) })
	err := firstOf(errs)
	if err == nil || !paused {
		return err
	}
	for i, p := range all {
		if errs[i] == nil {
			err = errors.Join(err, p.pause(ctx, false))
		}
	}
	return err
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

// pauseLike pauses the shards from number on if the first one is paused: a stream may grow
// in a pause.
func (s *Stream) pauseLike(ctx context.Context, from int) error {
	all := s.all()
	stats, err := all[0].Stats(ctx)
	if err != nil || !stats.Paused {
		return nil // who cannot read it cannot pause either
	}
	for _, p := range all[min(from, len(all)):] {
		if err := p.pause(ctx, true); err != nil && !errors.Is(err, backend.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}
