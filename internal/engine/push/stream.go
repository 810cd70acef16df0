package push

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

// Stream is what one connection watches. It reads the backlog itself, as a diff
// would, and goes live once a topic has nothing left: from then on the topic's
// visits put frames, which all its watchers share, into the stream's outbox. A
// stream whose outbox is full is lagged: nothing more is queued for it until
// half of that is sent, and then it reads for itself again. So nothing is
// skipped, and nobody waits for a slow reader.
//
// Next, Sent, Subscribe, Unsubscribe and Close belong to one goroutine.
type Stream struct {
	room    *Room
	guard   func()   // Env.Guard
	session *session // nil for a WebSocket
	opt     *api.WatchOptions
	style   api.FrameStyle
	ready   chan struct{}

	subs    []*sub // ascending by name
	moved   []*sub // whose position the frames of the last Next move
	over    int    // subs whose topic is gone
	scratch []byte
	limit   func(most int64) int64 // see LimitReads

	mu     sync.Mutex // guards what follows, and live, pos and owes of the subs
	out    outbox
	pulls  []*sub // subs that have to read for themselves, in this order
	lagged bool
	advice []string // topics whose pushes are paced, to be told
	closed bool
}

// sub is one topic of a stream.
type sub struct {
	s     *Stream
	name  string
	opt   *api.WatchOptions
	life  uint64    // the topic's number
	t     *Topic    // nil until it was found
	at    int       // index in Stream.subs
	slot  int       // index in the topic's watchers
	sent  uint64    // position of what was handed to the socket
	first bool      // nothing was read on this connection yet
	found uint64    // head of the topic at the first read of this life
	since time.Time // of the subscription, or of this life
	ended bool      // the topic is gone, or the subscription

	// Guarded by Stream.mu.
	live     bool   // visits queue its frames
	queued   bool   // it stands among the pulls
	waits    bool   // neither: it met ErrLater
	owes     bool   // caught-up is due once nothing is left
	pos      uint64 // cursor of what is queued or sent
	adviceAt time.Time
}

func (r *Room) newStream(opt *api.WatchOptions, style api.FrameStyle, out outbox) *Stream {
	return &Stream{room: r, guard: r.env.Guard, opt: opt, style: style, ready: make(chan struct{}, 1), out: out}
}

// Ready receives when Next may have something.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// LimitReads has limit called before each read of records for this stream alone, with how
// many bytes of them it would read; limit returns how many it may.
func (s *Stream) LimitReads(limit func(most int64) int64) { s.limit = limit }

// Heartbeat is how long a stream may be silent.
func (s *Stream) Heartbeat() time.Duration {
	return time.Duration(s.opt.HeartbeatMS) * time.Millisecond
}

// Ended reports whether the last topic is gone; a stream of no topics has ended.
func (s *Stream) Ended() bool { return s.session != nil && s.over == len(s.subs) }

func (s *Stream) wake() {
	select {
	case s.ready <- struct{}{}:
	default: // it will look anyway
	}
}

// fullAnswer is how much Next gathers before it returns.
const fullAnswer = 64 << 10

// Next appends the frames that are due to dst, with their ids; for a WebSocket
// it appends one message. If nothing is due, dst comes back as it was. An
// error ends the stream: a record could not be read, or the engine is closed.
func (s *Stream) Next(ctx context.Context, dst []byte) ([]byte, error) {
	defer s.guard()
	s.moved = s.moved[:0]
	start := len(dst)
	for {
		var pull *sub
		dst, pull = s.take(dst)
		s.hands()
		if len(dst) > start {
			return dst, nil
		}
		s.Sent() // positions that move without a frame
		if pull == nil {
			return dst, nil
		}
		s.moved = s.moved[:0]
		var err error
		dst, err = s.pull(ctx, pull, dst)
		s.hands()
		if err != nil || len(dst) > start {
			return dst, err
		}
		if ctx.Err() != nil {
			return dst, ctx.Err()
		}
	}
}

// hands notes what the stream is about to write, before the write: a client
// that has read it may be back before the write returns.
func (s *Stream) hands() {
	ss := s.session
	if ss == nil || len(s.moved) == 0 {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, w := range s.moved {
		st := &ss.topics[w.at]
		at := position{w.life, w.sent}
		if at.life == st.handed.life {
			st.least = min(st.least, at.seq) // it was beyond the head
		}
		if ss.roams {
			at.seq = api.NoSeq
		}
		st.hand(at)
		s.room.noteLife(ss, w.at, at)
	}
}

// Sent tells that what the last Next returned was written to the socket. The
// session moves with its newest stream.
func (s *Stream) Sent() {
	defer s.guard()
	ss := s.session
	if ss == nil || len(s.moved) == 0 {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.newest != s {
		return
	}
	var known []Place
	for _, w := range s.moved {
		st := &ss.topics[w.at]
		st.written = position{w.life, w.sent}
		if st.former.over() {
			known = append(known, ss.knows(w.at))
		}
	}
	if ss.kept && len(known) > 0 {
		s.room.env.Diary.Moved(ss.wid, true, known)
	}
}

// take appends queued frames; if there are none it returns who has to read for
// itself next.
func (s *Stream) take(dst []byte) ([]byte, *sub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := len(dst)
	if len(s.advice) > 0 && s.style == api.SSE {
		dst = api.AppendAdviceFrame(dst, s.advice, s.room.env.DrainTimeMS())
		s.advice = nil
		return dst, nil
	}
	for len(dst)-start < fullAnswer {
		it, ok := s.out.take()
		if !ok {
			break
		}
		if it.to.ended {
			continue
		}
		it.to.sent = it.frame.pos
		s.note(it.to)
		if len(it.frame.body) == 0 {
			continue
		}
		dst = s.frame(dst, it.frame.body)
		if s.style == api.WebSocket {
			break
		}
	}
	if s.lagged && s.out.relaxed() {
		s.relax()
	}
	if len(dst) > start || len(s.pulls) == 0 || s.out.len() > 0 {
		if s.out.len() > 0 || len(s.pulls) > 0 {
			s.wake()
		}
		return dst, nil
	}
	return dst, s.pulls[0]
}

// frame appends one frame, with an id if the stream has ids.
func (s *Stream) frame(dst, body []byte) []byte {
	if s.style == api.SSE {
		dst = append(dst, "id: "...)
		dst, s.scratch = AppendID(dst, s.scratch, len(s.subs), func(i int) (string, uint64) {
			return s.subs[i].name, s.subs[i].sent
		})
		dst = append(dst, '\n')
	}
	return append(dst, body...)
}

// note remembers that the frames of this Next move the sub's position.
func (s *Stream) note(w *sub) {
	if k := len(s.moved); k == 0 || s.moved[k-1] != w {
		s.moved = append(s.moved, w)
	}
}

// relax lets a lagged stream read on from its positions.
func (s *Stream) relax() {
	s.lagged = false
	s.room.lagged.Add(-1)
	for _, w := range s.subs {
		if w.live {
			w.live = false
			s.enqueue(w)
		}
	}
}

// enqueue puts a sub among those that read for themselves. Stream.mu is held.
func (s *Stream) enqueue(w *sub) {
	if !w.queued && !w.ended {
		w.queued = true
		s.pulls = append(s.pulls, w)
	}
}

// dequeue takes the sub out again.
func (s *Stream) dequeue(w *sub) {
	w.queued = false
	if i := slices.Index(s.pulls, w); i >= 0 {
		s.pulls = slices.Delete(s.pulls, i, i+1)
	}
}

// end takes the sub out of its stream's work and its topic's watchers.
func (s *Stream) end(w *sub) {
	s.mu.Lock()
	w.ended, w.live = true, false
	s.dequeue(w)
	s.mu.Unlock()
	if w.t != nil {
		w.t.remove(w)
	}
}

// Close ends the stream; its session lives on for its time.
func (s *Stream) Close() {
	defer s.guard()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	s.out.clear()
	if s.lagged {
		s.lagged = false
		s.room.lagged.Add(-1)
	}
	s.mu.Unlock()
	for _, w := range s.subs {
		if !w.ended {
			s.end(w)
		}
	}
	s.leaveSession()
}

// maxKept is the largest buffer that is kept for the next frame.
const maxKept = 1 << 20
