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
	term, data, err := l.take(ctx, node, 0)
	if err != nil {
		return replica.Lead{}, err
	}
	end, err := l.begin(ctx, term)
	if errors.Is(err, errLater) {
		term, data, end, err = l.leadAgain(ctx, node, term, end)
	}
	if err != nil {
		return replica.Lead{}, err
	}
	l.mu.Lock()
	l.lead = newSession(l, term, []mark{{formatName, l.format}, {termName(term), data}}, end)
	l.mu.Unlock()
	return replica.Lead{Term: term, End: end.pos}, nil
}

// leadAgain takes a term above that of the log's end, unless it is one that another has taken since:
// the objects of terms may have been removed.
func (l *Log) leadAgain(ctx context.Context, node string, term uint64, at position) (uint64, []byte, position, error) {
	numbers, err := l.terms(ctx)
	if err == nil && len(numbers) > 0 && numbers[len(numbers)-1] > term {
		err = replica.ErrFenced
	}
	if err != nil {
		return 0, nil, position{}, err
	}
	l.opt.Trouble(fmt.Errorf("the log goes up to term %d, and %s is not there: somebody, or a rule of the store, removes objects of the copy", at.term, termName(at.term)))
	term, data, err := l.take(ctx, node, at.term)
	if err == nil {
		at, err = l.begin(ctx, term)
	}
	if errors.Is(err, errLater) {
		err = replica.ErrFenced
	}
	return term, data, at, err
}

// take creates the object of the next term, above that.
func (l *Log) take(ctx context.Context, node string, above uint64) (term uint64, data []byte, err error) {
	numbers, err := l.terms(ctx)
	if err != nil {
		return 0, nil, err
	}
	if len(numbers) > 0 {
		above = max(above, numbers[len(numbers)-1])
	}
	if data, err = json.Marshal(holder{node, time.Now().UTC(), rand.Text()}); err != nil {
		return 0, nil, err
	}
	for term = above + 1; ; term++ {
		var taken *takenError
		if err := l.create(ctx, termName(term), data); !errors.As(err, &taken) {
			return term, data, err
		}
	}
}

// errLater says that the log has entries of the same term, or of a later one.
var errLater = errors.New("replica: the log is of a later term")

// begin creates the entry that begins the term, at the first empty position: until
// then older leaders may go on. With errLater it returns where it has found a later one.
func (l *Log) begin(ctx context.Context, term uint64) (position, error) {
	at, err := l.end(ctx)
	if err != nil {
		return position{}, err
	}
	for {
		if at.term >= term {
			return position{place: at}, errLater
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
		switch missing := errors.Is(found, replica.ErrNotFound); {
		case missing && newest < at.next+replica.Window:
			return at, nil
		case missing && at == start: // the store was emptied beneath a leader
			at, err = l.first(ctx)
			continue
		case missing:
			return at, l.missing(ctx, at)
		}
		if found != nil {
			return at, found
		}
		at, err = at.step(s)
	}
	return at, err
}

// End returns the position of the last entry that counts.
func (l *Log) End(ctx context.Context) (uint64, error) {
	ctx, cancel := l.until(ctx)
	defer cancel()
	at, err := l.end(ctx)
	return at.pos, err
}

// first returns a place behind the first entry that is there.
func (l *Log) first(ctx context.Context) (place, error) {
	found, err := l.list(ctx, slots, "", 1)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: its log was there, and is gone", replica.ErrDamaged)
	}
	if err != nil {
		return start, err
	}
	pos, err := number(slots, found[0].Name)
	if err != nil {
		return start, err
	}
	return l.anchor(ctx, pos)
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
	if err != nil || newest <= at.pos+near {
		return at, newest, err
	}
	begin, middle := at, newest-near/2
	if at, err = l.anchor(ctx, middle); begin == start && errors.Is(err, replica.ErrDamaged) {
		if first, failed := l.first(ctx); failed == nil && first.pos > middle {
			return first, newest, nil
		}
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
