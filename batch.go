package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirmq/weir/backend"
)

// batch is the messages of one publish and what has become of them so far. They are
// stored in parts, one after the other, each as large as the guard has room for.
type batch struct {
	all    []Message
	one    bool      // it ends with its first part
	from   int       // where the part under way begins
	begun  int       // where it ends; what is behind waits for its turn
	left   []Message // of the part, not decided yet
	failed int

	receipt Receipt // of a single message that is stored

	// All three stay nil until something goes wrong.
	at   []int   // where each of left stands in the caller's slice; nil: one behind the other, from the part's begin
	lost []error // for each of left, that an answer about it was lost; nil: of none
	errs []error // of those that failed, by the caller's places

	whole error // the one error that all messages failed with
}

// next begins a part of n messages.
func (b *batch) next(n int) {
	b.from, b.at, b.lost = b.begun, nil, nil
	b.begun += n
	b.left = b.all[b.from:b.begun]
}

// cut drops what comes after the current part if that is the only one.
func (b *batch) cut() {
	if b.one && b.begun > 0 {
		b.all = b.all[:b.begun]
	}
}

// halve halves a part of which nothing has been sent. It returns false if the part
// cannot be smaller.
func (b *batch) halve() bool {
	n := len(b.left)
	if n < 2 || n < b.begun-b.from || b.at != nil || b.lost != nil {
		return false
	}
	b.begun = b.from
	b.next(n / 2)
	return true
}

// fail makes err the outcome of what is left and of what has not begun.
func (b *batch) fail(err error) {
	b.cut()
	if b.from == 0 && len(b.left) == b.begun && b.lost == nil {
		b.whole, b.failed, b.begun, b.left = err, len(b.all), len(b.all), nil
		return
	}
	b.endLeft(err)
	b.next(len(b.all) - b.begun)
	b.endLeft(err)
}

func (b *batch) endLeft(err error) {
	for i := range b.left {
		b.end(i, err)
	}
	b.left = nil
}

// partFailed returns an error for the rest if nothing was stored of a part, for a reason that
// applies to the rest, too. It does not say that the rest was sent.
func (b *batch) partFailed(ctx context.Context) error {
	if b.whole != nil {
		return b.whole
	}
	for i := b.from; i < b.begun; i++ {
		if b.errs == nil || b.errs[i] == nil || ctx.Err() == nil && !backend.Retryable(b.errs[i]) {
			return nil
		}
	}
	first, unknown := b.errs[b.from], errors.Is(b.errs[b.from], ErrOutcomeUnknown)
	switch err := ended(ctx); {
	case err != nil && (unknown || !errors.Is(first, err)):
		return notSent(err)
	case unknown:
		return fmt.Errorf("%w: not sent, because a message before it failed", ErrUnavailable)
	}
	return first
}

// end makes err the outcome of the i-th message of left. Once an answer was lost, no
// later error can mean that the message is not stored.
func (b *batch) end(i int, err error) {
	if b.lost != nil && b.lost[i] != nil && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w; sent again with the same key: %v", b.lost[i], err)
	}
	if b.errs == nil {
		b.errs = make([]error, len(b.all))
	}
	b.errs[b.place(i)] = err
	b.failed++
}

// silent makes the errors say that the server did not answer in time, rather than that
// the caller gave up.
func (b *batch) silent(stream string) {
	told := func(err error) error {
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrOutcomeUnknown) {
			return fmt.Errorf("publish to %q: %w: %w, nothing is stored", stream, ErrUnavailable, errSilent)
		}
		return err
	}
	b.whole = told(b.whole)
	for i, err := range b.errs {
		b.errs[i] = told(err)
	}
}

// expire ends what is left and past its deadline.
func (b *batch) expire(stream string) {
	found := false
	for i := range b.left {
		found = found || isLate(&b.left[i])
	}
	if !found {
		return
	}
	b.sift(func(i int) error {
		m := &b.left[i]
		switch {
		case !isLate(m):
			return nil
		case b.lost != nil && b.lost[i] != nil:
			return b.lost[i] // it may be stored
		}
		return fmt.Errorf("publish to %q: %w", stream, lateError(m))
	})
}

// stored ends what is left of the part: all of it is stored.
func (b *batch) stored(results []backend.Appended) {
	if len(results) == 1 {
		b.note(results[0])
	}
	b.left = nil
}

// note keeps the receipt of a message that is alone.
func (b *batch) note(stored backend.Appended) {
	if len(b.all) == 1 {
		b.receipt = Receipt{ID: stored.ID, Duplicate: stored.Deduped}
	}
}

// sift ends those of left for which fails returns an error, and keeps the others.
func (b *batch) sift(fails func(i int) error) {
	var next batch
	for i := range b.left {
		if err := fails(i); err != nil {
			b.end(i, err)
			continue
		}
		next.left, next.at = append(next.left, b.left[i]), append(next.at, b.place(i))
		if b.lost != nil {
			next.lost = append(next.lost, b.lost[i])
		}
	}
	b.left, b.at, b.lost = next.left, next.at, next.lost
}

func (b *batch) place(i int) int {
	if b.at == nil {
		return b.from + i
	}
	return b.at[i]
}

// drop makes err the outcome of the given ones of left, in their order, and keeps the
// others.
func (b *batch) drop(which []int, err error) {
	if len(which) == len(b.all) {
		b.fail(err)
		return
	}
	b.sift(func(i int) error {
		if len(which) == 0 || which[0] != i {
			return nil
		}
		which = which[1:]
		return err
	})
}

// settle sorts the results of a failed append: stored, failed, or left. It returns the
// server's refusal for lack of room, if any, and whether what is left is to be sent
// once more because an answer was lost; may says whether that is possible.
func (b *batch) settle(results []backend.Appended, err error, may bool) (full *backend.FullError, repeat bool) {
	var next batch
	lost, whole := false, len(results) == 0 && len(b.left) == len(b.all) && b.lost == nil
	for i, m := range b.left {
		of := err
		if len(results) == len(b.left) {
			if of = results[i].Err; of == nil {
				b.note(results[i])
				continue
			}
		}
		var before error
		if b.lost != nil {
			before = b.lost[i]
		}
		var said *backend.FullError
		switch {
		case errors.Is(of, ErrOutcomeUnknown) && m.IdempotencyKey != "" && before == nil && may:
			before, repeat = of, true
		case !errors.Is(of, ErrOutcomeUnknown) && errors.As(of, &said):
			full = said
		default:
			b.end(i, of)
			continue
		}
		lost = lost || before != nil
		next.left = append(next.left, m)
		next.at = append(next.at, b.place(i))
		next.lost = append(next.lost, before)
	}
	if whole && b.failed == len(b.all) {
		b.whole = err
	}
	b.left, b.at, b.lost = next.left, next.at, nil
	if lost {
		b.lost = next.lost
	}
	return full, repeat
}
