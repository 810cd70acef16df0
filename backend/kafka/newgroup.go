package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirmq/weir/backend"
)

// What a URL says about a group that is not there, as for Redis.
const (
	startFirst  = "0"
	startNew    = "$"
	createNever = "never"
)

// enter does what the URL says about a group that is not there, before its first member
// joins: create=never refuses it, start=$ has it begin at the ends of the partitions.
func (b *Backend) enter(ctx context.Context) error {
	if b.set.create != createNever && b.set.start != startNew {
		return nil
	}
	found, err := b.exists(ctx, b.facts.groupType, b.set.group)
	switch {
	case err != nil:
		return b.explain(err)
	case found:
		return nil
	case b.set.create == createNever:
		return fmt.Errorf("kafka: %w: there is no %s group %q, and create=never: check the name, or start one worker without it",
			backend.ErrGroupNotFound, b.facts.groupType, b.set.group)
	}
	return b.explain(b.placeAtEnds(ctx))
}

// placeAtEnds makes the group, with the ends of the partitions as its place. In a
// partition that is added later it begins at the first record.
func (b *Backend) placeAtEnds(ctx context.Context) error {
	l, err := b.layout(ctx)
	if err != nil {
		return err
	}
	ends, err := b.offsets(ctx, l, atEnd)
	if err != nil {
		return err
	}
	places := kadm.Offsets{}
	for p, end := range ends {
		places.AddOffset(b.set.topic, p, end, -1)
	}
	if b.facts.groupType == groupShare {
		placed, failed := asked(ctx, b, func(ctx context.Context) (kadm.AlterShareGroupOffsetsResponses, error) {
			return b.admin.AlterShareGroupOffsets(ctx, b.set.group, places)
		})
		err = errors.Join(failed, placed.Error())
	} else {
		placed, failed := asked(ctx, b, func(ctx context.Context) (kadm.OffsetResponses, error) {
			return b.admin.CommitOffsets(ctx, b.set.group, places)
		})
		err = errors.Join(failed, placed.Error())
	}
	if errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.NonEmptyGroup) {
		return nil // another worker was first
	}
	return b.onGroup(err, rightRead)
}
