package slots

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/replica"
)

// session is what a leader does between Lead and its end.
type session struct {
	log   *Log
	term  uint64
	begun uint64        // position of the entry that began the term
	mine  []mark        // objects that are there for as long as the copy is
	room  chan struct{} // holds a token for each entry under way

	mu     sync.Mutex
	next   uint64
	told   chan struct{} // closed when the entry before next has been told
	failed error
	fenced bool      // there is a later term
	looked time.Time // for a later term
	sure   time.Time // when next was known not to be trimmed
	last   uint64    // position of the newest entry that is stored
	front  uint64    // what last was when it was looked whether the store has kept all
	kept   time.Time // when that was
	seen   uint64    // up to where Kept has looked for all
}

func newSession(l *Log, term uint64, mine []mark, end position) *session {
	told := make(chan struct{})
	close(told)
	return &session{log: l, term: term, begun: end.pos, mine: mine, last: end.pos, front: end.pos, kept: time.Now(), room: make(chan struct{}, replica.Window), next: end.next, told: told, looked: time.Now(), sure: end.sure}
}

// Append creates the entry at the next position.
func (l *Log) Append(ctx context.Context, data []byte, stored func(pos uint64, err error)) error {
	l.mu.Lock()
	s := l.lead
	l.mu.Unlock()
	if s == nil {
		return errors.New("replica: Append without Lead")
	}
	until, cancel := l.until(ctx)
	defer cancel()
	select {
	case s.room <- struct{}{}:
	case <-until.Done():
		return until.Err()
	}
	if until.Err() != nil {
		<-s.room
		return until.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.over(); err != nil {
		<-s.room
		return err
	}
	e := &entry{slot: slot{term: s.term, pos: s.next, data: data}, before: s.told, told: make(chan struct{}), stored: stored}
	e.bytes = e.encode()
	s.next, s.told = s.next+1, e.told
	l.running.Go(func() { s.run(ctx, e) })
	return nil
}

// over returns why nothing more can be appended.
func (s *session) over() error {
	if s.failed == nil && s.fenced {
		return replica.ErrFenced
	}
	return s.failed
}

// fail ends the session.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
	}
}

// entry is one that is on its way.
type entry struct {
	slot
	bytes  []byte
	before chan struct{} // closed when the entry in front of it has been told
	told   chan struct{}
	stored func(uint64, error)
}

// run creates the entry and tells so when the ones in front of it have been told.
func (s *session) run(ctx context.Context, e *entry) {
	ctx, cancel := s.log.until(ctx)
	defer cancel()
	err := s.create(ctx, e)
	<-e.before
	if err != nil {
		s.fail(err)
	}
	s.mu.Lock()
	if err = s.failed; err == nil {
		s.last = e.pos
	}
	s.mu.Unlock()
	<-s.room
	e.stored(e.pos, err)
	close(e.told)
}

// create creates the entry, unless the leader is one no more.
func (s *session) create(ctx context.Context, e *entry) error {
	began := time.Now()
	s.look()
	kept := s.keeps(ctx)
	err := s.patiently(ctx, func() error { return s.log.create(ctx, slotName(e.pos), e.bytes) })
	var taken *takenError
	if errors.As(err, &taken) {
		return replica.ErrFenced
	}
	if err == nil {
		err = <-kept
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	sure := s.sure
	s.mu.Unlock()
	if s.log.outOfTouch(sure) {
		began = time.Now()
		var gone place
		if err := s.patiently(ctx, func() (err error) { gone, err = s.log.marker(ctx); return err }); err != nil {
			return err
		} else if gone.pos >= e.pos {
			return replica.ErrFenced
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if began.After(s.sure) {
		s.sure = began
	}
	return nil
}

// patiently calls until the store does not refuse it: by rights that may come back.
func (s *session) patiently(ctx context.Context, call func() error) error {
	err := call()
	for errors.Is(err, replica.ErrRefused) {
		s.log.opt.Trouble(err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last attempt: %v", ctx.Err(), err)
		case <-time.After(2 * time.Second):
			err = call()
		}
	}
	return err
}

// look looks once a second, beside the rest, whether there is a later term: whoever
// has taken it waits for an empty position, and a busy leader leaves none.
func (s *session) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) < min(time.Second, s.log.touch()) {
		return
	}
	s.looked = time.Now()
	s.log.running.Go(func() {
		_, err := s.log.get(s.log.closed, termName(s.term+1))
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fenced = s.fenced || err == nil
	})
}
