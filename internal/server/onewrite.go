package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

// headBuffer is the buffer through which net/http writes answers over HTTP/1. It sends the head of
// a larger one with the beginning of the body, and the rest of the body in a second call, so
// that the client wakes up twice.
const headBuffer = 4 << 10

// oneWriteConn is a connection on which what net/http sends first of a large answer waits
// for the rest. One goroutine writes to it, that of net/http for this connection.
//
// A write that was given no deadline has at least streamPatience. Its deadline is moved every
// patienceStep only: that of each answer would cost more than a small one has to.
type oneWriteConn struct {
	net.Conn
	reads reads
	large bool   // the next write begins an answer that is larger than headBuffer
	first []byte // what net/http believes to be sent

	mu    sync.Mutex
	until time.Time // Conn's deadline
	given bool      // by a caller
}

const patienceStep = 10 * time.Second

var firstWrites = sync.Pool{New: func() any { return new([headBuffer]byte) }}

func (c *oneWriteConn) Write(b []byte) (int, error) {
	large := c.large
	c.large = false
	if large && len(b) == headBuffer {
		buf := firstWrites.Get().(*[headBuffer]byte)
		c.first = buf[:copy(buf[:], b)]
		return len(b), nil
	}
	if err := c.hurry(); err != nil {
		return 0, err
	}
	if c.first == nil {
		return c.Conn.Write(b)
	}
	both := net.Buffers{c.first, b}
	n, err := both.WriteTo(c.Conn)
	firstWrites.Put((*[headBuffer]byte)(c.first))
	c.first = nil
	return max(int(n)-headBuffer, 0), err
}

// hurry sees to it that a write has a deadline.
func (c *oneWriteConn) hurry() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.given {
		return nil
	}
	now := time.Now()
	if c.until.Sub(now) >= streamPatience {
		return nil
	}
	c.until = now.Add(streamPatience + patienceStep)
	return c.Conn.SetWriteDeadline(c.until)
}

// SetWriteDeadline sets the deadline of the next writes; those after a zero one have their patience.
func (c *oneWriteConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.given = !t.IsZero(); !c.given {
		return nil
	}
	c.until = t
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both.
func (c *oneWriteConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *oneWriteConn) Read(p []byte) (int, error) { return c.reads.read(p) }

// SetReadDeadline sets the deadline of the next reads, and of one that is under way.
func (c *oneWriteConn) SetReadDeadline(t time.Time) error { return c.reads.setDeadline(t) }

// Close ends a read that is under way, too.
func (c *oneWriteConn) Close() error {
	c.reads.close()
	return c.Conn.Close()
}

// CloseWrite is what net/http looks for: a client that is refused while it sends reads why, before
// the connection is reset.
func (c *oneWriteConn) CloseWrite() error {
	if half, ok := c.Conn.(*net.TCPConn); ok {
		return half.CloseWrite()
	}
	return nil
}

// oneWriteListener has its connections write large answers in one call. Those with TLS stay as they
// are: they do so by themselves, and net/http looks for their type. While descriptors are
// scarce, who comes waits: net/http logs the error and tries again.
type oneWriteListener struct{ net.Listener }

func (l oneWriteListener) Accept() (net.Conn, error) {
	if err := noDescriptor(); err != nil {
		return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: err}
	}
	c, err := l.Listener.Accept()
	if _, ok := c.(*tls.Conn); err != nil || ok {
		return c, err
	}
	return &oneWriteConn{Conn: c, reads: reads{conn: c}}, nil
}

type connKey struct{}

// withConn lets requests find their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if one, ok := c.(*oneWriteConn); ok {
		return context.WithValue(ctx, connKey{}, one)
	}
	return ctx
}

// inOneWrite is called before an answer with a body of n bytes is written as a whole.
func inOneWrite(r *http.Request, n int) {
	if n <= headBuffer || r.ProtoMajor != 1 || r.Method == http.MethodHead {
		return
	}
	if c, ok := r.Context().Value(connKey{}).(*oneWriteConn); ok {
		c.large = true
	}
}
