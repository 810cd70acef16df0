package redis

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// DeadLetter moves a delivery to the dead letters in one step: stored there and
// acknowledged, or neither.
func (b *Backend) DeadLetter(ctx context.Context, d *backend.Delivery, to string, cause backend.Cause) error {
	_, err := b.moveDead(ctx, burial{delivery: d, to: to, attempts: cause.Attempts(d.Attempt), consumer: d.Consumer, cause: cause})
	return err
}

// burial is a delivery that is about to become a dead letter.
type burial struct {
	delivery *backend.Delivery
	to       string
	attempts int    // how many times a handler had it
	consumer string // who had it last; empty if unknown
	cause    backend.Cause
	fields   []any // names and values the letter holds in place of the entry's fields; nil: the entry's
}

// runDead runs the script, which answers with one element if the entry is gone, or has too
// many fields for it.
func (b *Backend) runDead(ctx context.Context, m *burial, to string) (r replyReader, n int, err error) {
	d := m.delivery
	args := []any{b.keys.group, d.ID, d.Consumer, d.Attempt, m.attempts, m.cause.Reason, cut(m.cause.Error), m.consumer}
	if m.fields != nil {
		args = append(append(args, len(m.fields)), m.fields...)
	}
	cmd := deadScript.cmd(ctx, []string{b.keys.stream, b.keys.retry, to}, args...)
	if err = b.do(ctx, cmd); err != nil {
		return r, 0, err
	}
	r = replyReader{cmd.Val()}
	n, err = r.array()
	return r, n, err
}

// fieldRest holds, as a JSON object, what does not fit beside the data when an entry
// with very many fields becomes a dead letter.
const fieldRest = "fields"

// packed reduces an entry with more fields than a script can pass on: to the data as it
// is delivered, and one field with all others. Of one that somebody has deleted it returns
// what was delivered.
func (b *Backend) packed(ctx context.Context, d *backend.Delivery) ([]any, error) {
	cmd := redis.NewRawCmd(ctx, "XRANGE", b.keys.stream, d.ID, d.ID)
	if err := b.do(ctx, cmd); err != nil {
		return nil, err
	}
	r := replyReader{cmd.Val()}
	n, err := r.array()
	if err != nil {
		return nil, err
	}
	if n < 1 {
		published := d.Enqueued.UnixMilli()
		if d.Enqueued.IsZero() {
			own, _ := parseID(d.ID) // the server's
			published = int64(own.ms)
		}
		return appendFields(nil, &backend.Message{Data: d.Data, Headers: d.Headers}, published)
	}
	_, fields, err := r.entry(nil)
	if err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return string(f.name) == fieldData })
	c := decode(fields)
	packed := []any{fieldData, c.data}
	if len(rest) < len(fields) {
		packed = append(packed, fieldRest, objectOf(rest))
	}
	if !c.enqueued.IsZero() {
		packed = append(packed, backend.FieldEnqueued, c.enqueued.UnixMilli())
	}
	return packed, nil
}

func (b *Backend) moveDead(ctx context.Context, m burial) (backend.DeadLetter, error) {
	d, to := m.delivery, m.to
	if to == "" {
		to = b.keys.dead
	}
	r, n, err := b.runDead(ctx, &m, to)
	if err == nil && n == 1 {
		if m.fields, err = b.packed(ctx, d); err == nil {
			r, n, err = b.runDead(ctx, &m, to)
		}
	}
	switch {
	case err != nil:
		return backend.DeadLetter{}, err
	case n == 0:
		b.acked.forgot(d.ID, d.Since)
		return backend.DeadLetter{}, fmt.Errorf("redis: message %s: %w", d.ID, backend.ErrLeaseLost)
	}
	b.acked.finished(d.ID)
	letter := backend.DeadLetter{
		Data: d.Data, Headers: d.Headers, Stream: b.keys.stream, Group: b.keys.group,
		OriginID: d.ID, Attempts: m.attempts, Reason: m.cause.Reason, Consumer: m.consumer, Enqueued: d.Enqueued,
	}
	letter.Redrives, _ = strconv.Atoi(d.Headers[backend.HeaderRedrives])
	delete(letter.Headers, backend.HeaderRedrives) // the field holds it
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
