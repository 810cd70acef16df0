package server

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
)

const (
	// streamPatience is how long a client may stop reading a stream.
	streamPatience = 30 * time.Second
	// streamPiece is written under one deadline, so that a slow client is not mistaken
	// for one that has stopped reading.
	streamPiece = 32 << 10
	// streamRetry opens every event stream.
	streamRetry = "retry: 2000\n\n"
	// goodbye is the last frame of a watch stream when the server stops.
	goodbye = "event: error\ndata: {\"code\":\"server_shutting_down\",\"error\":\"" + goodbyeText + "\",\"message\":\"" + goodbyeText + "\"}\n\n"

	// sessionGone is all of a stream of a watch session that there is not.
	sessionGone = "retry: 30000\n\n" +
		"event: error\ndata: {\"code\":410,\"error\":\"" + sessionGoneText + "\",\"message\":\"" + sessionGoneText + "\"}\n\n"

	sessionGoneText = "there is no such watch session any more; make a new one with POST /v0/watch"

	goodbyeText = "the server is shutting down; connect again soon"
)

var (
	headerEvents  = []string{"text/event-stream"}
	headerNoStore = []string{"no-store"}
	headerNo      = []string{"no"}
)

// headStream answers a HEAD on a stream: it checks the caps but counts nothing.
func (q *request) headStream(key *apiKey) error {
	t := &q.s.streams
	t.mu.Lock()
	err := t.room(key, &q.s.limits)
	t.mu.Unlock()
	if err != nil {
		return err
	}
	q.eventHeaders()
	q.sent = true
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// sendEvents answers with an event stream that is over at once and counts as none.
func (q *request) sendEvents(all string) error {
	q.eventHeaders()
	q.sent = true
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method != http.MethodHead {
		if q.prefixed {
			all = string(api.PrefixEvents(nil, []byte(all)))
		}
		_, _ = io.WriteString(q.w, all) // a client that is gone misses nothing
	}
	return nil
}

func (q *request) eventHeaders() {
	h := q.w.Header()
	q.warnInHead()
	h["Content-Type"] = headerEvents
	h["Cache-Control"] = headerNoStore
	h["X-Accel-Buffering"] = headerNo
}

// comesBack reports whether the request is of a browser's EventSource that connects again.
// To any answer but a stream it would not connect a third time. Other clients have more use
// for the error.
func (q *request) comesBack() bool {
	h := q.r.Header
	return q.r.Method == http.MethodGet && h.Get("Last-Event-ID") != "" && h.Get("Accept") == headerEvents[0] &&
		(h.Get("Sec-Fetch-Mode") != "" || h.Get("Origin") != "")
}

// acceptsEvents refuses a client that asks for something other than events.
func (q *request) acceptsEvents() error {
	accept := strings.ToLower(strings.Join(q.r.Header.Values("Accept"), ","))
	if accept == "" || strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "*/*") {
		return nil
	}
	return api.Errorf(api.CodeNotAcceptable, "Accept %q leaves out text/event-stream; this path answers with events only", accept)
}

// namesEvents reads how the client wants the events named.
func (q *request) namesEvents() error {
	query, err := q.query()
	if err != nil {
		return err
	}
	switch text := query.Get("events"); text {
	case "", "plain":
	case "prefixed":
		q.prefixed = true
	default:
		return api.Errorf(api.CodeInvalidRequest, "query parameter events is %q; use plain or prefixed", text)
	}
	return nil
}

// eventSource is what an event stream sends. Its methods are called by one
// goroutine.
type eventSource interface {
	// Ready receives when Next may have something.
	Ready() <-chan struct{}
	// Next appends the frames that are due, always whole; nothing is due if dst comes
	// back unchanged.
	Next(ctx context.Context, dst []byte) ([]byte, error)
	// Sent says that what Next returned last has been written.
	Sent()
	// Ended reports that there will be no more frames.
	Ended() bool
}

// eventStream writes one event stream. While nothing is due it holds little memory: its
// buffers come from a pool.
type eventStream struct {
	s        *Server
	w        http.ResponseWriter // nil once the stream has a connection of its own
	rc       *http.ResponseController
	own      *ownConn // nil: not over HTTP/1
	ctx      context.Context
	h2       bool
	prefixed bool // the names of events are
	beat     time.Duration
	alarm    *time.Timer // when the next heartbeat is due
	room     share       // of what it sends
	broken   bool        // a write has failed
}

// newEventStream prepares the answer of q as an event stream. The request may be
// recycled before it runs.
func (q *request) newEventStream(beat time.Duration) *eventStream {
	q.mayWait()
	q.eventHeaders()
	q.sent = true
	e := &eventStream{
		s: q.s, w: q.w, rc: http.NewResponseController(q.w), own: q.own, ctx: q.r.Context(),
		h2: q.r.ProtoMajor == 2, prefixed: q.prefixed, beat: beat, room: q.s.share(),
	}
	if e.own != nil {
		e.own.chunked = q.r.ProtoAtLeast(1, 1)
		q.w.Header()["Connection"] = headerClose
	}
	return e
}

// run sends what src has until src ends, the client leaves or stops reading for
// streamPatience, or the server stops, in which case bye is the last frame. Then it calls
// release. It may return before: over HTTP/1 the stream takes its connection over.
func (e *eventStream) run(src eventSource, bye string, release func()) {
	e.alarm = time.NewTimer(e.beat)
	if e.say(streamRetry) && e.takeOver() {
		go func() {
			defer e.leave(release)
			if e.s.guard(func() { e.serve(src, bye) }) {
				e.broken = true
			}
		}()
		return
	}
	defer release()
	defer e.alarm.Stop()
	if !e.broken {
		e.serve(src, bye)
	}
}

// serve is run behind the first block.
func (e *eventStream) serve(src eventSource, bye string) {
	for {
		sent, ok := e.sendDue(src)
		e.room.holds(0)
		if !ok || src.Ended() {
			return
		}
		if sent {
			select {
			case <-e.s.drained:
				e.say(bye)
				return
			case <-e.ctx.Done():
				return
			default:
				continue
			}
		}
		select {
		case <-src.Ready():
		case now := <-e.alarm.C:
			ok = e.heartbeat(now)
		case <-e.ctx.Done():
			ok = false
		case <-e.s.drained:
			e.say(bye)
			ok = false
		}
		if !ok {
			return
		}
	}
}

// sendDue writes what is due now; sent is false if nothing was.
func (e *eventStream) sendDue(src eventSource) (sent, ok bool) {
	buf := takeStreamBuffer()
	defer buf.free()
	frames, err := src.Next(e.ctx, buf.b)
	buf.b = frames
	e.room.holds(len(frames))
	if err != nil {
		if e.ctx.Err() == nil {
			e.s.log.Error("a stream ends early", "cause", err)
		}
		return false, false
	}
	if len(frames) == chunkRoom {
		return false, true
	}
	if !e.write(buf) {
		return false, false
	}
	src.Sent()
	return true, true
}

// chunkRoom is what a streamBuffer has in front of its frames, for the size of a chunk.
const chunkRoom = len("ffffffff\r\n")

// streamBuffer holds frames on their way out.
type streamBuffer struct {
	b []byte // begins with chunkRoom bytes of no meaning
}

var streamBuffers = sync.Pool{New: func() any { return &streamBuffer{make([]byte, chunkRoom)} }}

func takeStreamBuffer() *streamBuffer {
	buf := streamBuffers.Get().(*streamBuffer)
	buf.b = buf.b[:chunkRoom]
	return buf
}

func (buf *streamBuffer) free() {
	if cap(buf.b) <= keptAnswer {
		streamBuffers.Put(buf)
	}
}

// say sends a text.
func (e *eventStream) say(text string) bool {
	buf := takeStreamBuffer()
	defer buf.free()
	buf.b = append(buf.b, text...)
	return e.write(buf)
}

// heartbeat sends a comment.
func (e *eventStream) heartbeat(now time.Time) bool {
	buf := takeStreamBuffer()
	defer buf.free()
	buf.b = append(buf.b, ": hb "...)
	buf.b = strconv.AppendInt(buf.b, now.UnixMilli(), 10)
	buf.b = append(buf.b, "\n\n"...)
	return e.write(buf)
}

// droppedSlow counts a stream whose client has taken nothing.
func (s *Server) droppedSlow() {
	if s.relay != nil {
		s.relay.DroppedSlow()
	} else if eng := s.engine.Load(); eng != nil {
		eng.DroppedSlow()
	}
}

// write sends what is in buf and postpones the next heartbeat. It returns false once the
// connection is unusable: no error frame can follow part of a frame.
func (e *eventStream) write(buf *streamBuffer) bool {
	if e.prefixed {
		buf.b = append(buf.b[:chunkRoom], api.PrefixEvents(nil, buf.b[chunkRoom:])...)
	}
	b := buf.b[chunkRoom:]
	if e.w == nil {
		b = e.own.chunk(buf)
	}
	for len(b) > 0 && !e.broken {
		n := min(len(b), streamPiece)
		start := time.Now()
		if err := e.writePiece(b[:n], start.Add(streamPatience)); err != nil {
			e.broken = true
			if time.Since(start) >= streamPatience {
				e.s.droppedSlow()
			}
		}
		b = b[n:]
	}
	if e.broken {
		return false
	}
	if e.h2 {
		// HTTP/2 ends a stream whose deadline passes even if nothing is being written.
		_ = e.rc.SetWriteDeadline(time.Time{})
	}
	e.alarm.Reset(e.beat)
	return true
}

func (e *eventStream) writePiece(b []byte, deadline time.Time) error {
	if e.w == nil {
		return e.own.write(e.s.lease, b, deadline)
	}
	// Every connection that net/http serves supports deadlines.
	_ = e.rc.SetWriteDeadline(deadline)
	if _, err := e.w.Write(b); err != nil {
		return err
	}
	return e.rc.Flush()
}
