package engine

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/watch"
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
	e       *Engine
	session *session // nil for a WebSocket
	opt     *api.WatchOptions
	style   api.FrameStyle
	ready   chan struct{}

	subs    []*sub // ascending by name
	moved   []*sub // whose position the frames of the last Next move
	over    int    // subs whose topic is gone
	scratch []byte
	body    []byte

	mu     sync.Mutex // guards what follows, and live, pos and owes of the subs
	out    watch.Outbox[*sub]
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
	life  uint64 // the topic's number
	t     *entry // nil until it was found
	at    int    // index in Stream.subs
	slot  int    // index in the topic's watchers
	sent  uint64 // position of what was handed to the socket
	first bool   // nothing was read on this connection yet
	ended bool   // the topic is gone, or the subscription

	// Guarded by Stream.mu.
	live     bool   // visits queue its frames
	queued   bool   // it stands among the pulls
	owes     bool   // caught-up is due once nothing is left
	pos      uint64 // cursor of what is queued or sent
	adviceAt time.Time
}

// Ready receives when Next may have something.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// Heartbeat is how long a stream may be silent.
func (s *Stream) Heartbeat() time.Duration {
	return time.Duration(s.opt.HeartbeatMS) * time.Millisecond
}

// Ended reports whether the last topic is gone; a stream of no topics has ended.
func (s *Stream) Ended() bool { return s.session != nil && s.over == len(s.subs) }

func (s *Stream) wake() { signal(s.ready) }

// fullAnswer is how much Next gathers before it returns.
const fullAnswer = 64 << 10

// Next appends the frames that are due to dst, with their ids; for a WebSocket
// it appends one message. If nothing is due, dst comes back as it was. An
// error ends the stream: a record could not be read, or the engine is closed.
func (s *Stream) Next(ctx context.Context, dst []byte) ([]byte, error) {
	defer guard()
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
		if at := (position{w.life, w.sent}); st.handed.before(at) {
			st.handed = at
		}
	}
}

// Sent tells that what the last Next returned was written to the socket. The
// session moves with its newest stream.
func (s *Stream) Sent() {
	defer guard()
	ss := s.session
	if ss == nil || len(s.moved) == 0 {
		return
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.newest != s {
		return
	}
	for _, w := range s.moved {
		ss.topics[w.at].written = position{w.life, w.sent}
	}
}

// take appends queued frames; if there are none it returns who has to read for
// itself next.
func (s *Stream) take(dst []byte) ([]byte, *sub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start := len(dst)
	if len(s.advice) > 0 && s.style == api.SSE {
		dst = api.AppendAdviceFrame(dst, s.advice, s.e.drainTimeMS())
		s.advice = nil
		return dst, nil
	}
	for len(dst)-start < fullAnswer {
		it, ok := s.out.Take()
		if !ok {
			break
		}
		if it.To.ended {
			continue
		}
		it.To.sent = it.Frame.Pos
		s.note(it.To)
		if len(it.Frame.Body) == 0 {
			continue
		}
		dst = s.frame(dst, it.Frame.Body)
		if s.style == api.WebSocket {
			break
		}
	}
	if s.lagged && s.out.Relaxed() {
		s.relax()
	}
	if len(dst) > start || len(s.pulls) == 0 || s.out.Len() > 0 {
		if s.out.Len() > 0 || len(s.pulls) > 0 {
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
		dst, s.scratch = watch.AppendID(dst, s.scratch, len(s.subs), func(i int) (string, uint64) {
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
	s.e.push.lagged.Add(-1)
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

// pull reads one frame for a sub that is not live, or lets it go live.
func (s *Stream) pull(ctx context.Context, w *sub, dst []byte) ([]byte, error) {
	if w.ended {
		s.mu.Lock()
		s.dequeue(w)
		s.mu.Unlock()
		return dst, nil
	}
	if err := s.e.catchUp(ctx, w.name); err != nil && !api.IsCode(err, api.CodeTopicNotFound) {
		return dst, err
	}
	t, err := s.e.lock(w.name)
	if api.IsCode(err, api.CodeTopicNotFound) {
		return s.gone(w, dst), nil
	}
	if err != nil {
		return dst, err
	}
	t.lastRead.Store(s.e.clock())
	// The life is compared before the position: behind a re-creation the same
	// number may name another record, even one below the new head.
	if t.ID != w.life || w.t != nil && w.t != t {
		return s.recreated(w, t, dst), nil
	}
	// The stream joins the watchers before it reads, so that commits mark the
	// topic from here on; until it is live their visits pass it over.
	if w.t == nil {
		w.t = t
		t.push.watchers.add(w)
	}
	// A strong watch reads no further than what this sync covers. The head is
	// taken in front of it: what is published meanwhile may not be synced.
	upTo := t.Head
	if w.opt.Strong && t.Config.Durability != api.Fsync && w.pos < upTo {
		t.mu.Unlock()
		if err := s.e.log.Sync(); err != nil {
			return dst, storageError(err)
		}
		t.mu.Lock()
	}
	if w.pos == t.Head {
		return s.goLive(w, t, dst), nil
	}
	return s.readOn(ctx, w, t, upTo, dst)
}

// readOn reads one frame as a diff would. The topic's lock is held and
// released.
func (s *Stream) readOn(ctx context.Context, w *sub, t *entry, upTo uint64, dst []byte) ([]byte, error) {
	rd := reading{e: s.e, t: t, opt: w.opt, style: s.style, upTo: upTo, body: s.body[:0]}
	err := rd.run(ctx, w.pos)
	s.body = rd.body
	if cap(s.body) > maxPooled {
		s.body = nil
	}
	if err != nil {
		return dst, err
	}
	first := w.first
	w.first = false
	if rd.tomb != nil {
		if first && s.style == api.SSE && rd.tomb.Reason != api.ReasonRecreated {
			rd.tomb.Reason = api.ReasonFromSeqTooOld
		}
		w.sent = rd.from
		dst = s.frame(dst, s.style.AppendTombstoneFrame(nil, w.name, rd.tomb))
		if s.style == api.WebSocket {
			rd.n, rd.next = 0, rd.from // one message at a time: the records come with the next
		}
	}
	if w.sent = rd.next; rd.n > 0 {
		dst = s.frame(dst, rd.body)
	}
	s.note(w)
	s.mu.Lock()
	w.pos = rd.next
	w.owes = w.owes || rd.n > 0
	s.mu.Unlock()
	return dst, nil
}

// goLive hands the sub over to the visits of its topic: nothing is left to
// read, and the topic's lock is held, so nothing can slip between.
func (s *Stream) goLive(w *sub, t *entry, dst []byte) []byte {
	head := t.Head
	// live is set before the topic's lock is let go. A commit before that is in
	// the head that was just looked at; one behind it marks the topic, and the
	// visit finds the stream live. There is none between. The caught-up frame
	// needs no lock: what visits queue from here on comes with the next Next.
	s.mu.Lock()
	s.dequeue(w)
	w.live = true
	owes := w.owes
	w.owes = false
	w.first = false
	s.mu.Unlock()
	t.mu.Unlock()
	if owes {
		dst = s.frame(dst, s.style.AppendCaughtUpFrame(nil, w.name, head))
	}
	return dst
}

// gone announces that the topic has ended.
func (s *Stream) gone(w *sub, dst []byte) []byte {
	head := uint64(0)
	if w.t != nil {
		w.t.mu.Lock()
		head = w.t.Head
		w.t.mu.Unlock()
	}
	s.end(w)
	s.over++
	return s.frame(dst, s.style.AppendTopicDeletedFrame(nil, w.name, head))
}

// end takes the sub out of its stream's work and its topic's watchers.
func (s *Stream) end(w *sub) {
	s.mu.Lock()
	w.ended, w.live = true, false
	s.dequeue(w)
	s.mu.Unlock()
	if w.t != nil {
		w.t.push.watchers.remove(w)
	}
}

// recreated switches to another life of the topic, whose lock is held and
// released.
func (s *Stream) recreated(w *sub, t *entry, dst []byte) []byte {
	if w.t != nil {
		w.t.push.watchers.remove(w)
	}
	w.t, w.life, w.first = t, t.ID, false
	t.push.watchers.add(w)
	earliest := t.Earliest()
	tomb := api.Tombstone{GapFrom: 1, GapTo: t.Head, Reason: api.ReasonRecreated, EarliestSeq: earliest, HeadSeq: t.Head}
	t.mu.Unlock()
	s.mu.Lock()
	w.pos, w.sent = earliest-1, earliest-1
	w.owes = true
	s.mu.Unlock()
	s.note(w)
	return s.frame(dst, s.style.AppendTombstoneFrame(nil, w.name, &tomb))
}

// Close ends the stream; its session lives on for its time.
func (s *Stream) Close() {
	defer guard()
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	if s.lagged {
		s.lagged = false
		s.e.push.lagged.Add(-1)
	}
	s.mu.Unlock()
	for _, w := range s.subs {
		if !w.ended {
			s.end(w)
		}
	}
	s.leaveSession()
}

// NewSocket returns the stream of a WebSocket; it watches nothing yet and has
// to be closed.
func (e *Engine) NewSocket() *Stream {
	defer guard()
	s := &Stream{e: e, opt: &api.WatchOptions{}, style: api.WebSocket, ready: make(chan struct{}, 1)}
	s.out = watch.NewOutbox[*sub](wsFrames, wsBytes)
	return s
}

// Subscribe adds topics to a WebSocket's stream, all or none; a topic that is
// watched already is watched anew. It returns where each begins.
func (s *Stream) Subscribe(ctx context.Context, req *api.WatchRequest) ([]api.WatchPosition, error) {
	defer guard()
	var all []api.WatchPosition
	var added []*sub
	opt := req.WatchOptions
	for _, wt := range req.Topics {
		p, life, err := s.e.resolve(ctx, wt)
		if api.IsCode(err, api.CodeTopicNotFound) && req.Lenient {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		added = append(added, &sub{s: s, name: p.Topic, life: life, pos: p.FromSeq, sent: p.FromSeq, owes: true, opt: &opt})
	}
	kept := len(s.subs)
	for _, w := range s.subs {
		if slices.ContainsFunc(added, func(n *sub) bool { return n.name == w.name }) {
			kept--
		}
	}
	if limit := s.e.opt.Limits.MaxWatchTopics; kept+len(added) > limit {
		return nil, api.Errorf(api.CodeInvalidRequest, "the socket would watch %d topics; at most %d", kept+len(added), limit)
	}
	names := make([]string, len(added))
	for i, w := range added {
		names[i] = w.name
	}
	s.Unsubscribe(names)
	s.subs = append(s.subs, added...)
	sort.Slice(s.subs, func(i, j int) bool { return s.subs[i].name < s.subs[j].name })
	s.mu.Lock()
	for _, w := range added {
		s.enqueue(w)
	}
	s.mu.Unlock()
	s.wake()
	return all, nil
}

// Unsubscribe ends the watching of topics; no frame of them follows.
func (s *Stream) Unsubscribe(topics []string) {
	defer guard()
	for _, w := range s.subs {
		if !w.ended && slices.Contains(topics, w.name) {
			s.end(w)
		}
	}
	s.subs = slices.DeleteFunc(s.subs, func(w *sub) bool { return w.ended })
}

// advise notes that the pushes of a topic are paced; the client is told at most
// once in 10 s.
func (w *sub) advise(now time.Time) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.ended || now.Sub(w.adviceAt) < adviceEvery {
		return
	}
	w.adviceAt = now
	s.advice = append(s.advice, w.name)
	s.wake()
}

const adviceEvery = 10 * time.Second
