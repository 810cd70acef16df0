package weir

import (
	"errors"
	"fmt"

	"github.com/weirmq/weir/backend"
)

// batch is the messages of one publish and what has become of them so far.
type batch struct {
	total  int
	left   []Message // not decided yet
	failed int

	// All three stay nil until something goes wrong.
	at   []int   // where each of left stands in the caller's slice; nil: the same place
	lost []error // for each of left, that an answer about it was lost; nil: of none
	errs []error // of those that failed, by the caller's places

	whole error // the one error that all messages failed with
}

// fail ends what is left with err.
func (b *batch) fail(err error) {
	if len(b.left) == b.total && b.lost == nil {
		b.whole, b.failed, b.left = err, b.total, nil
		return
	}
	for i := range b.left {
		b.end(i, err)
	}
	b.left = nil
}

// end makes err the outcome of the i-th of left. Once an answer was lost, no
// later error can say that the message is not stored.
func (b *batch) end(i int, err error) {
	if b.lost != nil && b.lost[i] != nil && !errors.Is(err, ErrOutcomeUnknown) {
		err = fmt.Errorf("%w; sent again with the same key: %v", b.lost[i], err)
	}
	if b.errs == nil {
		b.errs = make([]error, b.total)
	}
	b.errs[b.place(i)] = err
	b.failed++
}

func (b *batch) place(i int) int {
	if b.at == nil {
		return i
	}
	return b.at[i]
}

// settle sorts what an append that failed says: stored, failed, or left. It
// returns what the server said about want of room, and whether what is left is to
// be sent once more because an answer was lost; may says whether it can be.
func (b *batch) settle(results []backend.Appended, err error, may bool) (full *backend.FullError, repeat bool) {
	var next batch
	lost := false
	for i, m := range b.left {
		of := err
		if len(results) == len(b.left) {
			if of = results[i].Err; of == nil {
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
	if b.failed == b.total && len(results) == 0 && b.lost == nil {
		b.whole = err
	}
	b.left, b.at, b.lost = next.left, next.at, nil
	if lost {
		b.lost = next.lost
	}
	return full, repeat
}
