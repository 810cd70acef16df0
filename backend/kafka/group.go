package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/weirmq/weir/backend"
)

// group is the handle's membership in its group. The handle decides what is claimed and
// for how long (shelf); the group decides what the handle is given, and is told what has
// become of it.
type group interface {
	// name is the member's name in the ledger.
	name() string
	// join makes the handle a member, once, and waits until it may be given records.
	join(ctx context.Context) error
	// joined reports whether it has got that far.
	joined() bool
	// limit returns how many deliveries a claim allows that asks for so many (0: any
	// number), or why it cannot allow them. 0 is no limit.
	limit(asked int) (int, error)
	// expect says that a claim is about to come.
	expect(req backend.ClaimRequest)
	// fetch puts records onto the shelf, waiting up to wait for the first. One at a time.
	fetch(req backend.ClaimRequest, wait time.Duration) error
	// say settles records in one way and returns the IDs of those that were not this
	// member's any more. What was said is off the shelf, even if the outcome is unknown.
	say(ctx context.Context, list []*held, says int8) (lost []string, err error)
	// renew keeps records from being given to others, and returns the IDs of those that
	// have been.
	renew(list []*held) (lost []string)
	// progress says how far the group is in each partition, whether the handle is a
	// member or not.
	progress(ctx context.Context) (map[int32]progress, error)
	// fetched returns of partitions behind which offset nothing has been fetched; what was fetched is
	// handed out, though it is stored no more.
	fetched() map[int32]int64
	// passedOver returns, once, what retention has removed of a topic's partitions in front of this member.
	passedOver(topic [16]byte) map[int32]*gapEntry
	// stuck says in which partitions something is left and nothing has been finished for some time.
	stuck(partitions []int32)
	// findings looks for what is wrong with the group.
	findings(ctx context.Context, add func(backend.Finding))
	// leave gives back what is held and leaves the group; close ends the connections.
	leave()
	close()
}

// joinTimeout is how long a claim waits for its first partitions.
const joinTimeout = 15 * time.Second

// awaitJoin waits until look, which it asks again after each change, says that the handle
// may be given records, or why it never will. waiting says what it waits for in vain.
func (b *Backend) awaitJoin(ctx context.Context, waiting string, look func() (ready bool, changed <-chan struct{}, failure error)) error {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	for {
		ready, changed, failure := look()
		switch {
		case ready:
			return nil
		case failure != nil && !backend.Retryable(failure):
			return failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if failure != nil {
				return failure
			}
			return fmt.Errorf("kafka: %w: %s: %w", backend.ErrUnavailable, waiting, ctx.Err())
		case <-b.closing.Done():
			return errClosed
		}
	}
}
