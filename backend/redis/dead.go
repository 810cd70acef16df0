package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weirmq/weir/backend"
)

// DeadLetter moves a delivery to the dead letters in one step: stored there and
// acknowledged, or neither.
func (b *Backend) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	_, err := b.moveDead(ctx, burial{delivery: d, to: to, attempts: d.Attempt, consumer: d.Consumer, cause: cause})
	return err
}

// burial is a delivery that is to become a dead letter.
type burial struct {
	delivery *backend.Delivery
	to       string
	attempts int    // how often a handler had it
	consumer string // who had it last, empty if that is not known
	cause    backend.Cause
}

func (b *Backend) moveDead(ctx context.Context, m burial) (backend.DeadLetter, error) {
	d, to := m.delivery, m.to
	if to == "" {
		to = b.keys.dead
	}
	cmd := deadScript.cmd(ctx, []string{b.keys.stream, b.keys.retry, to},
		b.keys.group, d.ID, d.Consumer, d.Attempt, m.attempts, m.cause.Reason, cut(m.cause.Error), m.consumer)
	if err := b.do(ctx, cmd); err != nil {
		return backend.DeadLetter{}, err
	}
	r := replyReader{cmd.Val()}
	n, err := r.array()
	switch {
	case err != nil:
		return backend.DeadLetter{}, err
	case n == 0:
		b.acked.forgot(d.ID)
		return backend.DeadLetter{}, fmt.Errorf("redis: message %s: %w", d.ID, backend.ErrLeaseLost)
	}
	b.acked.finished(d.ID)
	letter := backend.DeadLetter{
		Data: d.Data, Headers: d.Headers, Stream: b.keys.stream, Group: b.keys.group,
		OriginID: d.ID, Attempts: m.attempts, Reason: m.cause.Reason, Consumer: m.consumer, Enqueued: d.Enqueued,
	}
	letter.Redrives, _ = strconv.Atoi(d.Headers[backend.HeaderRedrives])
	delete(letter.Headers, backend.HeaderRedrives) // the field says it
	if letter.ID, err = r.text(); err != nil {
		return letter, err
	}
	if letter.Error, err = r.text(); err != nil {
		return letter, err
	}
	at, err := r.int()
	letter.DeadAt = time.UnixMilli(int64(at))
	return letter, err
}
