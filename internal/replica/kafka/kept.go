package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirmq/weir/internal/replica"
)

// look is a question whether the log is still there, which run answers.
type look struct {
	from   uint64
	answer chan error
}

// Kept looks, for a leader that appends nothing, whether the brokers still have what they had confirmed. It
// returns an ErrFenced if not, and replica.ErrDamaged if only what is in front, with what goes on behind
// from, is gone: as by a retention.
func (l *Log) Kept(ctx context.Context, from uint64) error {
	l.mu.Lock()
	leader := l.leader
	l.mu.Unlock()
	if leader == nil {
		return nil
	}
	q := look{from, make(chan error, 1)}
	select {
	case leader.looks <- q:
	case <-leader.over:
		return leader.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-q.answer:
		return err
	case <-leader.ended:
		return leader.reason()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kept answers Kept. A leader that has lost something ends.
func (l *leader) kept(ctx context.Context, from uint64) error {
	b, err := l.log.bounds(ctx)
	if err != nil {
		return wrap(err)
	}
	last := int64(l.at.pos) - 1
	switch {
	case b.end < l.at.next:
		return l.lost(ctx, fmt.Sprintf("topic %s ends at offset %d, and had %d", l.log.topic, b.end, last))
	case b.start > last:
		return fmt.Errorf("%w: topic %s begins with offset %d, somebody has deleted the records in front", replica.ErrDamaged, l.log.topic, b.start)
	}
	defer l.cursor.close() // it would go on to fetch
	if still, err := l.cursor.still(ctx, &l.at); err != nil {
		return wrap(err)
	} else if !still {
		return l.lost(ctx, fmt.Sprintf("position %d is another's", l.at.pos))
	}
	if l.at.epoch = b.epoch; from > 0 && b.start > int64(from)-1 {
		return fmt.Errorf("%w: topic %s begins with offset %d, somebody has deleted the records in front", replica.ErrDamaged, l.log.topic, b.start)
	}
	return nil
}

// lost ends a leader whose place in the log is gone, or another's: what says which.
func (l *leader) lost(ctx context.Context, what string) error {
	err := replica.Lost(what)
	if end, failed := l.log.toEnd(ctx); failed != nil || end.term != 0 && !end.leads(record{term: l.term, started: l.started, node: l.node}) {
		err = fmt.Errorf("%w: %s", replica.ErrFenced, what)
	}
	l.stop(err)
	return err
}

// madeAnew ends a leader whose topic was deleted and is there again: the client knows the first one, and no
// record comes through.
func (l *leader) madeAnew(ctx context.Context) {
	if !errors.Is(l.failed, kerr.UnknownTopicID) {
		return
	}
	if err := l.kept(ctx, 0); err != nil && !errors.Is(err, replica.ErrFenced) {
		l.log.opt.Trouble(err)
	}
}
