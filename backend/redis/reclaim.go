package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// pagePerDelivery is how many pending entries are examined per wanted delivery;
// XAUTOCLAIM uses the same.
const pagePerDelivery = 10

// scanCmd searches the next part of the pending entries for orphans. It continues where
// the last scan ended: starting over each time, many busy entries at the front would
// hide the orphans after them for ever.
func (b *Backend) scanCmd(ctx context.Context, c *claim) *redis.RawCmd {
	cursor := *b.cursor.Load()
	c.leases = b.roster.others(c.ReclaimAfter)
	if b.current(ctx).autoclaim && c.leases == nil {
		return redis.NewRawCmd(ctx, "XAUTOCLAIM", b.keys.stream, b.keys.group, c.Consumer,
			c.ReclaimAfter.Milliseconds(), cursor, "COUNT", c.wanted(), "JUSTID")
	}
	// Without IDLE, which examines all pending entries and does not exist in 5.0.
	return redis.NewRawCmd(ctx, "XPENDING", b.keys.stream, b.keys.group, cursor, "+", c.wanted()*pagePerDelivery)
}

// wanted returns how many orphans a scan may find.
func (c *claim) wanted() int { return max(1, min(c.scan, c.room())) }

// scanShare is how far a scan made beside a read goes. The server spends about 2 µs on
// each pending entry: the closer reads follow one another, the fewer entries a scan
// covers, so that the server spends at most a tenth of its time on scans.
func (b *Backend) scanShare(c *claim) int {
	const perDelivery = pagePerDelivery * 50 * time.Microsecond
	last := time.Unix(0, b.scannedAt.Swap(c.since.UnixNano()))
	return int(min(max(c.since.Sub(last)/perDelivery, 1), time.Duration(c.Max)))
}

// scanned reports whether the last scan reached the end.
func (b *Backend) scanned() bool { return *b.cursor.Load() == cursorStart }

// parseScan reads the answer of scanCmd and moves the cursor.
func (b *Backend) parseScan(cmd *redis.RawCmd, c *claim) (ids []string, err error) {
	if cmd.Err() != nil {
		return nil, nil
	}
	r := &replyReader{cmd.Val()}
	var next string
	if c.taken = isAutoclaim(cmd); c.taken {
		next, ids, err = c.parseAutoclaim(r)
	} else {
		next, ids, err = c.parsePending(r)
	}
	if err != nil {
		return nil, err
	}
	b.cursor.Store(&next)
	b.orphans.Store(len(ids) > 0 || b.orphans.Load() && next != cursorStart)
	return ids, nil
}

// forget removes what is known about deliveries whose entries the server found missing.
func (b *Backend) forget(ctx context.Context, lost []string) error {
	args := []any{"HDEL", b.keys.retry}
	for _, name := range lost {
		b.acked.finished(name)
		args = append(args, name)
	}
	return b.do(ctx, redis.NewIntCmd(ctx, args...))
}

func isAutoclaim(cmd redis.Cmder) bool { return cmd.Args()[0] == "XAUTOCLAIM" }

// parseAutoclaim reads [cursor, [ID, ...], [deleted ID, ...]], the last since 7.0.
// Before that the IDs of deleted entries are among the others.
func (c *claim) parseAutoclaim(r *replyReader) (next string, ids []string, err error) {
	parts, err := r.array()
	if err != nil {
		return "", nil, err
	}
	if next, err = r.text(); err != nil {
		return "", nil, err
	}
	if ids, err = r.texts(nil); err != nil || parts < 3 {
		return next, ids, err
	}
	c.got.Lost, err = r.texts(c.got.Lost)
	return next, ids, err
}

// parsePending reads [[ID, consumer, idle, count], ...], a page of pending entries.
func (c *claim) parsePending(r *replyReader) (next string, ids []string, err error) {
	n, err := r.array()
	if err != nil {
		return "", nil, err
	}
	last := ""
	c.counts = map[string]int{}
	for range n {
		p, err := r.pendingEntry()
		if err != nil {
			return "", nil, err
		}
		if len(ids) == c.wanted() {
			return after(last), ids, nil
		}
		lease, told := c.leases[p.consumer]
		if !told {
			lease = c.ReclaimAfter
		}
		if last = p.id; p.idle >= lease {
			ids = append(ids, p.id)
			c.counts[p.id] = p.count
		}
	}
	if n < c.wanted()*pagePerDelivery {
		return cursorStart, ids, nil
	}
	return after(last), ids, nil
}

// pending reads [ID, consumer, idle, count].
func (r *replyReader) pending() (name string, idle int, err error) {
	if _, err = r.array(); err != nil {
		return "", 0, err
	}
	if name, err = r.text(); err != nil {
		return "", 0, err
	}
	if _, err = r.bytes(); err != nil {
		return "", 0, err
	}
	if idle, err = r.int(); err != nil {
		return "", 0, err
	}
	_, err = r.bytes()
	return name, idle, err
}

// after returns the next ID after one.
func after(name string) string {
	v, err := parseID(name)
	if err != nil {
		return cursorStart
	}
	return v.next().String()
}

// texts reads [string, ...] and appends it to list.
func (r *replyReader) texts(list []string) ([]string, error) {
	n, err := r.array()
	if err != nil {
		return list, err
	}
	for range n {
		text, err := r.text()
		if err != nil {
			return list, err
		}
		list = append(list, text)
	}
	return list, nil
}

// take counts a delivery for each orphan and sorts out those that are lost, not
// due or past the limit.
func (b *Backend) take(ctx context.Context, c *claim, ids []string) error {
	least := c.ReclaimAfter.Milliseconds()
	if c.taken {
		least = -1
		if err := b.countDeliveries(ctx, c, ids); err != nil {
			return b.untaken(c, ids, err)
		}
	}
	b.missed.taking(c.counts)
	args := []any{b.keys.group, c.Consumer, least, c.ReclaimAfter.Milliseconds(), max(c.MaxDeliveries, 0)}
	for _, name := range ids {
		args = append(args, name)
	}
	cmd := takeScript.cmd(ctx, []string{b.keys.stream, b.keys.retry, b.keys.workers}, args...)
	if err := b.do(ctx, cmd); err != nil {
		return b.untaken(c, ids, err)
	}
	b.missed.took(ids)
	r := &replyReader{cmd.Val()}
	n, err := r.array()
	if err != nil {
		return err
	}
	var past []taken
	for range n {
		t, err := r.taken()
		if err != nil {
			return err
		}
		switch t.kind {
		case "d":
			d := &backend.Delivery{}
			c.fill(d, t.id, t.count, t.fields)
			_ = b.addressed(d) // the script has removed those that are not
			b.acked.took(d)
			c.got.Deliveries = append(c.got.Deliveries, d)
			c.got.Reclaimed++
		case "o":
			b.acked.finished(t.id)
		case "l":
			c.got.Lost = append(c.got.Lost, t.id)
		default:
			past = append(past, t)
		}
	}
	return b.bury(ctx, c, past)
}

// untaken learns why orphans were not taken, as far as is known. The next claim looks after them, unless
// it would fail as well: while the slot moves, new messages do not wait for that.
func (b *Backend) untaken(c *claim, ids []string, err error) error {
	if c.left = (ended(err) || backend.Retryable(err)) && !slotMoves(err); !c.left {
		b.missed.took(ids)
	}
	return err
}

// countDeliveries reads how often orphans that a scan took over have been delivered. Should their claim
// stay without an answer from here on, that tells whether it has counted one more.
func (b *Backend) countDeliveries(ctx context.Context, c *claim, ids []string) error {
	c.counts = make(map[string]int, len(ids))
	for _, name := range ids {
		c.counts[name] = notCounted
	}
	b.missed.taking(c.counts)
	pending, err := b.pendingOf(ctx, c.Consumer, ids[0], ids[len(ids)-1])
	if err != nil {
		return err
	}
	for _, p := range pending {
		if _, wanted := c.counts[p.id]; wanted {
			c.counts[p.id] = p.count
		}
	}
	return nil
}

// taken is the outcome for one orphan.
type taken struct {
	id, kind string
	count    int
	fields   []field
	err      string
}

func (r *replyReader) taken() (t taken, err error) {
	if _, err = r.array(); err != nil {
		return t, err
	}
	if t.id, err = r.text(); err != nil {
		return t, err
	}
	if t.kind, err = r.text(); err != nil {
		return t, err
	}
	if t.count, err = r.int(); err != nil {
		return t, err
	}
	if t.fields, err = r.fields(nil); err != nil {
		return t, err
	}
	t.err, err = r.text()
	return t, err
}

// bury moves orphans that have been delivered as often as allowed to the dead letters. What the
// server refuses to store there stays, and is tried again when it has been idle: there may be many of
// them, and the others wait for none.
func (b *Backend) bury(ctx context.Context, c *claim, past []taken) error {
	for _, t := range past {
		d := &backend.Delivery{}
		c.fill(d, t.id, t.count, t.fields)
		_ = b.addressed(d) // as for those that are handed out
		if t.kind == "c" {
			d.Data = nil
		}
		letter, err := b.moveDead(ctx, burial{
			delivery: d, to: c.DeadLetter, attempts: t.count,
			cause: backend.Cause{Reason: backend.ReasonMaxDeliveries, Error: t.err},
		})
		if errors.Is(err, backend.ErrLeaseLost) {
			continue
		}
		if err != nil {
			err = fmt.Errorf("dead letter of %s: %w", t.id, err)
			if errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrOutcomeUnknown) || ctx.Err() != nil {
				return err
			}
			c.got.Failed = err
			return nil
		}
		c.got.Dead = append(c.got.Dead, letter)
	}
	return nil
}
