package backendtest

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/weirmq/weir/backend"
)

func (s *suite) letterCases() []testCase {
	_, can := s.offered.(backend.DeadLetters)
	return only(can, []testCase{
		{"two that send the same letter back send it once", onLetters(redriveTogether)},
		{"no dead letters is an empty list", onLetters(noLetters)},
		{"dead letters are listed in pages, the oldest first", onLetters(letterPages)},
		{"a letter sent back is the message again", onLetters(redrive)},
		{"a letter sent back to die again is counted", onLetters(redriveTwice)},
		{"purged letters are gone, the others are not", onLetters(purge)},
	}...)
}

// onLetters runs a case with a handle whose dead letters are in reach.
func onLetters(do func(*fixture, backend.Backend, backend.DeadLetters)) func(*fixture) {
	return func(f *fixture) {
		b := f.open()
		do(f, b, b.(backend.DeadLetters))
	}
}

// bury makes dead letters of messages.
func (f *fixture) bury(b backend.Backend, msgs ...backend.Message) []backend.DeadLetter {
	f.Helper()
	f.publish(b, msgs...)
	for _, d := range f.claim(b, "a", len(msgs)) {
		if err := b.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison, Error: "no"}); err != nil {
			f.Fatal(err)
		}
	}
	list, _ := f.letters(b, "")
	if len(list) != len(msgs) {
		f.Fatalf("%d messages made %d letters", len(msgs), len(list))
	}
	return list
}

func noLetters(f *fixture, _ backend.Backend, shelf backend.DeadLetters) {
	if list, err := shelf.List(f.ctx(), "", "", 10); err != nil || len(list) > 0 {
		f.Errorf("got %v, %v", list, err)
	}
	if n, err := shelf.Purge(f.ctx(), "", nil); err != nil || n != 0 {
		f.Errorf("purge of nothing: %d, %v", n, err)
	}
}

func letterPages(f *fixture, b backend.Backend, shelf backend.DeadLetters) {
	all := f.bury(b, numbered(0, 7)...)
	var paged []string
	for after := ""; ; {
		list, err := shelf.List(f.ctx(), "", after, 3)
		if err != nil || len(list) > 3 {
			f.Fatalf("a page of 3: %d letters, %v", len(list), err)
		}
		if len(list) == 0 {
			break
		}
		for _, letter := range list {
			paged = append(paged, string(letter.Data))
			after = letter.ID
		}
	}
	var whole []string
	for _, letter := range all {
		whole = append(whole, string(letter.Data))
	}
	if !slices.Equal(paged, whole) || !slices.IsSorted(paged) {
		f.Errorf("in pages %q, at once %q", paged, whole)
	}
}

func redrive(f *fixture, b backend.Backend, shelf backend.DeadLetters) {
	m := backend.Message{Data: []byte{0, 0xff}, Headers: map[string]string{"k": "v"}, Priority: backend.High}
	letter := f.bury(b, m)[0]
	if err := shelf.Redrive(f.ctx(), "", letter); err != nil {
		f.Fatal(err)
	}
	if list, _ := f.letters(b, ""); len(list) > 0 {
		f.Errorf("a letter that was sent back is still there: %+v", list)
	}
	d := f.claim(f.another(b), "b", 1)[0]
	want := map[string]string{"k": "v", backend.HeaderPriority: "high", backend.HeaderRedrives: "1"}
	if !slices.Equal(d.Data, m.Data) || !maps.Equal(d.Headers, want) || d.Attempt != 1 {
		f.Errorf("sent back as %q %q attempt %d, want %q %q", d.Data, d.Headers, d.Attempt, m.Data, want)
	}
	if err := shelf.Redrive(f.ctx(), "", letter); !errors.Is(err, backend.ErrNotFound) {
		f.Errorf("sending it back again: %v", err)
	}
	f.ack(b, d)
	f.done(b)
}

func redriveTwice(f *fixture, b backend.Backend, shelf backend.DeadLetters) {
	letter := f.bury(b, numbered(0, 1)...)[0]
	for n := range 3 {
		if letter.Redrives != n {
			f.Fatalf("sent back %d times, the letter says %d", n, letter.Redrives)
		}
		if err := shelf.Redrive(f.ctx(), "", letter); err != nil {
			f.Fatal(err)
		}
		d := f.claim(b, "a", 1)[0]
		if err := b.DeadLetter(f.ctx(), d, "", backend.Cause{Reason: backend.ReasonPoison}); err != nil {
			f.Fatal(err)
		}
		list, _ := f.letters(b, "")
		if len(list) != 1 || string(list[0].Data) != "message 0" {
			f.Fatalf("the letters are %+v", list)
		}
		delete(list[0].Headers, backend.HeaderRedrives) // it may be there beside Redrives
		if len(list[0].Headers) != 0 {
			f.Errorf("a message without headers has a letter with %q", list[0].Headers)
		}
		letter = list[0]
	}
}

func redriveTogether(f *fixture, b backend.Backend, shelf backend.DeadLetters) {
	letter := f.bury(b, numbered(0, 1)...)[0]
	errs := make(chan error)
	const many = 6
	begin := time.Now()
	for range many {
		other := f.open().(backend.DeadLetters)
		go func() { errs <- other.Redrive(f.ctx(), "", letter) }()
	}
	var failed []error
	sent := 0
	for range many {
		switch err := <-errs; {
		case err == nil:
			sent++
		case !errors.Is(err, backend.ErrNotFound):
			failed = append(failed, err)
		}
	}
	if sent > 1 {
		f.Errorf("%d say that they have sent it", sent)
	}
	// A server that had no processor for that long may leave some without an answer. Who
	// gets none asks again.
	if stoodStill := time.Since(begin) > 4*time.Second; stoodStill && len(failed) > 0 {
		f.Logf("the server stood still: %v", failed)
		failed = nil
		if err := shelf.Redrive(f.ctx(), "", letter); err != nil && !errors.Is(err, backend.ErrNotFound) {
			failed = []error{err}
		}
	}
	for _, err := range failed {
		f.Errorf("redrive: %v", err)
	}
	f.ack(b, f.claim(b, "a", 1)...)
	f.done(b)
	if list, _ := f.letters(b, ""); len(list) > 0 {
		f.Errorf("the letter is still there: %+v", list)
	}
}

func purge(f *fixture, b backend.Backend, shelf backend.DeadLetters) {
	list := f.bury(b, numbered(0, 4)...)
	gone := []string{list[1].ID, list[3].ID}
	if n, err := shelf.Purge(f.ctx(), "", gone); err != nil || n != 2 {
		f.Errorf("purge of two: %d, %v", n, err)
	}
	if n, err := shelf.Purge(f.ctx(), "", gone); err != nil || n != 0 {
		f.Errorf("purge of two that are gone: %d, %v", n, err)
	}
	left, _ := f.letters(b, "")
	if len(left) != 2 || left[0].ID != list[0].ID || left[1].ID != list[2].ID {
		f.Errorf("left are %+v", left)
	}
	f.done(b)
}
