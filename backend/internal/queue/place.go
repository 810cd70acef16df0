package queue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirmq/weir/backend"
	"github.com/weirmq/weir/internal/api"
)

var _ backend.PlaceKeeper = (*Backend)(nil)

// AppendAt stores messages of a source in one write, whose idempotency key is the
// source and the place of the first message.
func (b *Backend) AppendAt(ctx context.Context, source string, at uint64, msgs []backend.Message) (backend.Placed, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return backend.Placed{}, err
	}
	defer leave()
	if len(msgs) == 0 {
		return backend.Placed{Next: at}, nil
	}
	req := api.WriteRequest{
		Records:        make([]api.Record, len(msgs)),
		IdempotencyKey: []byte(shortKey(fmt.Sprintf("%s:%d", source, at))), HasIdempotencyKey: true,
	}
	for i := range msgs {
		if req.Records[i], err = b.encode(&msgs[i]); err != nil {
			return backend.Placed{}, fmt.Errorf("message %d: %w", i, err)
		}
	}
	res, err := b.write(ctx, &req)
	if err != nil {
		return backend.Placed{}, b.fail(err, true)
	}
	return backend.Placed{Next: at + uint64(res.Count), LastID: formatSeq(res.LastSeq), Known: res.Deduped}, nil
}

// KeyWindow returns the window of the topic's configuration; it is unlimited while there
// is no topic.
func (b *Backend) KeyWindow(ctx context.Context) (time.Duration, error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	st, err := b.svc.Topic(ctx, b.opt.Topic)
	err = b.fail(err, false)
	if errors.Is(err, backend.ErrStreamNotFound) {
		return math.MaxInt64, nil
	}
	return ofMillis(st.Config.IdempotencyWindowMS), err
}

// ofMillis converts a time of a configuration, which may be longer than a
// time.Duration can hold: that becomes the longest one.
func ofMillis(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
