package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// errOtherType is a group that exists as another type: the brokers keep one kind of
// state per group.
var errOtherType = errors.New("the group exists as another type")

// otherType returns an error if the group exists and is of the other type.
func (b *Backend) otherType(ctx context.Context) error {
	there, wanted := groupClassic, groupShare
	if b.facts.groupType == groupClassic {
		there, wanted = groupShare, groupClassic
	}
	if err := b.consumerType(ctx); err != nil {
		return err
	}
	if found, _ := b.exists(ctx, there, b.set.group); !found { // what the brokers do not say is not there
		return nil
	}
	return fmt.Errorf("kafka: group %q: %w: %s, not %s (%s); name another group, or add group_type=%s to the URL",
		b.set.group, errOtherType, there, wanted, b.facts.why, there)
}

// consumerType returns an error if a share group is wanted and the group is one of the newer
// consumer groups.
func (b *Backend) consumerType(ctx context.Context) error {
	if b.facts.groupType != groupShare || !b.newer(ctx, b.set.group) {
		return nil
	}
	return fmt.Errorf("kafka: group %q: %w: consumer (group.protocol=consumer), not share (%s); name another group",
		b.set.group, errOtherType, b.facts.why)
}

// newer reports whether a group is one of the newer consumer groups (KIP-848), which have a type of
// their own and take classic members. What the brokers do not say is not there.
func (b *Backend) newer(ctx context.Context, name string) bool {
	groups, err := named(ctx, b, b.admin.DescribeConsumerGroups, name)
	group := groups[name]
	return err == nil && group.Err == nil && group.State != "" && group.State != "Dead"
}

// groupThere returns ErrGroupNotFound if nobody has ever joined the group, and an error if
// it is of the other type.
func (b *Backend) groupThere(ctx context.Context) error {
	if found, err := b.exists(ctx, b.facts.groupType, b.set.group); found || err != nil {
		return b.explain(err)
	}
	if err := b.otherType(ctx); err != nil {
		return err
	}
	return b.explain(kerr.GroupIDNotFound)
}

// exists reports whether there is a group of this type, or one that a member of this type may join.
func (b *Backend) exists(ctx context.Context, groupType, name string) (bool, error) {
	state, err := coordinated(ctx, b, func(ctx context.Context) (string, error) { return b.groupState(ctx, groupType, name) })
	if errors.Is(err, kerr.GroupIDNotFound) {
		err = nil
	}
	there := err == nil && state != "" && state != "Dead"
	return there || err == nil && groupType == groupClassic && b.newer(ctx, name), err
}

// coordinated is what do returns, asked again while a group's coordinator, which may have to be made first, is not there.
func coordinated[T any](ctx context.Context, b *Backend, do func(context.Context) (T, error)) (T, error) {
	for {
		v, err := do(ctx)
		away := errors.Is(err, kerr.CoordinatorNotAvailable) || errors.Is(err, kerr.CoordinatorLoadInProgress)
		if !away || !b.pause(ctx, retryEvery) {
			return v, err
		}
	}
}

func (b *Backend) groupState(ctx context.Context, groupType, name string) (string, error) {
	if groupType == groupShare {
		groups, err := named(ctx, b, b.admin.DescribeShareGroups, name)
		if err != nil {
			return "", b.onGroup(err, rightDescribe)
		}
		group := groups[name]
		return group.GroupState, b.onGroup(group.Err, rightDescribe)
	}
	groups, err := named(ctx, b, b.admin.DescribeGroups, name)
	if err != nil {
		return "", b.onGroup(err, rightDescribe)
	}
	group := groups[name]
	return group.State, b.onGroup(group.Err, rightDescribe)
}

// groupMembers is how many consumers the brokers know in the group, weir's or others.
func (b *Backend) groupMembers(ctx context.Context) (int64, error) {
	if b.facts.groupType == groupShare {
		groups, err := named(ctx, b, b.admin.DescribeShareGroups, b.set.group)
		if err == nil {
			err = groups[b.set.group].Err
		}
		return int64(len(groups[b.set.group].Members)), err
	}
	groups, err := named(ctx, b, b.admin.DescribeGroups, b.set.group)
	if err == nil {
		err = groups[b.set.group].Err
	}
	return int64(len(groups[b.set.group].Members)), err
}

// exceptions are what the type of group cannot do that other backends can.
func (b *Backend) exceptions() []string {
	common := []string{
		"only the handle that claimed a message can settle it",
		"an idempotency key is known to the handle that used it and to no other",
	}
	if b.facts.groupType == groupClassic {
		return append(common,
			"a partition's messages are all with one handle: no more handles work than there are partitions, and what one leaves goes to another when it ends",
			fmt.Sprintf("a killed process is noticed after %s", b.sessionTimeout()),
			fmt.Sprintf("at most %d messages of a partition are out at a time, those that wait for a retry included", windowRecords),
			"if a process dies, what was ready for its next claim counts as delivered",
		)
	}
	return append(common,
		"a delivery counts even if no handler began",
		fmt.Sprintf("a message is delivered at most %d times, less if the group's %s is below %d", mostLimit-spare, groupLimit, mostLimit),
		"a broker that crashes forgets deliveries, which are not counted then",
	)
}
