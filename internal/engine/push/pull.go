package push

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// pull reads one frame for a sub that is not live, or lets it go live.
func (s *Stream) pull(ctx context.Context, w *sub, dst []byte) ([]byte, error) {
	if w.ended {
		s.mu.Lock()
		s.dequeue(w)
		s.mu.Unlock()
		return dst, nil
	}
	t, err := s.room.env.Find(ctx, w.name)
	if api.IsCode(err, api.CodeTopicNotFound) {
		return s.gone(w, dst), nil
	}
	if err != nil {
		return dst, err
	}
	is := t.State()
	// The life is compared before the position: behind a re-creation the same
	// number may name another record, even one below the new head.
	if is.ID != w.life || w.t != nil && w.t != t {
		return s.recreated(w, t, dst), nil
	}
	// The stream joins the watchers before it reads, so that commits mark the
	// topic from here on; until it is live their visits pass it over.
	if w.t == nil {
		w.t = t
		t.add(w)
	}
	// A strong watch reads no further than what this sync covers. The head is
	// taken in front of it: what is published meanwhile may not be synced.
	upTo := is.Head
	if w.opt.Strong && !is.Synced && w.pos < upTo {
		t.Unlock()
		if err := s.room.env.Sync(); err != nil {
			return dst, err
		}
		t.Lock()
	}
	// A relay's streams may be ahead of it: what they have read there was not pushed yet.
	if is := t.State(); w.pos == is.Head && !(is.Mirror && w.first) || w.pos > is.Head && !w.first {
		return s.goLive(w, t, is, dst), nil
	}
	return s.readOn(ctx, w, t, upTo, dst)
}

// readOn reads one frame as a diff would. The topic's lock is held and
// released.
func (s *Stream) readOn(ctx context.Context, w *sub, t *Topic, upTo uint64, dst []byte) ([]byte, error) {
	body := bodies.Get().(*[]byte)
	rd := Reading{Opt: w.opt, Style: s.style, Most: w.opt.MaxBatchBytes, UpTo: upTo, Backlog: w.first || w.pos < w.found, Since: w.since, Body: (*body)[:0]}
	if s.limit != nil {
		rd.Most = s.limit(rd.Most)
	}
	turns := t.turns.Load()
	err := t.Read(ctx, w.pos, &rd)
	switch {
	case errors.Is(err, ErrLater):
		s.later(w, turns)
		err = nil
	case err == nil:
		dst = s.frames(w, &rd, dst)
	}
	if *body = rd.Body; cap(rd.Body) <= maxKept {
		bodies.Put(body)
	}
	return dst, err
}

// frames appends what was read for a sub.
func (s *Stream) frames(w *sub, rd *Reading, dst []byte) []byte {
	first := w.first
	if w.first = false; first {
		w.found = rd.Head
	}
	if rd.Tomb != nil {
		if first && s.style == api.SSE && rd.Tomb.Reason != api.ReasonRecreated {
			rd.Tomb.Reason = api.ReasonFromSeqTooOld
		}
		w.sent = rd.From
		dst = s.frame(dst, s.style.AppendTombstoneFrame(nil, w.name, rd.Tomb))
		if s.style == api.WebSocket {
			rd.N, rd.Next = 0, rd.From // one message at a time: the records come with the next
		}
	}
	if w.sent = rd.Next; rd.N > 0 {
		dst = s.frame(dst, rd.Body)
	}
	s.note(w)
	s.mu.Lock()
	w.pos = rd.Next
	w.owes = w.owes || rd.N > 0 || rd.Tomb != nil && w.opt.Relay
	s.mu.Unlock()
	return dst
}

// bodies are what frames are made in: a client that is slow to take a frame holds that one only.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// goLive hands the sub over to the visits of its topic: nothing is left to
// read, and the topic's lock is held, so nothing can slip between.
func (s *Stream) goLive(w *sub, t *Topic, is State, dst []byte) []byte {
	// live is set before the topic's lock is let go. A commit before that is in
	// the head that was just looked at; one behind it marks the topic, and the
	// visit finds the stream live. There is none between. The caught-up frame
	// needs no lock: what visits queue from here on comes with the next Next.
	s.mu.Lock()
	s.dequeue(w)
	w.live = true
	owes := w.owes && !(is.More && w.pos <= is.Head)
	w.owes = w.owes && !owes
	w.first = false
	at := max(is.Head, w.pos) // visits move it from here on
	s.mu.Unlock()
	t.Unlock()
	if owes {
		dst = s.frame(dst, s.style.AppendCaughtUpFrame(nil, w.name, at))
	}
	return dst
}

// later lets a sub wait for Topic.Again, unless that was called since there were so many
// turns.
func (s *Stream) later(w *sub, turns int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.t.turns.Load() == turns {
		s.dequeue(w)
		w.waits = true
	}
}

// gone announces that the topic has ended.
func (s *Stream) gone(w *sub, dst []byte) []byte {
	head := uint64(0)
	if w.t != nil && !w.first {
		w.t.Lock()
		head = w.t.State().Head
		w.t.Unlock()
	}
	s.end(w)
	s.over++
	return s.frame(dst, s.style.AppendTopicDeletedFrame(nil, w.name, head))
}

// recreated switches to another life of the topic, whose lock is held and
// released.
func (s *Stream) recreated(w *sub, t *Topic, dst []byte) []byte {
	if w.t != nil {
		w.t.remove(w)
	}
	is := t.State()
	w.t, w.life, w.first, w.found, w.since = t, is.ID, false, is.Head, time.Now()
	t.add(w)
	earliest := t.Earliest()
	tomb := api.Tombstone{GapFrom: 1, GapTo: is.Head, Reason: api.ReasonRecreated, EarliestSeq: earliest, HeadSeq: is.Head}
	t.Unlock()
	s.mu.Lock()
	w.pos, w.sent = earliest-1, earliest-1
	w.owes = true
	s.mu.Unlock()
	s.note(w)
	return s.frame(dst, s.style.AppendTombstoneFrame(nil, w.name, &tomb))
}
