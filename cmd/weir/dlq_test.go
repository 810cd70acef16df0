package main

import (
	"testing"
	"time"

	"github.com/weirmq/weir"
)

// Who thinks about the answer for a while is not answered for other letters than asked about.
func TestAQuestionAboutDeadLettersStaysTheSame(t *testing.T) {
	const ago = time.Minute
	for _, c := range []struct{ asked, answered weir.LetterFilter }{
		{weir.LetterFilter{}, weir.LetterFilter{OlderThan: ago}},
		{weir.LetterFilter{OlderThan: time.Hour}, weir.LetterFilter{OlderThan: time.Hour + ago}},
		{weir.LetterFilter{NewerThan: time.Hour}, weir.LetterFilter{OlderThan: ago, NewerThan: time.Hour + ago}},
	} {
		got := asOf(c.asked, ago)
		if got.OlderThan != c.answered.OlderThan || got.NewerThan != c.answered.NewerThan {
			t.Errorf("%+v became %+v, want %+v", c.asked, got, c.answered)
		}
	}
}
