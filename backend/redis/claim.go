package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

const (
	cursorStart = "0-0"
	// scanFor bounds how long a claim that finds no work scans the pending entries for
	// orphans before it waits for a new message.
	scanFor = 50 * time.Millisecond
	// waitsPerLease and shortestWait bound one blocking read of a claim.
	waitsPerLease = 4
	shortestWait  = 10 * time.Millisecond
	// anyone is an idle time that lets anyone claim: the longest ReclaimAfter.
	anyone = 24 * time.Hour
)

// claim is one call of Claim.
type claim struct {
	*backend.ClaimRequest
	got    backend.Claimed
	since  time.Time
	scan   int                      // COUNT of a scan for orphans
	leases map[string]time.Duration // by consumer, if any differs from this claim's; otherwise nil
	taken  bool                     // the scan took over what it found
	counts map[string]int           // by ID: how many deliveries the scan has seen of an orphan
	left   bool                     // orphans may be this consumer's without having been handed out
	read   bool                     // what is new was asked for
	// again are those of the new deliveries that this process has already.
	again []*backend.Delivery
	// passed reports that something was read that was sent back to another group.
	passed bool
	// unmoved is why what is due could not be moved into the stream.
	unmoved error
}

// room returns how many more deliveries may be handed out.
func (c *claim) room() int { return c.Max - len(c.got.Deliveries) }

// Claim hands out abandoned deliveries first, then new messages. If there are neither
// it waits for new messages only, at most for Block.
func (b *Backend) Claim(ctx context.Context, req backend.ClaimRequest) (backend.Claimed, error) {
	if err := b.claims.enter(); err != nil {
		return backend.Claimed{}, b.explain(ctx, err)
	}
	defer b.claims.begun.Done()
	b.reclaimAfter.Store(int64(req.ReclaimAfter))
	b.names.add(req.Consumer)
	b.acked.expire(time.Now(), b.roster.longest(req.ReclaimAfter))
	if untold := b.untold.Swap(nil); untold != nil {
		return backend.Claimed{}, *untold
	}
	if err := b.recoverMissed(ctx, req.Consumer); err != nil && !errors.Is(err, backend.ErrGroupNotFound) {
		return backend.Claimed{}, err
	}
	b.missed.claims.RLock()
	defer b.missed.claims.RUnlock()
	want := req.Max
	req.Max = b.missed.limit(want)
	c := &claim{ClaimRequest: &req, since: time.Now(), scan: req.Max}
	b.findPlace(ctx)
	start := beginning{at: c.since, seen: b.acked.newest()}
	err := b.claim(ctx, c)
	if start.read = c.read; c.left {
		b.missed.note(req.Consumer, start)
	}
	b.missed.ended(req.Consumer, req.Max, want, start, err)
	if errors.Is(err, backend.ErrGroupNotFound) {
		if err = b.createGroup(ctx); err == nil {
			err = b.claim(ctx, c)
		}
	}
	if c.got.Failed == nil {
		c.got.Failed = b.later.why()
	}
	if len(c.got.Lost) > 0 {
		_ = b.forget(ctx, c.got.Lost) // leftover notes do no harm
	}
	if err == nil || c.any() {
		b.grouped.Store(true)
	}
	if !c.any() {
		return c.got, err
	}
	if errors.Is(err, backend.ErrGroupNotFound) {
		b.untold.Store(&err)
	}
	return c.got, nil // what was claimed has to be worked on; a persistent error shows up on the next claim
}

// claim looks and waits in turn until there is something. It never waits longer than a
// fraction of ReclaimAfter: when during a wait a message was delivered is unknown, so
// its lease counts from the start of the wait; and orphans have to be looked for.
func (b *Backend) claim(ctx context.Context, c *claim) error {
	for end := c.since.Add(c.Block); ; {
		if paused, err := b.rest(ctx, c, end); paused || err != nil {
			return err
		}
		c.since = time.Now()
		if err := b.look(ctx, c); err != nil || c.any() {
			return err
		}
		if c.passed {
			c.passed = false
			continue // there may be more after what was another group's
		}
		left := min(time.Until(end), max(c.ReclaimAfter/waitsPerLease, shortestWait))
		if left <= 0 || c.HasEnough() || c.unmoved != nil {
			return c.unmoved
		}
		b.watchOver(left)
		c.since = time.Now()
		left = b.later.wait(left, c.since)
		if err := b.waitNew(ctx, c, left); err != nil {
			return err
		}
		if err := b.unlessPaused(ctx, c); err != nil || c.any() || c.HasEnough() {
			return err
		}
		c.since = time.Now()
	}
}

// look claims what is available now.
func (b *Backend) look(ctx context.Context, c *claim) error {
	start := time.Now()
	if err := b.enroll(ctx, c.ClaimRequest); err != nil {
		return err
	}
	if b.orphans.Load() {
		if err := b.reclaim(ctx, c); err != nil || c.room() <= 0 {
			return err
		}
		if err := b.readNew(ctx, c); err != nil || c.any() {
			return err
		}
	} else if err := b.reclaimAndRead(ctx, c); err != nil || c.any() {
		return err
	}
	for !b.scanned() && c.got.Failed == nil && time.Since(start) < scanFor {
		if err := b.reclaim(ctx, c); err != nil || c.any() {
			return err
		}
	}
	return nil
}

// hand adds new deliveries. What this process has already, because the server has forgotten that it
// handed it out, as after a failover, is not new to it: it counts as taken over, so that no
// second handler begins beside the first.
func (c *claim) hand(fresh []*backend.Delivery) {
	for _, d := range fresh {
		if slices.Contains(c.again, d) {
			c.got.Deliveries = slices.Insert(c.got.Deliveries, c.got.Reclaimed, d)
			c.got.Reclaimed++
		} else {
			c.got.Deliveries = append(c.got.Deliveries, d)
		}
	}
}

func (c *claim) any() bool {
	return len(c.got.Deliveries)+len(c.got.Dead)+len(c.got.Lost) > 0
}

// reclaimAndRead looks for orphans and reads new messages in one round trip. If that
// yields more than was asked for, the new ones go back unstarted.
func (b *Backend) reclaimAndRead(ctx context.Context, c *claim) error {
	c.scan = b.scanShare(c)
	scan, read := b.scanCmd(ctx, c), b.readCmd(ctx, c, c.Max)
	free, err := b.doAfterMove(ctx, c, read, scan)
	defer free()
	fresh, readErr := b.fresh(ctx, c, read)
	failed := errors.Join(err, readErr)
	if failed != nil && len(fresh) == 0 && scan.Err() != nil {
		return failed
	}
	ids, err := b.parseScan(scan, c) // which may have taken over orphans, whatever happened to the read
	if err == nil && len(ids) > 0 {
		err = b.take(ctx, c, ids)
	}
	if short := c.scan < c.Max; err == nil && short && len(ids) > 0 && c.room() > 0 {
		c.scan = c.Max // where there was one orphan there are more
		err = b.reclaim(ctx, c)
	}
	c.scan = c.Max
	keep := min(max(c.room(), 0), len(fresh))
	c.hand(fresh[:keep])
	if keep < len(fresh) {
		err = errors.Join(err, b.handBack(ctx, fresh[keep:]))
	}
	return errors.Join(failed, err)
}

// reclaim looks for orphans in the next part of the pending entries.
func (b *Backend) reclaim(ctx context.Context, c *claim) error {
	scan := b.scanCmd(ctx, c)
	if err := b.do(ctx, scan); err != nil {
		return err
	}
	ids, err := b.parseScan(scan, c)
	if err != nil || len(ids) == 0 {
		return err
	}
	return b.take(ctx, c, ids)
}

// readNew reads new messages that are already there.
func (b *Backend) readNew(ctx context.Context, c *claim) error {
	read := b.readCmd(ctx, c, c.room())
	free, err := b.doAfterMove(ctx, c, read)
	defer free()
	if err != nil {
		return err
	}
	fresh, err := b.fresh(ctx, c, read)
	c.hand(fresh)
	return err
}

// fresh reads the answer of an XREADGROUP and acknowledges what was sent back to
// another group. If that fails, it happens when the entry is reclaimed.
func (b *Backend) fresh(ctx context.Context, c *claim, read *redis.RawCmd) ([]*backend.Delivery, error) {
	all, err := b.parseRead(c, read)
	own := all[:0]
	ack := []any{"XACK", b.keys.stream, b.keys.group}
	for _, d := range all {
		if b.addressed(d) {
			own = append(own, d)
			continue
		}
		b.acked.forgot(d.ID, d.Since)
		ack = append(ack, d.ID)
	}
	if len(ack) == 3 {
		return own, err
	}
	c.passed = true
	if ackErr := b.do(ctx, redis.NewIntCmd(ctx, ack...)); ackErr != nil {
		return own, errors.Join(err, ackErr)
	}
	for _, name := range ack[3:] {
		b.acked.finished(name.(string))
	}
	return own, err
}

// addressed reports whether a message is for this group, and removes the header that says so.
func (b *Backend) addressed(d *backend.Delivery) bool {
	group, only := d.Headers[backend.HeaderRedriveGroup]
	if delete(d.Headers, backend.HeaderRedriveGroup); len(d.Headers) == 0 {
		d.Headers = nil
	}
	return !only || group == b.keys.group
}

func (b *Backend) readCmd(ctx context.Context, c *claim, count int) *redis.RawCmd {
	c.read = true
	return redis.NewRawCmd(ctx, "XREADGROUP", "GROUP", b.keys.group, c.Consumer,
		"COUNT", count, "STREAMS", b.keys.stream, ">")
}

// parseRead reads the answer of an XREADGROUP: [[stream, [entry, ...]]] or null.
func (b *Backend) parseRead(c *claim, cmd *redis.RawCmd) ([]*backend.Delivery, error) {
	if cmd.Err() != nil {
		return nil, nil
	}
	r := replyReader{cmd.Val()}
	n, err := r.ofStream()
	if err != nil || n < 0 {
		return nil, err
	}
	deliveries := make([]*backend.Delivery, 0, n)
	defer func() { c.again = b.acked.took(deliveries...) }() // an answer that breaks off has delivered too
	store := make([]backend.Delivery, n)
	var fields []field
	for i := range n {
		name, found, err := r.entry(fields)
		if err != nil {
			return deliveries, err
		}
		fields = found
		d := &store[i]
		c.fill(d, string(name), 1, found)
		deliveries = append(deliveries, d)
	}
	return deliveries, nil
}

func (c *claim) fill(d *backend.Delivery, id string, attempt int, fields []field) {
	meaning := decode(fields)
	d.Lease = backend.Lease{ID: id, Consumer: c.Consumer, Attempt: attempt, Since: c.since}
	d.Data, d.Headers, d.Enqueued = meaning.data, meaning.headers, meaning.enqueued
	d.Deadline = backend.DeadlineOf(meaning.headers)
}

// handBack returns new deliveries as if they had never been read.
func (b *Backend) handBack(ctx context.Context, deliveries []*backend.Delivery) error {
	returns := make([]backend.Return, len(deliveries))
	for i, d := range deliveries {
		returns[i] = backend.Return{Lease: d.Lease, NotStarted: true}
	}
	_, err := b.Nack(ctx, returns)
	return err
}

// createGroup creates the group, and with it the stream. A new group starts at the
// first entry; one that existed before starts after what this process has done, unless
// the stream is new too: its IDs say nothing about the old one's.
func (b *Backend) createGroup(ctx context.Context) error {
	if b.set.create == createNever && !b.grouped.Load() {
		return fmt.Errorf("redis: %w: stream %q has no group %q, and create=never: check the name, or create it with XGROUP CREATE",
			backend.ErrGroupNotFound, b.keys.stream, b.keys.group)
	}
	existed := b.grouped.Load() // before the server is asked: another claim may find the group that this one makes
	position, seen := b.acked.position()
	if b.set.start == startNew && !existed {
		position = startNew
	}
	own := 0
	if b.own.Load() {
		own = 1
	}
	create := groupScript.cmd(ctx, []string{b.keys.stream, b.keys.about}, b.keys.group, position, seen, own)
	err := b.do(ctx, create)
	if code, _ := replyCode(err); code == "BUSYGROUP" {
		return nil
	}
	if err != nil {
		return err
	}
	r := replyReader{create.Val()}
	if _, err = r.array(); err != nil {
		return err
	}
	took, err := r.text()
	if err != nil {
		return err
	}
	if took != position {
		position = took
		b.acked.restart(took)
	}
	_ = b.do(ctx, redis.NewIntCmd(ctx, "DEL", b.keys.retry)) // what was known belongs to the old one
	empty := cursorStart
	b.cursor.Store(&empty)
	if existed {
		return fmt.Errorf("redis: %w: group %q was gone and has been created again after %s: %w",
			backend.ErrUnavailable, b.keys.group, position, backend.ErrGroupNotFound)
	}
	return nil
}
