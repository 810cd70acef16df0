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
// returns an ErrFenced if not, and replica.ErrDamaged if only something in between is gone that goes on
// behind from, where this leader has made a base.
func (l *Log) Kept(ctx context.Context, from uint64) error {
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
	return s.allKept(ctx, from)
}

// looksAt is for how many entries a leader looks at a time: of a busy one there are many, and a store asks
// as much for a list of 1,000 as for an entry.
const looksAt = 10_000

// allKept returns an error if one of the leader's entries behind from is not there any more: a restore would
// end in front of it. It goes on where it has ended the last time, and begins again at the end.
func (s *session) allKept(ctx context.Context, from uint64) error {
	if from == 0 {
		return nil
	}
	s.mu.Lock()
	at := max(from, s.begun, s.seen)
	to := min(s.last, at+looksAt)
	if s.seen = to; to == s.last {
		s.seen = 0
	}
	s.mu.Unlock()
	next, after := at+1, slotName(at)
	if at == s.begun {
		next = at + replica.Window // what lies in between is others'
	}
	for next <= to {
		page, err := s.log.list(ctx, slots, after, 1000)
		if err != nil {
			return err
		}
		for _, f := range page {
			if f.Name == slotName(next) {
				next++
			}
		}
		if len(page) == 0 || page[len(page)-1].Name > slotName(next) {
			break
		}
		after = page[len(page)-1].Name
	}
	if next > to {
		return nil
	}
	if _, err := s.log.get(ctx, slotName(next)); !errors.Is(err, replica.ErrNotFound) {
		return err
	}
	if gone, err := s.log.marker(ctx); err != nil || gone.pos >= next { // another's, who leads
		return err
	}
	return fmt.Errorf("%w: %s is not there any more: somebody, or a rule of the store, removes objects of the copy", replica.ErrDamaged, slotName(next))
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
