package slots

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Read returns the first entry that counts behind after.
func (l *Log) Read(ctx context.Context, after uint64) (replica.Entry, error) {
	ctx, cancel := l.until(ctx)
	defer cancel()
	l.mu.Lock()
	at := l.read
	l.mu.Unlock()
	if at.next == 0 || at.pos != after {
		var err error
		if at, err = l.locate(ctx, after); err != nil {
			return replica.Entry{}, err
		}
	}
	s, found := l.next(ctx, at.next)
	if found != nil && !errors.Is(found, replica.ErrNotFound) {
		return replica.Entry{}, found
	}
	at, err := l.lookAgain(ctx, at, found == nil)
	if err != nil {
		return replica.Entry{}, err
	}
	if found == nil {
		if at.place, err = at.step(s); err != nil {
			return replica.Entry{}, err
		}
	}
	l.mu.Lock()
	if l.read, l.streak = at, l.streak+1; found != nil {
		l.streak, l.ahead = 0, nil
	}
	l.mu.Unlock()
	if found != nil {
		return replica.Entry{}, io.EOF
	}
	return replica.Entry{Pos: s.pos, Term: s.term, Data: s.data}, nil
}

const (
	// readAhead is how many entries are asked for at once by a reader that is behind: one
	// after the other it would not keep up with a leader, which has replica.Window under way.
	readAhead = 2 * replica.Window
	// behindAfter is after how many entries in a row a reader is.
	behindAfter = 4
)

// next reads the object at pos; for a reader that is behind also some that follow it.
func (l *Log) next(ctx context.Context, pos uint64) (slot, error) {
	l.mu.Lock()
	s, ok := l.ahead[pos]
	behind := l.streak >= behindAfter
	l.mu.Unlock()
	if ok {
		return s, nil
	}
	if !behind {
		return l.slot(ctx, pos)
	}
	var follow [readAhead]slot
	var failed [readAhead]error
	var all sync.WaitGroup
	for i := 1; i < readAhead; i++ {
		all.Go(func() {
			once, cancel := context.WithTimeout(ctx, attempt)
			defer cancel()
			data, err := read(once, l.objects, slotName(pos+uint64(i)))
			if err == nil {
				follow[i], err = decode(pos+uint64(i), data)
			}
			failed[i] = err
		})
	}
	s, err := l.slot(ctx, pos)
	all.Wait()
	ahead := map[uint64]slot{}
	for i := 1; i < readAhead && failed[i] == nil; i++ {
		ahead[pos+uint64(i)] = follow[i]
	}
	l.mu.Lock()
	l.ahead = ahead
	l.mu.Unlock()
	return s, err
}

// slot reads the object at pos. What two answers agree on is damage: one may have been damaged
// on its way.
func (l *Log) slot(ctx context.Context, pos uint64) (slot, error) {
	s, err := l.slotOnce(ctx, pos)
	if errors.Is(err, replica.ErrDamaged) {
		l.opt.Trouble(err)
		s, err = l.slotOnce(ctx, pos)
	}
	return s, err
}

func (l *Log) slotOnce(ctx context.Context, pos uint64) (slot, error) {
	data, err := l.get(ctx, slotName(pos))
	if err != nil {
		return slot{}, err
	}
	return decode(pos, data)
}

// lookAgain finds out, when nobody has looked for a while, whether what was found at
// at.next, or not, is what the log has there.
func (l *Log) lookAgain(ctx context.Context, at position, found bool) (position, error) {
	if l.outOfTouch(at.sure) {
		at.sure = time.Now()
		gone, err := l.marker(ctx)
		if err != nil {
			return at, err
		}
		if gone.pos > at.pos {
			return at, replica.ErrTrimmed
		}
	}
	if !found && l.outOfTouch(at.whole) {
		at.whole = time.Now()
		return at, l.missing(ctx, at.place)
	}
	return at, nil
}

// missing returns an error if the object at at.next is not there but should be: so
// far ahead of the end of the log nobody is.
func (l *Log) missing(ctx context.Context, at place) error {
	ahead, err := l.list(ctx, slots, slotName(at.next+replica.Window-1), 1)
	if err != nil || len(ahead) == 0 {
		return err
	}
	if _, err := l.slot(ctx, at.next); !errors.Is(err, replica.ErrNotFound) {
		return err
	}
	if gone, err := l.marker(ctx); err != nil || gone.pos > at.pos {
		return err
	}
	return fmt.Errorf("%w: %s is missing, %s is there", replica.ErrDamaged, slotName(at.next), ahead[0].Name)
}

// locate returns the place behind the entry at after.
func (l *Log) locate(ctx context.Context, after uint64) (position, error) {
	s, found := slot{}, error(nil)
	if after > 0 {
		s, found = l.slot(ctx, after)
	}
	now := time.Now()
	gone, err := l.marker(ctx)
	switch {
	case err != nil:
		return position{}, err
	case gone.pos == after:
		return position{place: gone, sure: now}, nil
	case gone.pos > after:
		return position{}, replica.ErrTrimmed
	case errors.Is(found, replica.ErrNotFound):
		if err := l.missing(ctx, place{pos: after, next: after}); err != nil {
			return position{}, err
		}
		return position{}, io.EOF
	case found != nil:
		return position{}, found
	}
	return position{place: behind(s), sure: now}, nil
}
