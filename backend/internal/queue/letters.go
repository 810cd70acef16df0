package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

// List returns the dead letters after the ID after, oldest first, including those moved
// by the server itself.
func (b *Backend) List(ctx context.Context, from, after string, limit int) ([]backend.DeadLetter, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var cursor uint64
	if after != "" {
		var ok bool
		if cursor, ok = parseSeq(after); !ok {
			return nil, fmt.Errorf("%q is not the ID of a dead letter; it is a number", after)
		}
	}
	var letters []backend.DeadLetter
	for len(letters) < limit {
		records, res, err := b.page(ctx, cmp.Or(from, b.info.DeadLetter), cursor, limit-len(letters))
		if api.IsCode(err, api.CodeTopicNotFound) {
			return letters, nil
		}
		if err != nil {
			return letters, b.fail(err, false)
		}
		for i := range records {
			letters = append(letters, readLetter(&records[i]))
		}
		if cursor = res.NextFromSeq; res.CaughtUp() {
			break
		}
	}
	return letters, nil
}

// maxPage is how many records one read may ask for.
const maxPage = 1000

func (b *Backend) page(ctx context.Context, topic string, cursor uint64, limit int) ([]api.Record, api.DiffResult, error) {
	return b.svc.Diff(ctx, topic, &api.DiffRequest{
		FromSeq: cursor, Limit: min(max(limit, 1), maxPage), IncludeTags: true, IncludeMeta: true, MaxBatchBytes: api.MaxDiffBytes,
	})
}

// errNotSingle explains why a single dead letter cannot be removed.
var errNotSingle = errors.New("the server itself moved this dead letter, so it has no tag of its own and can be removed only while it is the oldest: work from the oldest on, or delete by number with the server's delete call")

// Redrive appends the stored message to the queue it came from, under an idempotency
// key that lasts as long as that queue's window, and then removes the letter. Only the
// ID of letter is used.
func (b *Backend) Redrive(ctx context.Context, from string, letter backend.DeadLetter) error {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	from = cmp.Or(from, b.info.DeadLetter)
	r, oldest, err := b.find(ctx, from, letter.ID)
	if err != nil {
		return err
	}
	if !oldest && !isOwnLetter(r) {
		return errNotSingle
	}
	if !b.removes.Load() {
		// Whether the key may is known before anything is sent: this removes nothing.
		if _, err := b.svc.Delete(ctx, from, &api.DeleteRequest{HasBefore: true, BeforeSeq: 1}); err != nil {
			return b.fail(err, false)
		}
		b.removes.Store(true)
	}
	l := readLetter(r)
	to := cmp.Or(l.Stream, b.opt.Topic)
	key := fmt.Sprintf("redrive:%s:%s-%d", from, letter.ID, r.TS)
	back := sentOn(r)
	back.Tag, back.HasTag = r.Tag, r.HasTag
	without := append([]string{backend.HeaderDeadline}, deadHeaders...)
	if isOwnLetter(r) {
		tag, tagged := l.Headers[backend.HeaderTag]
		back.Tag, back.HasTag = []byte(tag), tagged
		without = append(without, backend.HeaderTag)
	}
	send := func(meta []byte, count map[string]string) (err error) {
		if back.Meta, err = changeMeta(meta, count, without...); err == nil {
			_, err = b.writeKeyed(ctx, to, back, key, true)
		}
		return err
	}
	if err = send(r.Meta, map[string]string{backend.HeaderRedrives: strconv.Itoa(l.Redrives + 1)}); isTooLarge(err) {
		err = send(api.UnstampedMeta(r.Meta), nil) // the message was accepted without the count
	}
	if err != nil {
		return fmt.Errorf("write to %q: %w", to, b.fail(err, true))
	}
	n, err := b.remove(ctx, from, r)
	switch {
	case err != nil:
		return fmt.Errorf("sent to %q but not removed; redriving it again soon stores nothing twice: %w", to, err)
	case n == 0: // another redrive has removed it, and sent the same
		return fmt.Errorf("dead letter %s: %w", letter.ID, backend.ErrNotFound)
	}
	return nil
}

// find reads one record of a dead-letter topic; oldest means that none is before it.
func (b *Backend) find(ctx context.Context, from, id string) (r *api.Record, oldest bool, err error) {
	seq, ok := parseSeq(id)
	if !ok {
		return nil, false, fmt.Errorf("%q is not the ID of a dead letter; it is a number", id)
	}
	r, earliest, err := b.record(ctx, from, seq)
	if err != nil {
		return nil, false, b.fail(err, true) // like the call it is part of
	}
	if r == nil {
		return nil, false, fmt.Errorf("dead letter %s: %w", id, backend.ErrNotFound)
	}
	return r, earliest >= seq, nil
}

// record reads one record, nil if it is not there, and the number of the topic's earliest.
func (b *Backend) record(ctx context.Context, topic string, seq uint64) (r *api.Record, earliest uint64, err error) {
	records, res, err := b.page(ctx, topic, seq-1, 1)
	switch {
	case api.IsCode(err, api.CodeTopicNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, err
	case len(records) == 0 || records[0].Seq != seq:
		return nil, 0, nil
	}
	return &records[0], res.EarliestSeq, nil
}

// writeKeyed appends a record that was accepted once, in whatever state the server is.
func (b *Backend) writeKeyed(ctx context.Context, to string, r api.Record, key string, queue bool) (api.WriteResult, error) {
	return b.writeTo(ctx, to, &api.WriteRequest{
		Records: []api.Record{r}, IdempotencyKey: []byte(shortKey(key)), HasIdempotencyKey: true, DisableBackpressure: true,
	}, queue)
}

// remove deletes one record: by its tag, or as the oldest one. Nothing in front of it is looked
// at, but by servers that do not know MinSeq.
func (b *Backend) remove(ctx context.Context, from string, r *api.Record) (uint64, error) {
	req := &api.DeleteRequest{HasBefore: true, BeforeSeq: r.Seq + 1}
	if isOwnLetter(r) {
		req.Match, req.MinSeq = &api.Predicate{Value: string(r.Tag)}, r.Seq
	}
	n, err := b.svc.Delete(ctx, from, req)
	return n, b.fail(err, true)
}

// Purge removes dead letters, the oldest ones together, others one by one.
func (b *Backend) Purge(ctx context.Context, from string, ids []string) (int, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	seqs, err := sortedIDs(ids)
	if err != nil {
		return 0, err
	}
	from = cmp.Or(from, b.info.DeadLetter)
	removed, rest, err := b.purgeOldest(ctx, from, seqs)
	if err != nil {
		return removed, err
	}
	for _, seq := range rest {
		r, oldest, err := b.find(ctx, from, formatSeq(seq))
		switch {
		case errors.Is(err, backend.ErrNotFound):
			continue
		case err != nil:
			return removed, err
		case !oldest && !isOwnLetter(r):
			return removed, fmt.Errorf("dead letter %d: %w", seq, errNotSingle)
		}
		n, err := b.remove(ctx, from, r)
		removed += int(n)
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// purgeOldest deletes the beginning of the topic as far as seqs covers it completely,
// and returns which are left.
func (b *Backend) purgeOldest(ctx context.Context, from string, seqs []uint64) (removed int, rest []uint64, err error) {
	var cursor, last uint64
	same := true
	for left := seqs; same && len(left) > 0; {
		records, res, err := b.page(ctx, from, cursor, len(left))
		if api.IsCode(err, api.CodeTopicNotFound) {
			return 0, nil, nil
		}
		if err != nil {
			return 0, nil, b.fail(err, false)
		}
		for i := range records {
			for len(left) > 0 && left[0] < records[i].Seq {
				left = left[1:] // already gone
			}
			if same = len(left) > 0 && left[0] == records[i].Seq; !same {
				break
			}
			last, left = records[i].Seq, left[1:]
		}
		if cursor = res.NextFromSeq; res.CaughtUp() {
			break
		}
	}
	for rest = seqs; len(rest) > 0 && rest[0] <= last; {
		rest = rest[1:]
	}
	if last == 0 {
		return 0, rest, nil
	}
	n, err := b.svc.Delete(ctx, from, &api.DeleteRequest{HasBefore: true, BeforeSeq: last + 1})
	return int(n), rest, b.fail(err, true)
}
