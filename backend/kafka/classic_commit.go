package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

// commit writes down what has changed, as often as the broker answers, until the handle is
// closed. All that is finished or promised while one commit is on its way goes with the next.
func (c *classic) commit() {
	for {
		select {
		case <-c.b.closing.Done():
			return
		case <-c.due:
		}
		c.gather()
		ctx, cancel := context.WithTimeout(c.b.closing, callTimeout)
		err := c.commitOnce(ctx)
		cancel()
		if err == nil {
			continue
		}
		pause := commitRetry
		if !rejoins(err) {
			if err = c.b.explain(err); !backend.Retryable(err) {
				pause = refusedRetry
			}
			c.failed(err)
		}
		if !c.b.pause(c.b.closing, pause) {
			return
		}
		kick(c.due)
	}
}

// commitLinger is how long acknowledgements wait for each other, and for what is to be handed
// out, if nobody waits for them.
const commitLinger = 2 * time.Millisecond

// gather waits until a commit is worth its request.
func (c *classic) gather() {
	if c.pressing() {
		return
	}
	timer := time.NewTimer(commitLinger)
	defer timer.Stop()
	for !c.pressing() {
		select {
		case <-c.due:
		case <-timer.C:
			return
		case <-c.b.closing.Done():
			return
		}
	}
}

// pressing reports whether somebody waits for a commit, or claims soon will.
func (c *classic) pressing() bool {
	ready, _ := c.b.held.readyCount()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.awaited > 0 {
		return true
	}
	more := c.fresh > 0
	for _, w := range c.windows {
		ready += len(w.promised)
		more = more || len(w.again) > 0
	}
	return more && ready <= c.ahead/2
}

// The pauses after a commit that failed: one that may get through, and one that may not
// unless somebody changes something.
const (
	commitRetry  = 50 * time.Millisecond
	refusedRetry = time.Second
)

// rejoins reports whether the group is being divided anew, or this member has been put out
// of it: the client learns of it at its next heartbeat.
func rejoins(err error) bool {
	return errors.Is(err, kerr.RebalanceInProgress) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.UnknownMemberID)
}

// mark is what a commit says of a window.
type mark struct {
	w        *window
	said     int64
	promised int
	finished int
}

// commitOnce promises what the claims want and writes down what has changed. The error is
// the first one of a partition.
func (c *classic) commitOnce(ctx context.Context) error {
	select {
	case <-c.commits:
		defer func() { c.commits <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l, err := c.b.layout(ctx)
	if err != nil {
		return err
	}
	if c.renewed(l) {
		return nil
	}
	req, parts := c.written(l.id)
	switch {
	case len(parts) == 0:
		return nil
	case req.MemberID == "": // nobody may commit for a group that has members
		return kerr.UnknownMemberID
	}
	sent := time.Now()
	resp, err := req.RequestWith(ctx, requestor{c.b, c.client})
	if err != nil {
		return c.b.onGroup(err, rightRead)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var failure error
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case err == nil:
				c.heard = sent
				c.answered(parts[p.Partition])
			case errors.Is(err, kerr.OffsetMetadataTooLarge) && c.metadata > 0:
				c.metadata /= 2 // the broker's offset.metadata.max.bytes is less than Kafka's default
				kick(c.due)
			case failure == nil:
				failure = c.b.onTopic(c.b.onGroup(err, rightRead), rightRead, c.b.set.topic)
			}
		}
	}
	if failure == nil {
		c.failure = nil
	}
	c.announce()
	return failure
}

// written makes the request of a commit.
func (c *classic) written(topicID [16]byte) (*kmsg.OffsetCommitRequest, map[int32]mark) {
	// The member first: if the group is joined anew after this, the broker refuses.
	member, generation := c.client.GroupMetadata()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.promise()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = c.b.set.group, member, generation
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = c.b.set.topic, topicID
	parts := map[int32]mark{}
	for _, w := range c.windows {
		if w.said == w.stored || w.base() < 0 {
			continue
		}
		base, metadata := c.write(w, c.metadata)
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = w.partition, base, w.epoch, &metadata
		topic.Partitions = append(topic.Partitions, p)
		parts[w.partition] = mark{w, w.said, len(w.promised), w.unwritten}
	}
	req.Topics = append(req.Topics, topic)
	return req, parts
}

// promise chooses what to make ready for the next claims. A message that ends its process
// should take no others with it to the dead letters: of what has been handed out before only as
// much is chosen as one claim takes, and of what the last owner has left behind at its last
// delivery but one, one record at a time. The lock is held.
func (c *classic) promise() {
	ready, again := c.b.held.readyCount()
	for _, w := range c.windows {
		ready += len(w.promised)
		for _, h := range w.promised {
			again += min(1, h.attempt-1)
		}
	}
	for _, w := range c.windows {
		fresh := w.fresh
		for {
			suspect, last := w.suspect(), w.lastChance(c.deliveries)
			if suspect && again >= c.most || !suspect && ready >= c.ahead || last && c.alone != nil && c.alone.out() || !w.promise() {
				break
			}
			if ready++; suspect {
				again++
			}
			if last {
				c.alone = w.promised[len(w.promised)-1]
			}
		}
		taken := fresh[:len(fresh)-len(w.fresh)]
		c.fresh -= len(taken)
		for _, h := range taken {
			c.bytes -= sizeOf(h.record)
		}
	}
	c.goOn()
	kick(c.room)
}

// answered hands out what the answer to a commit has made safe. The lock is held.
func (c *classic) answered(p mark) {
	w := p.w
	w.stored = p.said
	w.unwritten -= p.finished
	w.announce()
	if w.closing {
		return
	}
	c.b.held.put(w.promised[:p.promised])
	w.promised = slices.Delete(w.promised, 0, p.promised)
}

// unwrittenMost is how many acknowledgements of a partition may wait for a commit before
// the next one does. It bounds what a process repeats that is killed.
const unwrittenMost = 1000

// say settles records. What is accepted is finished, and said so in the next commit, for
// which it waits if the partition may be another's by now, because the broker has heard
// nothing of this member; what is released is handed out again by this member, if it keeps
// the partition, at its next claim.
func (c *classic) say(ctx context.Context, list []*held, says int8) (lost []string, err error) {
	if says == saysRelease {
		c.b.held.forget(list) // before it can be handed out again
	}
	c.mu.Lock()
	waits := map[*window]int64{}
	late := time.Since(c.heard) > c.session/2
	for _, h := range list {
		switch w := h.window; {
		case w.gone:
			lost = append(lost, h.id)
		case says == saysRelease:
			w.giveBack(h, !h.unstarted)
			h.unstarted = false
		default:
			if w.done(h); late || w.unwritten > unwrittenMost {
				waits[w] = w.said
			}
		}
	}
	c.mu.Unlock()
	kick(c.due)
	if says == saysRelease {
		return lost, nil
	}
	gone, err := c.await(ctx, waits)
	for _, h := range list {
		if gone[h.window] {
			lost = append(lost, h.id)
		}
	}
	c.b.held.forget(list)
	return lost, err
}

// await waits until what was said of windows is in a commit, and returns those that have
// gone to others before.
func (c *classic) await(ctx context.Context, waits map[*window]int64) (gone map[*window]bool, err error) {
	if len(waits) == 0 {
		return nil, nil
	}
	c.mu.Lock()
	c.awaited++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.awaited--
		c.mu.Unlock()
	}()
	kick(c.due)
	for w, said := range waits {
		for {
			c.mu.Lock()
			stored, isGone, changed := w.stored >= said, w.gone, w.changed
			c.mu.Unlock()
			if stored {
				break
			}
			if isGone {
				if gone == nil {
					gone = map[*window]bool{}
				}
				gone[w] = true
				break
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return gone, fmt.Errorf("kafka: %w: %w", backend.ErrOutcomeUnknown, ctx.Err())
			case <-c.b.closing.Done():
				return gone, errClosed
			}
		}
	}
	return gone, nil
}

// flushWait is how long a reading waits for a commit, which takes milliseconds, unless the brokers refuse it
// for a while.
const flushWait = time.Second

// flush waits until all that was said is in a commit, as those who look at it expect.
func (c *classic) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	c.mu.Lock()
	waits := map[*window]int64{}
	for _, w := range c.windows {
		if w.said > w.stored && w.unwritten > 0 {
			waits[w] = w.said
		}
	}
	c.mu.Unlock()
	_, _ = c.await(ctx, waits) // a reading that comes sooner is that of a moment ago
}

// renew makes sure that this member still owns what it holds: the broker accepts commits of
// its members only.
func (c *classic) renew(list []*held) (lost []string) {
	c.mu.Lock()
	waits := map[*window]int64{}
	for _, h := range list {
		if _, done := waits[h.window]; !done {
			h.window.said++
			waits[h.window] = h.window.said
		}
	}
	c.mu.Unlock()
	kick(c.due)
	ctx, cancel := context.WithTimeout(c.b.closing, callTimeout)
	defer cancel()
	gone, _ := c.await(ctx, waits) // what is not known to be lost is not
	for _, h := range list {
		if gone[h.window] {
			lost = append(lost, h.id)
		}
	}
	return lost
}
