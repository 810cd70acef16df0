package slots

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// Lead takes the next term and begins it where the log ends. It returns
// replica.ErrFenced if another has taken a later one meanwhile.
func (l *Log) Lead(ctx context.Context, node string) (replica.Lead, error) {
	ctx, cancel := l.until(ctx)
	defer cancel()
	l.mu.Lock()
	old := l.lead
	l.lead = nil
	l.mu.Unlock()
	if old != nil {
		old.fail(replica.ErrFenced)
	}
	if err := l.Probe(ctx); err != nil {
		return replica.Lead{}, err
	}
	term, err := l.take(ctx, node)
	if err != nil {
		return replica.Lead{}, err
	}
	end, err := l.begin(ctx, term)
	if err != nil {
		return replica.Lead{}, err
	}
	l.mu.Lock()
	l.lead = newSession(l, term, end)
	l.mu.Unlock()
	return replica.Lead{Term: term, End: end.pos}, nil
}

// take creates the object of the next term.
func (l *Log) take(ctx context.Context, node string) (uint64, error) {
	numbers, err := l.terms(ctx)
	if err != nil {
		return 0, err
	}
	term := uint64(1)
	if len(numbers) > 0 {
		term = numbers[len(numbers)-1] + 1
	}
	data, err := json.Marshal(holder{node, time.Now().UTC(), rand.Text()})
	if err != nil {
		return 0, err
	}
	for ; ; term++ {
		var taken *takenError
		if err := l.create(ctx, termName(term), data); !errors.As(err, &taken) {
			return term, err
		}
	}
}

// begin creates the entry that begins the term, at the first empty position: until
// then older leaders may go on.
func (l *Log) begin(ctx context.Context, term uint64) (position, error) {
	at, err := l.end(ctx)
	if err != nil {
		return position{}, err
	}
	for {
		if at.term > term {
			return position{}, replica.ErrFenced
		}
		sure := time.Now()
		first := slot{term: term, pos: at.next, begins: true}
		err := l.create(ctx, slotName(at.next), first.encode())
		var taken *takenError
		switch {
		case err == nil:
			at, err := l.unlessTrimmed(ctx, first, at)
			return position{place: at, sure: sure}, err
		case !errors.As(err, &taken):
			return position{}, err
		case taken.data == nil: // and trimmed
			return position{}, replica.ErrFenced
		}
		s, err := decode(at.next, taken.data)
		if err != nil {
			return position{}, err
		}
		if at, err = at.step(s); err != nil {
			return position{}, err
		}
	}
}

// unlessTrimmed returns the place behind s, which was created, if its position had
// not been used and trimmed before.
func (l *Log) unlessTrimmed(ctx context.Context, s slot, at place) (place, error) {
	gone, err := l.marker(ctx)
	if err == nil && gone.pos > at.pos {
		err = replica.ErrFenced
	}
	return behind(s), err
}

// end returns the place behind the last entry that counts.
func (l *Log) end(ctx context.Context) (place, error) {
	at, newest, err := l.nearEnd(ctx)
	for err == nil {
		s, found := l.slot(ctx, at.next)
		if errors.Is(found, replica.ErrNotFound) {
			if newest >= at.next+replica.Window {
				return at, l.missing(ctx, at)
			}
			return at, nil
		}
		if found != nil {
			return at, found
		}
		at, err = at.step(s)
	}
	return at, err
}

// near is how far from the end of the log it is walked rather than searched.
const near = 64

// nearEnd returns a place not far from the end, and the newest position that exists.
func (l *Log) nearEnd(ctx context.Context) (place, uint64, error) {
	at, err := l.marker(ctx)
	if err != nil {
		return at, 0, err
	}
	l.mu.Lock()
	if l.read.pos > at.pos {
		at = l.read.place
	}
	l.mu.Unlock()
	newest, err := l.newest(ctx, at.pos)
	if err == nil && newest > at.pos+near {
		at, err = l.anchor(ctx, newest-near/2)
	}
	return at, newest, err
}

// newest returns the greatest position that exists, or from if none is greater.
func (l *Log) newest(ctx context.Context, from uint64) (uint64, error) {
	low, high, step := from, uint64(math.MaxUint64), uint64(1)
	for low < high {
		middle := low + step - 1
		if high < math.MaxUint64 {
			middle = low + (high-low)/2
		}
		found, err := l.list(ctx, slots, slotName(middle), 1)
		if err != nil {
			return 0, err
		}
		if len(found) == 0 {
			high = middle
			continue
		}
		if low, err = number(slots, found[0].Name); err != nil {
			return 0, err
		}
		step *= 2
	}
	return low, nil
}

// anchor returns a place at pos or shortly before it, or behind it if pos has been
// trimmed. The log goes on well behind pos, so nothing there is on its way.
func (l *Log) anchor(ctx context.Context, pos uint64) (place, error) {
	var at place
	for p := pos; p > 0 && p+replica.Window > pos; p-- {
		s, err := l.slot(ctx, p)
		switch {
		case errors.Is(err, replica.ErrNotFound):
		case err != nil:
			return place{}, err
		case s.begins || p == pos:
			at = behind(s)
		}
		if err == nil && s.begins {
			break
		}
	}
	if at.pos == 0 {
		if gone, err := l.marker(ctx); err != nil || gone.pos >= pos {
			return gone, err
		}
		return place{}, fmt.Errorf("%w: %s is missing, and the log goes on behind it", replica.ErrDamaged, slotName(pos))
	}
	return at, nil
}
