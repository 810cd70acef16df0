// Package patient gives clients of Kafka connections that leave who is silent and wait for who is slow.
//
// A broker that stands still, or whose machine is gone, closes no connection. The client gives each request and each
// answer a time in which all of it has to be through; a connection that is patient makes that the time in which some
// of it has to come, so that it can be short without cutting off what is large on a slow network.
package patient

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Timeout is how long a broker may say nothing: while it is dialed, and when it is asked.
const Timeout = 5 * time.Second

// Limits are the options of a client whose connections are patient.
func Limits() []kgo.Opt {
	return []kgo.Opt{
		kgo.DialTimeout(Timeout),
		kgo.RequestTimeoutOverhead(Timeout),
		kgo.ProduceRequestTimeout(Timeout),
		kgo.RetryTimeout(2 * Timeout),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}
}

const (
	// mostPatience is how much longer a request or an answer may take in all, however it comes.
	mostPatience = time.Minute
	// piece is how much of a request is written before the time for the rest begins anew, in bytes.
	piece = 64 << 10
)

type conn struct {
	net.Conn
	reads, writes patience
	large         atomic.Bool // more than a piece has been written
	silent        func()      // called when nothing has come through in time
}

func newConn(c net.Conn, silent func()) *conn {
	p := &conn{Conn: c, silent: silent, writes: patience{set: c.SetWriteDeadline}}
	p.reads = patience{set: c.SetReadDeadline, left: func() int {
		if !p.large.Load() {
			return 0
		}
		return unsent(c)
	}}
	return p
}

// patience is a deadline that moves on with what comes through.
type patience struct {
	set func(time.Time) error
	// left is how much of what was written before is on its way still: it waits in this machine's buffers on a slow
	// network, and there can be no answer before it is through. Nil: nothing.
	left func() int

	mu    sync.Mutex
	allow time.Duration // from one part to the next; 0: there is no deadline, or it has passed
	due   time.Time     // unless something comes through
	last  time.Time     // when all of it has to be through
	rest  int           // what was left when it was looked at last
}

// lookEvery is how often it is looked at what is left of a request.
const lookEvery = time.Second

func (p *patience) until(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allow, p.due, p.last, p.rest = 0, t, t.Add(mostPatience), 0
	if t.IsZero() {
		return p.set(t)
	}
	if p.allow = max(0, time.Until(t)); p.allow > 0 && p.left != nil {
		p.rest = p.left()
	}
	return p.arm()
}

// arm sets the deadline, or when to look at what is left. The lock is held.
func (p *patience) arm() error {
	if look := time.Now().Add(lookEvery); p.rest > 0 && look.Before(p.due) {
		return p.set(look)
	}
	return p.set(p.due)
}

func (p *patience) progressed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allow > 0 {
		p.more()
		_ = p.arm()
	}
}

// more moves the deadline on. The lock is held.
func (p *patience) more() {
	if p.due = time.Now().Add(p.allow); p.due.After(p.last) {
		p.due = p.last
	}
}

// given reports whether there is a deadline, other than that of somebody who gives up.
func (p *patience) given() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allow > 0
}

// goesOn reports, once a deadline has passed, that it is not over yet.
func (p *patience) goesOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.allow == 0 || p.rest == 0 {
		return false
	}
	if now := p.left(); now < p.rest {
		p.rest = now
		p.more()
	}
	return time.Now().Before(p.due) && p.arm() == nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { return c.reads.until(t) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.writes.until(t) }

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.reads.until(t); err != nil {
		return err
	}
	return c.writes.until(t)
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if n > 0 {
			c.reads.progressed()
		}
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || !c.reads.goesOn() {
			c.ended(&c.reads, err)
			return n, err
		}
	}
}

// ended follows a read or write.
func (c *conn) ended(p *patience, err error) {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && p.given() {
		c.silent()
	}
}

func (c *conn) Write(b []byte) (n int, err error) {
	if len(b) > piece {
		c.large.Store(true)
	}
	for {
		m, err := c.Conn.Write(b[n:min(n+piece, len(b))])
		if n += m; err != nil || n == len(b) {
			c.ended(&c.writes, err)
			return n, err
		}
		c.writes.progressed()
	}
}
