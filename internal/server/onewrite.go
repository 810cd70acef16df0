package server

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// headBuffer is the buffer through which net/http writes answers over HTTP/1. It sends the head of
// a larger one with the beginning of the body, and the rest of the body in a second call, so
// that the client wakes up twice.
const headBuffer = 4 << 10

// oneWriteConn is a connection on which what net/http sends first of a large answer waits
// for the rest. One goroutine writes to it, that of net/http for this connection.
type oneWriteConn struct {
	*net.TCPConn
	large bool   // the next write begins an answer that is larger than headBuffer
	first []byte // what net/http believes to be sent
}

var firstWrites = sync.Pool{New: func() any { return new([headBuffer]byte) }}

func (c *oneWriteConn) Write(b []byte) (int, error) {
	large := c.large
	c.large = false
	if large && len(b) == headBuffer {
		buf := firstWrites.Get().(*[headBuffer]byte)
		c.first = buf[:copy(buf[:], b)]
		return len(b), nil
	}
	if c.first == nil {
		return c.TCPConn.Write(b)
	}
	both := net.Buffers{c.first, b}
	n, err := both.WriteTo(c.TCPConn)
	firstWrites.Put((*[headBuffer]byte)(c.first))
	c.first = nil
	return max(int(n)-headBuffer, 0), err
}

// oneWriteListener has its connections write large answers in one call. Those with TLS stay as they
// are: they do so by themselves, and net/http looks for their type.
type oneWriteListener struct{ net.Listener }

func (l oneWriteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &oneWriteConn{TCPConn: tcp}, nil
	}
	return c, err
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
