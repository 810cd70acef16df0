package slots

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// mark is an object that a leader has found or created, and what it holds.
type mark struct {
	name string
	data []byte
}

// keeps looks now and then, beside an entry that is on its way, whether the store still has what it had
// confirmed: a bucket that was emptied takes the next entry as if nothing had been in front of it.
// The channel says what has come of it.
func (s *session) keeps(ctx context.Context) <-chan error {
	kept := make(chan error, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.log.outOfTouch(s.kept) {
		kept <- nil
		return kept
	}
	front := s.lookedLocked()
	s.log.running.Go(func() {
		kept <- s.patiently(ctx, func() error { return s.entryKept(ctx, front) })
		s.marksKept(s.log.closed)
	})
	return kept
}

// lookedLocked notes that it is looked now, and returns the position of the entry to look for: what was
// stored since the last time may have come behind a loss.
func (s *session) lookedLocked() uint64 {
	front := s.front
	s.kept, s.front = time.Now(), s.last
	return front
}

// Kept looks, for a leader that appends nothing, whether the store still has what it had confirmed. It
// returns an ErrFenced if not. Objects go with age: the base behind which they go on is gone before them.
func (l *Log) Kept(ctx context.Context, _ uint64) error {
	ctx, cancel := l.until(ctx)
	defer cancel()
	l.mu.Lock()
	s := l.lead
	l.mu.Unlock()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	front := s.lookedLocked()
	s.mu.Unlock()
	if err := s.entryKept(ctx, front); err != nil {
		return err
	}
	s.marksKept(ctx)
	return nil
}

// marksKept puts back what is not there any more, and tells what else is wrong.
func (s *session) marksKept(ctx context.Context) {
	for _, m := range s.mine {
		if err := s.markKept(ctx, m); err != nil && ctx.Err() == nil {
			s.log.opt.Trouble(err)
		}
	}
}

// entryKept returns an error if the leader's entry at pos is not there any more, and was not trimmed.
func (s *session) entryKept(ctx context.Context, pos uint64) error {
	err := s.log.again(ctx, 0, func(ctx context.Context) error {
		in, err := s.log.objects.Get(ctx, slotName(pos))
		if err == nil {
			in.Close()
		}
		return err
	})
	if !errors.Is(err, replica.ErrNotFound) {
		return err
	}
	if gone, err := s.log.marker(ctx); err != nil || gone.pos >= pos {
		return err
	}
	// Whoever begins a term in a place that was emptied may be another.
	numbers, err := s.log.terms(ctx)
	if err != nil || len(numbers) > 0 && numbers[len(numbers)-1] != s.term {
		return cmp.Or(err, replica.ErrFenced)
	}
	return replica.Lost(slotName(pos) + " is not there any more")
}

// markKept puts an object back that is not there any more: without FORMAT nobody finds the copy.
func (s *session) markKept(ctx context.Context, m mark) error {
	data, err := s.log.get(ctx, m.name)
	switch {
	case errors.Is(err, replica.ErrNotFound):
		s.log.opt.Trouble(fmt.Errorf("%s was not there any more and is put back: somebody, or a rule of the store, removes objects of the copy", m.name))
		return s.log.create(ctx, m.name, m.data)
	case err == nil && !bytes.Equal(data, m.data):
		return fmt.Errorf("%w: %s does not hold what this leader has found there or written", replica.ErrDamaged, m.name)
	}
	return err
}
