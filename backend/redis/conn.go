package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// go-redis does not look at a context while it waits for an answer: cancelling one
// does not end the call (its issue 2556). Of a call it hands the connection nothing
// but the context's deadline, and a pool decides which connection that is. A goroutine
// for each call could watch the context, but that doubled the cost of an append. So
// the deadline itself says whose it is, in the low bits of its nanoseconds:
//
//	 63                                12 11          0
//	+------------------------------------+-------------+
//	| when the call ends, in 4096 ns     | its slot    |   call.deadline
//	+------------------------------------+-------------+
//
//	call ── Deadline() ──> go-redis ── SetReadDeadline(t) ──> conn
//	  ^                                                        |
//	  +──── slots[t mod 4096], if its deadline is t <──────────+   calls.of
//
// From then on the call knows its connection and the connection its call: when the
// context ends, abort moves the connection's deadline to the near future. A call ends
// up to 4 µs early because of it. A deadline that is nobody's, and a call that finds
// its slot taken, work as without all this: they end at their deadline. go-redis has
// to leave the deadline alone, so its own timeouts are longer than any call's.

// maxWatched is how many slots there are, so how many calls can be watched at one
// time. It is a power of two.
const maxWatched = 1 << 12

// lastMoment is how long a call continues after its context has ended: a healthy server
// has answered by then, and nothing it did is lost or unknown.
const lastMoment = 20 * time.Millisecond

// sentinelSilence is how long a Sentinel may keep an answer waiting, which it has in its memory. The
// client asks all of them and waits for the slowest, within the time for a new connection.
const sentinelSilence = time.Second

// nodeSilence is how long a Cluster's node may take to be connected, and to greet. The client asks one
// after the other where a slot is, within the time of a call.
const nodeSilence = 2 * time.Second

// calls holds the watched calls by slot.
type calls struct {
	slots     [maxWatched]atomic.Pointer[call]
	next      atomic.Uint64
	closing   context.Context // ends what the connections still wait for
	sentinels sentinels
	cluster   bool
}

// call is the context of one call.
type call struct {
	context.Context
	calls    *calls
	deadline time.Time
	limit    time.Duration        // how long an answer may stall
	last     time.Time            // when the call ends regardless of progress; zero: never
	conn     atomic.Pointer[conn] // what is serving it now
	unwatch  func() bool
}

// watch returns a context that ends with ctx, or once nothing has arrived for limit,
// and then gives its connection a last moment. The caller calls end when the call is
// over.
func (all *calls) watch(ctx context.Context, limit time.Duration) *call {
	deadline := time.Now().Add(limit)
	last, ends := ctx.Deadline()
	if ends {
		if last = last.Add(lastMoment); last.Before(deadline) {
			deadline = last
		}
	}
	slot := int64(all.next.Add(1) % maxWatched)
	c := &call{
		Context: ctx, calls: all, limit: limit, last: last,
		deadline: time.Unix(0, deadline.UnixNano()&^(maxWatched-1)|slot),
	}
	if all.slots[slot].CompareAndSwap(nil, c) {
		c.unwatch = context.AfterFunc(ctx, c.abort)
	}
	return c
}

// Deadline returns what go-redis hands to the connection.
func (c *call) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *call) end() {
	if c.unwatch != nil {
		c.unwatch()
		c.calls.slots[c.deadline.UnixNano()%maxWatched].Store(nil)
	}
}

func (c *call) abort() {
	if served := c.conn.Load(); served != nil {
		served.abort(c)
	}
}

// of returns the watched call whose deadline this is, or nil.
func (all *calls) of(deadline time.Time) *call {
	if deadline.IsZero() {
		return nil
	}
	c := all.slots[deadline.UnixNano()%maxWatched].Load()
	if c == nil || !c.deadline.Equal(deadline) {
		return nil
	}
	return c
}

// conn is a connection that knows which call it is serving.
type conn struct {
	net.Conn
	calls *calls
	leave func() bool // to be called when it is closed
	brief bool        // it leads to a Sentinel
	mu    sync.Mutex
	call  *call     // guarded by mu; the last one to set a deadline
	until time.Time // guarded by mu; when a read that makes no progress ends
	part  bool      // part of an answer has been read; owned by the reader
	heard bool      // the server has said something; owned by the reader
}

// Read gives a call more time with each part of its answer that arrives: over a slow
// link a large answer takes longer than a live server may stay silent.
func (c *conn) Read(b []byte) (int, error) {
	if c.part { // few answers come in parts, and reading the clock is not free
		c.progressed(time.Now())
	}
	n, err := c.Conn.Read(b)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.lookAgain() {
		n, err = c.Conn.Read(b)
	}
	c.part, c.heard = c.part || n > 0, c.heard || n > 0
	return n, c.greeting(err)
}

// greeting says of an error from before the first answer that no call was sent: the client
// greets first, and sends nothing else until then. It strips the outer layer of the error.
func (c *conn) greeting(err error) error {
	if err == nil || c.heard {
		return err
	}
	return fmt.Errorf("new connection: %w", &notSent{err})
}

// Write keeps the last words of a server that closed the connection instead of reading
// on.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if !wasReset(err) {
		return n, c.greeting(err)
	}
	said := make([]byte, 512)
	got, _ := c.Conn.Read(said) // what has arrived; the connection is closed
	if line, _, ends := bytes.Cut(said[:got], []byte("\r\n")); ends && line[0] == '-' {
		err = &lastWords{err, string(line[1:])}
	}
	return n, c.greeting(err)
}

// lookAgain gives a call whose time is up a last moment, unless its context has ended:
// if this process was suspended, the answer may long have arrived.
func (c *conn) lookAgain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.call == nil || c.call.Err() != nil {
		return false
	}
	return c.Conn.SetReadDeadline(soon()) == nil
}

func (c *conn) progressed(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	served := c.call
	if served == nil || c.until.Sub(now) > served.limit/2 || served.Err() != nil {
		return
	}
	if c.until = now.Add(served.limit); !served.last.IsZero() && served.last.Before(c.until) {
		c.until = served.last
	}
	_ = c.Conn.SetReadDeadline(c.until)
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.part = false
	return c.serve(t, c.Conn.SetReadDeadline)
}

func (c *conn) SetWriteDeadline(t time.Time) error { return c.serve(t, c.Conn.SetWriteDeadline) }

func (c *conn) serve(t time.Time, set func(time.Time) error) error {
	served := c.calls.of(t)
	switch {
	case c.brief:
		t = within(sentinelSilence, t)
	case c.calls.cluster && !c.heard:
		t = within(nodeSilence, t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.call, c.until = served, t
	if served != nil {
		// The order matters: a context that ends after this check finds the connection.
		if served.conn.Store(c); served.Err() != nil {
			t = soon()
		}
	}
	if c.calls.closing.Err() != nil { // otherwise its end changes the deadline that is set now
		t = soon()
	}
	return set(t)
}

// within returns a deadline that is no later than d from now, unless there is none.
func within(d time.Duration, t time.Time) time.Time {
	if bound := time.Now().Add(d); !t.IsZero() && bound.Before(t) {
		return bound
	}
	return t
}

// adopt makes a connection one of these. The client waits for its Sentinels' answers with a
// deadline that is nobody's and a lock that its own Close needs, so the end of the backend ends
// what a connection waits for.
func (all *calls) adopt(inner net.Conn, addr string) *conn {
	c := &conn{Conn: inner, calls: all, brief: all.sentinels.has(addr)}
	if c.brief {
		all.sentinels.opened(c, addr)
	}
	c.leave = context.AfterFunc(all.closing, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = inner.SetDeadline(soon())
	})
	return c
}

func (c *conn) Close() error {
	c.leave()
	if c.brief {
		c.calls.sentinels.closed(c)
	}
	return c.Conn.Close()
}

// abort ends what the connection is doing for a call, unless it already serves another.
func (c *conn) abort(served *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.call == served {
		_ = c.SetDeadline(soon())
	}
}

func soon() time.Time { return time.Now().Add(lastMoment) }

// socket is a conn without TLS. The client checks it between calls to notice in time
// that the server has closed it.
type socket struct {
	*conn
	syscall.Conn
}

// dialer returns the function that opens connections. It is like the client's own,
// except that the TLS handshake also ends with the context.
func (all *calls) dialer(config *tls.Config) func(ctx context.Context, network, addr string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialTimeout}
	if all.cluster {
		plain.Timeout = nodeSilence
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := all.sentinels.asks(addr); err != nil {
			return nil, &notSent{err}
		}
		if config != nil {
			inner, err := (&tls.Dialer{NetDialer: plain, Config: config}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, &notSent{err}
			}
			return all.adopt(inner, addr), nil
		}
		inner, err := plain.DialContext(ctx, network, addr)
		if err != nil {
			return nil, &notSent{err}
		}
		served := all.adopt(inner, addr)
		if raw, ok := inner.(syscall.Conn); ok {
			return socket{served, raw}, nil
		}
		return served, nil
	}
}
