package op

import (
	"testing"

	"github.com/weirmq/weir/internal/api"
)

// Losses next to each other are told apart by their cause: a reader gets the
// reason of each.
func TestLossesOfTwoCausesKeepTheirReasons(t *testing.T) {
	var s State
	s.Append(1, 2, 2, 1)
	s.Lose(3, 4, CauseTrim)
	s.Lose(5, 6, CauseTrim)
	s.Lose(7, 8, CauseCrash)
	for at, want := range map[uint64]api.TombstoneReason{2: api.ReasonSourceTrim, 5: api.ReasonSourceTrim, 6: api.ReasonCrash} {
		if l, ok := s.RangeAt(at); !ok || l.Reason() != want {
			t.Errorf("a cursor at %d meets %+v with reason %v, want %v", at, l, l.Reason(), want)
		}
	}
	if len(s.Lost) != 2 || s.Head != 8 || s.Count != 2 {
		t.Errorf("%+v", s)
	}
}

// Numbers that an append jumps over were records that the log does not hold:
// they are announced, and not live.
func TestNumbersThatAnAppendJumpsOverAreAnnounced(t *testing.T) {
	var s State
	s.Append(1, 1, 1, 1)
	s.Append(5, 1, 1, 1)
	if l, ok := s.RangeAt(1); !ok || l.Range != (Range{2, 4}) || l.Reason() != api.ReasonCrash {
		t.Errorf("a cursor at 1 meets %+v, %v", l, ok)
	}
	if s.Live(3) || !s.Live(5) || s.Count != 2 || s.NextLive(1) != 5 {
		t.Errorf("%+v", s)
	}
}
