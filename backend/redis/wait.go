package redis

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// unblockFor is how long a claim whose context has ended waits for the server to
	// end the blocking read, so that nothing is read that no one receives.
	unblockFor   = 30 * time.Millisecond
	unblockEvery = 5 * time.Millisecond
	// overdue is how much longer than asked for the server may wait before it is told to
	// answer: Redis 7.2.0 to 7.2.4 begins a wait anew when another reader has got the
	// message (redis/redis#12998), so that where many wait none ends.
	overdue = 500 * time.Millisecond
	// lateFor is how long to wait for an answer that did not arrive even then. Who asks has
	// gone by then; the server is told once more.
	lateFor = 500 * time.Millisecond
)

// waiting is a blocking read on a connection of its own.
type waiting struct {
	b        *Backend
	of       *readers // what waits for it to end
	master   *redis.Client
	asks     bool          // the node is taking over the slot
	conn     int64         // the connection, as the server calls it
	answered chan struct{} // closed when the server has answered
	left     chan bool     // whether who asked is gone
	stop     func()        // cuts it off
}

// waitNew reads new messages, waiting for the first at most for d, where the stream is: at the node that
// is taking it over, if it has gone. A wait that is cut because the stream goes is over: who waits looks
// where it is.
func (b *Backend) waitNew(ctx context.Context, c *claim, d time.Duration) error {
	end := time.Now().Add(d)
	err := b.waitAt(ctx, c, d, "")
	code, rest := replyCode(err)
	if code == "ASK" && b.cluster != nil {
		err = b.waitAt(ctx, c, max(time.Until(end), time.Millisecond), addrOf(rest))
		code, rest = replyCode(err)
	}
	switch code {
	case "MOVED":
		b.movedTo(ctx, addrOf(rest))
		return nil
	case "UNBLOCKED":
		return nil
	case "READONLY":
		if b.leaveReplica(ctx) {
			return nil
		}
	}
	return err
}

// waitAt waits at the master of the slot, or at a node that is taking it over. When ctx ends or the caller
// has enough, the server is told to answer now. If it does not, it may deliver to a reader that is gone: such
// messages are handed back when the answer arrives, or become orphans.
func (b *Backend) waitAt(ctx context.Context, c *claim, d time.Duration, taker string) error {
	w, read, err := b.wait(ctx, c, d, taker)
	if err != nil {
		return b.explain(ctx, err)
	}
	over := time.NewTimer(d + overdue)
	defer over.Stop()
	for waits := true; waits; {
		select {
		case <-w.answered:
			waits = false
		case <-over.C:
			w.unblock()
		case <-ctx.Done():
			if !w.unblock() {
				w.leave()
				return b.explain(ctx, &notSent{ctx.Err()})
			}
			waits = false
		case <-c.Enough:
			if !w.unblock() {
				w.leave()
				return nil
			}
			waits = false
		case <-b.parting.Done():
			w.unblock()
			w.stop()
			w.left <- true
			return b.explain(ctx, errEnded)
		}
	}
	w.left <- false
	return b.waited(ctx, c, read)
}

// wait begins a blocking read. Who calls it says on left whether it stays for the answer.
func (b *Backend) wait(ctx context.Context, c *claim, d time.Duration, taker string) (*waiting, *redis.RawCmd, error) {
	master, err := b.master(ctx)
	if err != nil {
		return nil, nil, &notSent{err}
	}
	if taker != "" {
		if master = b.taker(ctx, taker); master == nil {
			return nil, nil, &notSent{redis.ErrClosed}
		}
	}
	conn := master.WithTimeout(d + 2*callTimeout).Conn()
	number, err := b.connNumber(ctx, conn)
	if err != nil {
		return nil, nil, err
	}
	blocking, stop := context.WithCancel(b.closing)
	c.read = true
	read := redis.NewRawCmd(blocking, "XREADGROUP", "GROUP", b.keys.group, c.Consumer,
		"COUNT", c.room(), "BLOCK", max(1, d.Milliseconds()), "STREAMS", b.keys.stream, ">")
	w := &waiting{b: b, of: &b.claims, master: master, asks: taker != "", conn: number, answered: make(chan struct{}), left: make(chan bool, 1), stop: stop}
	late := &claim{ClaimRequest: c.ClaimRequest, since: c.since}
	err = w.of.begin(func() {
		defer stop()
		limit := b.calls.watch(blocking, d+callTimeout) // BLOCK begins when the server gets to it
		b.send(limit, conn, w.asking(limit, read))
		limit.end()
		close(w.answered)
		gone := <-w.left
		_ = conn.Close() // not before: what the server is told may not end the next command of a lent client's connection
		if gone {
			b.returnLate(late, read)
		}
	})
	if err != nil {
		stop()
		_ = conn.Close()
		return nil, nil, err
	}
	return w, read, nil
}

// asking returns what a command is sent as.
func (w *waiting) asking(ctx context.Context, cmd redis.Cmder) []redis.Cmder {
	if w.asks {
		return asking(ctx, []redis.Cmder{cmd})
	}
	return []redis.Cmder{cmd}
}

// connNumber asks the server for a connection's ID. If it fails it closes the connection,
// for which nobody else may do so: a call of a lent client that was left still uses it.
func (b *Backend) connNumber(ctx context.Context, conn *redis.Conn) (int64, error) {
	number := redis.NewIntCmd(ctx, "CLIENT", "ID")
	var first atomic.Bool // of the call and who waits for it, the one that is through with conn
	ask := func(ctx context.Context, cmds []redis.Cmder) error {
		err := conn.Process(ctx, cmds[0])
		if !first.CompareAndSwap(false, true) {
			_ = conn.Close()
		}
		return err
	}
	var err error
	if b.lent {
		err = b.aside(ctx, []redis.Cmder{number}, ask)
	} else {
		w := b.calls.watch(ctx, callTimeout)
		err = ask(w, []redis.Cmder{number})
		w.end()
	}
	if err != nil && !first.CompareAndSwap(false, true) {
		_ = conn.Close()
	}
	return number.Val(), err
}

// waited reads the answer of a blocking read.
func (b *Backend) waited(ctx context.Context, c *claim, read *redis.RawCmd) error {
	if err := b.settleErrors(ctx, []redis.Cmder{read}); err != nil {
		return err
	}
	fresh, err := b.fresh(ctx, c, read)
	c.hand(fresh)
	if len(fresh) == 0 && err == nil {
		err = ctx.Err()
	}
	return err
}

// unblock tells the server to answer a blocking read until it has. It is called by who is
// waited for by w.of.
//
// A server that hands over to another, or was told to pause, holds back what could change
// something, the read as well. It must not be told to unblock that: Redis before 8.2 and
// Valkey before 8.1.2 end with a crash. So something goes in front that is held back
// whenever the read is, and what is behind it with it.
func (w *waiting) unblock() bool {
	b := w.b
	ctx, stop := context.WithTimeout(context.WithoutCancel(b.closing), unblockFor)
	defer stop()
	told := make(chan struct{})
	w.of.begun.Go(func() { // a call of a lent client does not end with its context
		defer close(told)
		for ctx.Err() == nil {
			first := redis.NewIntCmd(ctx, "XACK", b.keys.stream, b.keys.group, "0-0") // no entry has this ID
			b.send(ctx, w.master, append(w.asking(ctx, first),
				redis.NewIntCmd(ctx, "CLIENT", "UNBLOCK", w.conn))) // no effect if the read has not begun to wait
			select {
			case <-w.answered:
				return
			case <-ctx.Done():
			case <-time.After(unblockEvery):
			}
		}
	})
	select {
	case <-told:
	case <-ctx.Done():
	}
	select {
	case <-w.answered:
		return true
	default:
		return false
	}
}

// leave ends a read whose caller is gone. The server is told once more first: it may have
// been away for a moment, and what it hands out after a mere cut has nobody until
// ReclaimAfter.
func (w *waiting) leave() {
	err := w.of.begin(func() {
		select {
		case <-w.answered:
		case <-time.After(lateFor):
			w.unblock()
		case <-w.b.parting.Done():
			w.unblock()
		}
		w.stop()
		w.left <- true
	})
	if err != nil {
		w.stop()
		w.left <- true
	}
}

// returnLate hands back what was read for a caller that is gone.
func (b *Backend) returnLate(c *claim, read *redis.RawCmd) {
	fresh, _ := b.parseRead(c, read)
	if len(fresh) == 0 {
		return
	}
	ctx, stop := context.WithTimeout(b.closing, callTimeout)
	defer stop()
	_ = b.handBack(ctx, fresh) // otherwise they are orphans after ReclaimAfter
}
