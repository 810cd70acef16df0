package server

import (
	"context"
	"net"
	"strconv"
	"time"
)

// maxBehind is how much a client may send behind the request of an event stream. It is not
// read as requests: the answer says that the connection is closed after it.
const maxBehind = 64 << 10

// ownConn is the connection of an event stream over HTTP/1, which takes it over once net/http
// has written the head: what net/http keeps for a connection is several times what
// an idle stream needs.
type ownConn struct {
	conn    net.Conn
	chunked bool
	stay    func() bool        // the stream's context does not end with the handler any more; false: it has ended
	gone    context.CancelFunc // ends it
	behind  [16]byte           // what the client has sent last
}

// outlive lets the context of a request over HTTP/1 end with the event stream that answers
// it, which outlives the handler. Until the stream takes its connection over, it ends with the handler.
func (q *request) outlive() {
	if q.r.ProtoMajor != 1 {
		return
	}
	base := context.Background()
	if q.s.lease != nil {
		base = q.s.lease.current()
	}
	ctx, gone := context.WithCancel(base)
	q.own = &ownConn{stay: context.AfterFunc(q.r.Context(), gone), gone: gone}
	q.r = q.r.WithContext(ctx)
}

// takeOver takes the connection from net/http, which has sent all that was written. It
// returns false if net/http keeps it.
func (e *eventStream) takeOver() bool {
	if e.own == nil {
		return false
	}
	conn, _, err := e.rc.Hijack()
	if err != nil {
		return false
	}
	e.own.stay()
	e.own.conn = conn
	e.w, e.rc = nil, nil
	e.s.streams.own(e.own)
	go e.own.await()
	return true
}

// await ends the stream when its client has gone. What the client sends is dropped.
func (o *ownConn) await() {
	defer o.gone()
	for left := maxBehind; left > 0; {
		n, err := o.conn.Read(o.behind[:])
		if err != nil {
			return
		}
		left -= n
	}
}

// leave ends the answer, unless it has broken off, and the connection. A client that sees the
// end finds the place of the stream free.
func (e *eventStream) leave(release func()) {
	e.alarm.Stop()
	release()
	if e.own.chunked && !e.broken {
		// A client that is gone misses nothing.
		_ = e.own.write(nil, []byte("0\r\n\r\n"), time.Now().Add(farewell))
	}
	_ = e.own.conn.Close() // nobody is left to be told
	e.s.streams.disown(e.own)
}

// farewell is how long the end of an answer may take.
const farewell = time.Second

// chunk returns what is in buf as it is sent.
func (o *ownConn) chunk(buf *streamBuffer) []byte {
	if !o.chunked {
		return buf.b[chunkRoom:]
	}
	var room [chunkRoom]byte
	size := strconv.AppendUint(room[:0], uint64(len(buf.b)-chunkRoom), 16)
	size = append(size, "\r\n"...)
	from := chunkRoom - len(size)
	copy(buf.b[from:], size)
	buf.b = append(buf.b, "\r\n"...)
	return buf.b[from:]
}

// write sends b while l, if it is not nil, is held.
func (o *ownConn) write(l *lease, b []byte, deadline time.Time) error {
	if l != nil && !l.holds() {
		return errNoLease
	}
	if err := o.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err := o.conn.Write(b)
	return err
}

// busy reports whether a stream is open, or its connection is.
func (t *streams) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open > 0 || len(t.owned) > 0
}

// own notes a connection that net/http does not know any more.
func (t *streams) own(o *ownConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.owned == nil {
		t.owned = make(map[*ownConn]struct{})
	}
	t.owned[o] = struct{}{}
}

func (t *streams) disown(o *ownConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owned, o)
}

// cut closes the connections that streams have taken over.
func (t *streams) cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for o := range t.owned {
		_ = o.conn.Close() // its stream closes it again
	}
}
