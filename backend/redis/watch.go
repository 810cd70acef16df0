package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// watchFor bounds one blocking read of a watch.
	watchFor = 30 * time.Second
	// watchLent is the same for the connection of a lent client, which Close waits for if
	// the server does not end it.
	watchLent = 5 * time.Second
	// watchRest is how long a watch lasts after the last wait of a claim.
	watchRest = time.Minute
	// watchAgain is how long a watch rests after an error.
	watchAgain = time.Second
)

// watch moves messages into the stream when they become due while claims of this process
// wait, so that none of these has to be interrupted: the server hands out what is moved as
// if it had just been published. It knows when the next is due because it waits for what
// {stream}:wake says, on a connection of its own. Every process has one, if a delayed
// message was ever published on the stream.
type watch struct {
	running bool
	on      bool // it waits, so an earlier message will be heard of
	until   time.Time
}

// watchOver says that a claim is about to wait, for d at most.
func (b *Backend) watchOver(d time.Duration) {
	l := &b.later
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.used || l.resting(time.Now()) > 0 {
		return
	}
	if l.watch.until = time.Now().Add(d + watchRest); l.watch.running {
		return
	}
	l.watch.running = b.readers.begin(b.watchLater) == nil
}

// needed reports whether claims may still wait.
func (l *later) needed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return now.Before(l.watch.until) && l.resting(now) <= 0
}

func (l *later) watching(on bool) {
	l.mu.Lock()
	l.watch.on = on
	l.mu.Unlock()
}

// watchLater runs until no claim waits any more.
func (b *Backend) watchLater() {
	ctx, stop := context.WithCancel(b.closing)
	woken, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		b.awaitEarlier(ctx, woken)
	}()
	defer func() {
		stop()
		<-ended
		b.later.mu.Lock()
		b.later.watch.running, b.later.watch.on = false, false
		b.later.mu.Unlock()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-timer.C:
		}
		if !b.later.needed() {
			return
		}
		next := watchAgain
		move := b.moveCmd(ctx)
		_ = b.do(ctx, move)
		if m, err := b.hasMoved(ctx, move); err == nil {
			if next = m.next; next < 0 || next > watchFor {
				next = watchFor
			}
		}
		timer.Reset(next)
	}
}

// awaitEarlier reports each time that another message has become the first to be due.
func (b *Backend) awaitEarlier(ctx context.Context, woken chan<- struct{}) {
	last := cursorStart
	for ctx.Err() == nil {
		name, err := b.awaitWake(ctx, last)
		if err != nil {
			b.later.watching(false)
			if !pause(ctx, watchAgain) {
				return
			}
			continue
		}
		if name != "" {
			last = name
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}
}

// awaitWake waits for an entry behind last in {stream}:wake; none is no error.
func (b *Backend) awaitWake(ctx context.Context, last string) (name string, err error) {
	master, err := b.master(ctx)
	if err != nil {
		return "", err
	}
	block := watchFor
	if b.lent {
		block = watchLent
	}
	conn := master.WithTimeout(block + 2*callTimeout).Conn()
	number, err := b.connNumber(ctx, conn)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	read := redis.NewRawCmd(ctx, "XREAD", "COUNT", 1, "BLOCK", block.Milliseconds(), "STREAMS", b.keys.wake, last)
	wake := &waiting{b: b, of: &b.readers, master: master, conn: number, answered: make(chan struct{})}
	if b.lent { // its connection stays
		told := make(chan struct{})
		unwatch := context.AfterFunc(ctx, func() {
			wake.unblock()
			close(told)
		})
		defer func() {
			if !unwatch() {
				<-told
			}
		}()
	}
	b.later.watching(true)
	w := b.calls.watch(ctx, block+callTimeout)
	b.send(w, conn, []redis.Cmder{read})
	w.end()
	close(wake.answered)
	if err = b.settleErrors(ctx, []redis.Cmder{read}); err != nil {
		return "", err
	}
	r := replyReader{read.Val()}
	n, err := r.ofStream()
	if err != nil || n < 1 {
		return "", err
	}
	id, _, err := r.entry(nil)
	return string(id), err
}
