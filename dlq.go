package weir

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/weirmq/weir/backend"
)

// DeadLetters gives access to messages that were moved aside: to inspect them, to send
// them back once their handler has been fixed, or to remove them. It is safe for
// concurrent use.
type DeadLetters struct {
	stream  *Stream
	name    string
	letters backend.DeadLetters
}

// DeadLetters returns the dead letters stored in name, or, if that is empty, where the
// stream's own go. The error is ErrUnsupported if the backend gives no access to them; a
// name that no pool of the stream can have for its dead letters is an error, too.
func (s *Stream) DeadLetters(name string) (*DeadLetters, error) {
	letters, ok := s.backend.(backend.DeadLetters)
	if !ok {
		return nil, fmt.Errorf("dead letters of a %s stream: %w", s.info.Kind, ErrUnsupported)
	}
	if err := s.checkDeadLetter(name); err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	if name == "" {
		name = s.info.DeadLetter
	}
	return &DeadLetters{stream: s, name: name, letters: letters}, nil
}

// checkDeadLetter refuses the stream itself, and what else the backend cannot store dead letters in.
func (s *Stream) checkDeadLetter(name string) error {
	if names, can := s.backend.(backend.DeadLetterNames); can {
		return names.CheckDeadLetter(name)
	}
	return nil
}

// Name returns the name of the dead-letter stream.
func (d *DeadLetters) Name() string { return d.name }

// LetterFilter selects dead letters. The zero value selects all.
type LetterFilter struct {
	IDs           []string      // only these
	Reason        string        // with this reason
	ErrorContains string        // whose last error contains this
	OlderThan     time.Duration // dead for longer than this
	NewerThan     time.Duration // dead for less than this; 0 = no limit
}

// matches reports whether the filter selects a letter at a time of the server's clock.
func (f *LetterFilter) matches(l *DeadLetter, now time.Time) bool {
	age := now.Sub(l.DeadAt)
	return (len(f.IDs) == 0 || slices.Contains(f.IDs, l.ID)) &&
		(f.Reason == "" || l.Reason == f.Reason) &&
		strings.Contains(l.Error, f.ErrorContains) &&
		(f.OlderThan <= 0 || age > f.OlderThan) &&
		(f.NewerThan <= 0 || age < f.NewerThan)
}

// letterPage is how many dead letters are read or removed in one call.
const letterPage = 100

// List iterates over the dead letters that the filter selects, oldest first. Their age is
// what it is at the beginning. An error is the last thing it yields.
func (d *DeadLetters) List(ctx context.Context, filter LetterFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		now := d.clock(ctx).now()
		after, left := "", len(filter.IDs)
		for {
			page, err := d.letters.List(ctx, d.name, after, letterPage)
			if err != nil {
				yield(DeadLetter{}, fmt.Errorf("dead letters of %q: %w", d.name, err))
				return
			}
			for i := range page {
				if !filter.matches(&page[i], now) {
					continue
				}
				if !yield(page[i], nil) {
					return
				}
				if left--; left == 0 {
					return
				}
			}
			if len(page) < letterPage {
				return
			}
			after = page[len(page)-1].ID
		}
	}
}

// Purge removes the dead letters that the filter selects. It returns how many it
// removed, also with an error.
func (d *DeadLetters) Purge(ctx context.Context, filter LetterFilter) (int, error) {
	removed := 0
	var ids []string
	remove := func() error {
		n, err := d.letters.Purge(ctx, d.name, ids)
		removed += n
		ids = ids[:0]
		if err != nil {
			return fmt.Errorf("dead letters of %q: %w", d.name, err)
		}
		return nil
	}
	for letter, err := range d.List(ctx, filter) {
		if err != nil {
			return removed, err
		}
		if ids = append(ids, letter.ID); len(ids) == letterPage {
			if err := remove(); err != nil {
				return removed, err
			}
		}
	}
	if len(ids) == 0 {
		return removed, nil
	}
	err := remove() // first: it changes removed
	return removed, err
}

// serverClock is this process's clock, adjusted to the server's.
type serverClock struct{ ahead time.Duration }

func (c serverClock) now() time.Time { return time.Now().Add(c.ahead) }

// clock reads the server's clock, which dates dead letters. If it cannot be read, this
// process's clock is used.
func (d *DeadLetters) clock(ctx context.Context) serverClock {
	stats, err := d.stream.backend.Stats(ctx)
	if err != nil || stats.At.IsZero() {
		return serverClock{}
	}
	return serverClock{ahead: time.Until(stats.At)}
}
