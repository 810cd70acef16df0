package server

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// goneAfter is how long after a request a client that goes away may go unnoticed, and up to
// twice as long.
const goneAfter = 20 * time.Millisecond

// reads is the reading side of a connection that net/http serves. For each request over HTTP/1
// net/http sets six deadlines, and while the handler works it reads one byte, to notice that the
// client has gone. Of a short request that is a good part of the cost, and nothing comes of it.
// So a read of one byte rests first, until it is cut off or has rested goneAfter, but not without
// a deadline: who has removed it may wait long, such as a claim, and what becomes free meanwhile
// must not go to a client that has gone. And conn is given a deadline only if it has none that ends
// sooner: when that one passes, the read goes on until its own.
type reads struct {
	conn net.Conn

	mu      sync.Mutex
	until   time.Time // the deadline; zero: none
	has     time.Time // conn's
	reading bool      // conn is being read
	closed  bool

	resting bool          // a read of one byte has not begun yet
	cut     chan struct{} // ends the rest; one element at most
	ticks   *time.Timer   // while there are rests, not for each one
	ticking bool
	ticked  bool // the rest has seen a tick
}

func (r *reads) read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(p) == 1 && !r.closed && !r.until.IsZero() && !over(r.until) {
		r.rest()
	}
	for {
		if over(r.until) {
			return 0, os.ErrDeadlineExceeded
		}
		if err := r.arm(); err != nil {
			return 0, err
		}
		r.reading = true
		r.mu.Unlock()
		n, err := r.conn.Read(p)
		r.mu.Lock()
		r.reading = false
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// over reports whether a deadline has passed.
func over(deadline time.Time) bool { return !deadline.IsZero() && time.Until(deadline) <= 0 }

// arm gives conn a deadline that is not later than the one it is to have.
func (r *reads) arm() error {
	sooner := !r.has.IsZero() && (r.until.IsZero() || r.has.Before(r.until))
	if r.has.Equal(r.until) || sooner && !over(r.has) {
		return nil
	}
	r.has = r.until
	return r.conn.SetReadDeadline(r.until)
}

// rest waits until a read of one byte may begin. It frees mu meanwhile.
func (r *reads) rest() {
	if r.cut == nil {
		r.cut = make(chan struct{}, 1)
		r.ticks = time.AfterFunc(goneAfter, r.tick)
		r.ticking = true
	}
	if !r.ticking {
		r.ticks.Reset(goneAfter)
		r.ticking = true
	}
	r.resting, r.ticked = true, false
	r.mu.Unlock()
	<-r.cut
	r.mu.Lock()
}

// tick ends a rest at the second tick that it sees.
func (r *reads) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.resting:
		r.ticking = false
		return
	case r.ticked:
		r.endRest()
	}
	r.ticked = true
	r.ticks.Reset(goneAfter)
}

func (r *reads) endRest() {
	if r.resting {
		r.resting = false
		r.cut <- struct{}{}
	}
}

func (r *reads) setDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until = t
	if r.reading {
		return r.arm()
	}
	if r.resting && (r.until.IsZero() || over(r.until)) {
		r.endRest()
	}
	return nil
}

// close has a read that rests meet the end of the connection.
func (r *reads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.endRest()
}
