package backendtest

import (
	"context"

	"github.com/weirmq/weir/backend"
)

func (s *suite) placeCases() []testCase {
	_, keeps := s.offered.(backend.PlaceKeeper)
	cases := only(keeps, testCase{"the messages of a source are stored once, however often an append is repeated", sourceOnce})
	return append(cases, only(keeps && s.h.Faulty != nil, testCase{"messages of a source whose answer is lost are stored once", untilSent(lostSource)})...)
}

// appendAt appends messages of a source and checks where they end.
func (f *fixture) appendAt(b backend.Backend, source string, at, n, next int, known bool) {
	f.Helper()
	placed, err := b.(backend.PlaceKeeper).AppendAt(f.ctx(), source, uint64(at), numbered(at, at+n))
	if err != nil || placed.Next != uint64(next) || placed.Known != known || n > 0 && placed.LastID == "" {
		f.Fatalf("%d messages of %s from %d on: %+v, %v; want next %d, known %v", n, source, at, placed, err, next, known)
	}
}

func sourceOnce(f *fixture) {
	b := f.open()
	f.appendAt(b, "file", 0, 50, 50, false)
	f.appendAt(f.open(), "file", 0, 50, 50, true)
	f.appendAt(b, "file", 0, 7, 50, true) // shorter than what was stored
	f.appendAt(b, "file", 0, 90, 50, true)
	f.appendAt(b, "file", 50, 20, 70, false)
	f.appendAt(b, "file", 50, 20, 70, true)
	f.appendAt(b, "file", 70, 0, 70, false)
	f.appendAt(b, "other", 0, 1, 1, false)
	if window, err := b.(backend.PlaceKeeper).KeyWindow(f.ctx()); err != nil || window <= 0 {
		f.Errorf("places are kept for %s, %v", window, err)
	}
	got := f.claim(b, "a", 71)
	for i, d := range got[:70] {
		if want := string(numbered(i, i+1)[0].Data); string(d.Data) != want {
			f.Fatalf("message %d is %q, want %q", i, d.Data, want)
		}
	}
	f.ack(b, got...)
	f.done(b)
}

func lostSource(f *fixture) (sent bool) {
	bad, good, lose := f.faulty()
	if !f.unanswered("an append of a source", lose, func(ctx context.Context) error {
		_, err := bad.(backend.PlaceKeeper).AppendAt(ctx, "file", 0, numbered(0, 30))
		return err
	}) {
		return false
	}
	f.appendAt(good, "file", 0, 40, 30, true)
	f.appendAt(good, "file", 30, 10, 40, false)
	f.ack(good, f.claim(good, "a", 40)...)
	f.done(good)
	return true
}
