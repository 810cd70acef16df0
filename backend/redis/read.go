package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// readSlice bounds one blocking read, and so how long a reader whose context has ended
// may occupy a connection.
const readSlice = time.Second

// Reasons of gaps besides those of backend.
const (
	gapTrimmed = "trimmed" // by weir, once every group had acknowledged
	gapDropped = "dropped" // by weir, when told to keep only so many
)

var _ backend.Reader = (*Backend)(nil)

// Read returns entries after an ID, without a group. What was trimmed between the
// cursor and the first entry is a gap. Entries deleted one by one in the middle of the
// stream leave no trace. A stream that ends before the cursor is another one, or an earlier
// state of it: that is a gap, too, and reading goes on at the start.
func (b *Backend) Read(ctx context.Context, req backend.ReadRequest) (backend.Records, error) {
	after, err := b.cursorID(ctx, req.After)
	if err != nil {
		return backend.Records{}, err
	}
	deadline := time.Now().Add(req.Block)
	for {
		got, err := b.read(ctx, after, req)
		left := time.Until(deadline)
		if err != nil || len(got.Records) > 0 || got.Gap != nil || left < time.Millisecond {
			return got, err
		}
		if err = b.waitBehind(ctx, after, min(left, readSlice)); err != nil {
			return backend.Records{}, err
		}
	}
}

// cursorID returns the ID a cursor stands after.
func (b *Backend) cursorID(ctx context.Context, cursor string) (id, error) {
	switch cursor {
	case backend.CursorStart:
		return id{}, nil
	case backend.CursorEnd:
		last, err := b.lastID(ctx)
		if noSuchKey(err) {
			return id{}, nil
		}
		return last, err
	}
	after, err := parseID(cursor)
	if err != nil {
		err = fmt.Errorf("cursor: %w", err)
	}
	return after, err
}

// lastID returns the highest ID that the stream has given.
func (b *Backend) lastID(ctx context.Context) (id, error) {
	cmd := redis.NewRawCmd(ctx, "XINFO", "STREAM", b.keys.stream)
	if err := b.do(ctx, cmd); err != nil {
		return id{}, err
	}
	info, err := parseInfo(cmd)
	if err != nil {
		return id{}, err
	}
	return parseID(info["last-generated-id"])
}

// read returns the entries after an ID and looks for gaps in the same round trip.
func (b *Backend) read(ctx context.Context, after id, req backend.ReadRequest) (backend.Records, error) {
	trims := redis.NewSliceCmd(ctx, "HMGET", b.keys.trimmed, "last", "dropped_last")
	first := redis.NewRawCmd(ctx, "XRANGE", b.keys.stream, "-", "+", "COUNT", 1)
	behind := redis.NewRawCmd(ctx, "XRANGE", b.keys.stream, after.next().String(), "+", "COUNT", max(1, req.Max))
	role := b.roleCmd(ctx)
	_ = b.do(ctx, with(role, trims, first, behind)...)
	for _, cmd := range []redis.Cmder{trims, first, behind} {
		if err := cmd.Err(); err != nil {
			return backend.Records{}, err
		}
	}
	if b.misled(ctx, role) {
		return b.read(ctx, after, req)
	}
	got := backend.Records{Next: after.String()}
	err := eachEntry(behind, func(name string, c content) {
		r := backend.Record{ID: name, Data: c.data, Headers: c.headers}
		if v, err := parseID(name); err == nil {
			r.At = time.UnixMilli(int64(v.ms))
		}
		got.Records = append(got.Records, r)
		got.Next = name
	})
	if err != nil {
		return backend.Records{}, err
	}
	oldest, _, err := firstEntry(first, "")
	if err != nil {
		return backend.Records{}, err
	}
	got.Gap = gapBehind(after, oldest, recordedID(trims, 0), recordedID(trims, 1))
	if len(got.Records) > 0 {
		return got, nil
	}
	if got.Gap != nil {
		got.Next = got.Gap.To
		return got, nil
	}
	if got.Gap, err = b.recreated(ctx, after); got.Gap != nil {
		got.Next = cursorStart
	}
	return got, err
}

// recreated returns the gap of a cursor that the stream has not reached yet. Nothing would ever be read behind
// it, or not before the server's clock gets there.
func (b *Backend) recreated(ctx context.Context, after id) (*backend.Gap, error) {
	if after == (id{}) {
		return nil, nil
	}
	last, err := b.lastID(ctx)
	if noSuchKey(err) || errors.Is(err, backend.ErrForbidden) {
		return nil, nil // there is nothing, or it may not be asked
	}
	if err != nil || !last.less(after) {
		return nil, err
	}
	return &backend.Gap{From: after.String(), To: last.String(), Reason: backend.GapRecreated}, nil
}

// recordedID returns an ID from the record of trims, zero if there is none.
func recordedID(cmd *redis.SliceCmd, i int) id {
	if i >= len(cmd.Val()) {
		return id{}
	}
	text, _ := cmd.Val()[i].(string)
	v, err := parseID(text)
	if err != nil {
		return id{} // only weir writes there
	}
	return v
}

// gapBehind returns the gap between a cursor and the oldest entry. trimmed and dropped
// are the newest entries that weir has removed. At the start only what was dropped
// counts: finished messages are no loss.
func gapBehind(after id, oldest string, trimmed, dropped id) *backend.Gap {
	gap := &backend.Gap{From: after.String()}
	first, err := parseID(oldest)
	switch start := after == (id{}); {
	case after.less(dropped):
		gap.To, gap.Reason = dropped.String(), gapDropped
		if start {
			gap.From = backend.CursorStart
		}
	case start:
		return nil
	case after.less(trimmed):
		gap.To, gap.Reason = trimmed.String(), gapTrimmed
	case err == nil && after.less(first) && after != trimmed:
		// The cursor's entry is gone, and weir did not remove it.
		gap.To, gap.Reason = first.previous().String(), backend.GapRemoved
	default:
		return nil
	}
	return gap
}

// waitBehind waits up to d for an entry after an ID. It returns as soon as ctx ends;
// the connection is free again after d.
func (b *Backend) waitBehind(ctx context.Context, after id, d time.Duration) error {
	cmd := redis.NewRawCmd(ctx, "XREAD", "BLOCK", max(1, d.Milliseconds()), "COUNT", 1, "STREAMS", b.keys.stream, after.String())
	answered := make(chan error, 1)
	if err := b.readers.begin(func() { answered <- b.do(ctx, cmd) }); err != nil {
		return b.explain(ctx, err)
	}
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
