package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// A message that is not due is a member of the sorted set {stream}:later. What claims moves
// the due ones into the stream before it reads, in the same round trip, and while claims of
// a process wait, its watch does (see watch.go).

const (
	// moveMost and moveBytes bound what one script moves, and so how long it keeps others
	// waiting: less than a millisecond, or one large message.
	moveMost  = 100
	moveBytes = 1 << 20
	// moveEvery is how often a process that claims without a pause asks whether a message
	// is due that it does not know of.
	moveEvery = 10 * time.Millisecond
	// unwatched is the longest wait of a claim while nobody would tell it about an earlier
	// message.
	unwatched = 2 * time.Second
	// mostFields is the most names and values of a message that a script can make an entry
	// of: Lua's unpack gives out at 8000.
	mostFields = 7900
	// refusedFirst is how long a server that refuses to move is left alone after the first time. It
	// doubles up to askAgain.
	refusedFirst = time.Second
	// untilDue stands for the time of publishing of a message that is not due: it is
	// published when it is.
	untilDue = ""
	// laterPrefix begins the name of a message that is not an entry yet.
	laterPrefix = "later-"
)

var _ backend.Delayer = (*Backend)(nil)

// Delays reports that messages can be kept back.
func (b *Backend) Delays() bool { return true }

func isLater(id string) bool { return strings.HasPrefix(id, laterPrefix) }

// delayOf returns how long a message has to be kept back.
func delayOf(m *backend.Message) (time.Duration, error) {
	if !m.IsDelayed() {
		return 0, nil
	}
	delay, err := m.DueIn(time.Now())
	if err != nil {
		err = fmt.Errorf("redis: %w", err)
	}
	return delay, err
}

// fitLater refuses a delayed message that could be stored, but not become an entry.
func (f *features) fitLater(m *backend.Message, delay time.Duration, fields int) error {
	if delay == 0 {
		return nil
	}
	all := int64(len(m.Data))
	for name, value := range m.Headers {
		all += int64(len(name) + len(value))
	}
	switch {
	case fields > mostFields:
		return fmt.Errorf("redis: %w: %d headers are too many for a message with a delay", backend.ErrTooLarge, len(m.Headers))
	case all+commandSlack > f.maxField:
		return tooLarge("with a delay it is kept in one piece, of %d bytes, and the server takes %d (%s)", all, f.maxField, configField)
	}
	return nil
}

// laterCmd returns the command that keeps a message back.
func (b *Backend) laterCmd(ctx context.Context, m *backend.Message, delay time.Duration) (redis.Cmder, error) {
	keys := []string{b.keys.later, b.keys.about, b.keys.wake}
	if m.IdempotencyKey != "" {
		keys = append(keys, b.keys.idem+m.IdempotencyKey)
	}
	args, err := appendFields([]any{idempotencyWindow.Milliseconds(), delay.Milliseconds()}, m, untilDue)
	if err == nil {
		err = b.features.Load().fitLater(m, delay, len(args)-2)
	}
	return laterScript.cmd(ctx, keys, args...), err
}

// later is what this process knows about the messages that are kept back.
type later struct {
	mu      sync.Mutex
	used    bool          // there has been one
	asked   time.Time     // when the server was last asked
	due     time.Time     // when the next one is; zero: none is known of
	refusal error         // why the server does not move them; nil: it does
	halted  time.Time     // since when it does not because the slot moves; zero: it does
	denied  time.Time     // when it said so
	rest    time.Duration // for how long it is left alone then

	watch watch
}

// resting returns for how long the server is still left alone, because it has refused.
func (l *later) resting(now time.Time) time.Duration { return l.rest - now.Sub(l.denied) }

// refused notes that the server does not move them. It may be over soon, as when a user gets
// other rights, or last for ever.
func (l *later) refused(err error, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = err
	if l.resting(now) <= 0 { // otherwise another call has just been told
		l.denied, l.rest = now, min(max(2*l.rest, refusedFirst), askAgain)
	}
}

// halt notes that the server does not move them because it gives away the slot. That is worth a word only
// if there are any and it lasts.
func (l *later) halt(err error, any bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.halted.IsZero() {
		l.halted = now
	}
	if any && now.Sub(l.halted) > refusedFirst {
		l.refusal = err
	}
	l.denied, l.rest = now, refusedFirst
}

// why returns the error that keeps what is due where it is, if there is one.
func (l *later) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal
}

// ask reports whether it is time to ask the server for what is due.
func (l *later) ask() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.resting(now) > 0 || now.Sub(l.asked) < moveEvery && (l.due.IsZero() || now.Before(l.due)) {
		return false
	}
	l.asked = now
	return true
}

// told notes an answer.
func (l *later) told(m moved, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used, l.due = m.used, time.Time{}
	l.refusal, l.halted, l.denied, l.rest = nil, time.Time{}, time.Time{}, 0
	if m.next >= 0 {
		l.due = now.Add(m.next)
	}
}

// wait bounds the wait of a claim that began at now and is to last d at most.
func (l *later) wait(d time.Duration, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watch.on {
		return d
	}
	d = min(d, unwatched)
	if rest := l.resting(now); rest > 0 {
		return min(d, rest) // what is due stays
	}
	if !l.due.IsZero() {
		d = min(d, max(l.due.Sub(now), time.Millisecond))
	}
	return d
}

// moved is the answer of the script move.
type moved struct {
	n    int           // messages
	next time.Duration // until the next is due; negative: there is none
	used bool          // there is one or has been
}

func (b *Backend) moveCmd(ctx context.Context) *redis.RawCmd {
	return moveScript.cmd(ctx, []string{b.keys.stream, b.keys.later, b.keys.about, b.keys.wake}, moveMost, moveBytes)
}

// hasMoved reads the answer of moveCmd. What a server refuses for good is not asked of it
// again for a while: claims get what is there.
func (b *Backend) hasMoved(ctx context.Context, cmd *redis.RawCmd) (m moved, err error) {
	if err := cmd.Err(); err != nil {
		why := fmt.Errorf("messages that are due cannot be moved into the stream: %w", err)
		if slotMoves(err) {
			kept := redis.NewIntCmd(ctx, "ZCARD", b.keys.later)
			_ = b.do(ctx, kept)
			b.later.halt(why, kept.Val() > 0, time.Now())
		}
		if code, _ := replyCode(err); (code != "" || errors.Is(err, backend.ErrForbidden)) && !backend.Retryable(err) {
			b.later.refused(why, time.Now())
		}
		return m, why
	}
	r := replyReader{cmd.Val()}
	_, err0 := r.array()
	n, err1 := r.int()
	next, err2 := r.int()
	used, err3 := r.int()
	m = moved{n, time.Duration(next) * time.Millisecond, used > 0}
	if err = errors.Join(err0, err1, err2, err3); err == nil {
		b.later.told(m, time.Now())
	}
	return m, err
}

// doAfterMove sends commands of a claim as doLarge does, behind the one that moves what is
// due, if it is time for that.
func (b *Backend) doAfterMove(ctx context.Context, c *claim, read *redis.RawCmd, before ...redis.Cmder) (free func(), err error) {
	if !b.later.ask() {
		return b.doLarge(ctx, read, before...)
	}
	move := b.moveCmd(ctx)
	free, err = b.doLarge(ctx, read, append([]redis.Cmder{move}, before...)...)
	m, wrong := b.hasMoved(ctx, move)
	if wrong == nil {
		c.passed = c.passed || m.n > 0 // a server that did not know the script ran it last
		return free, err
	}
	if !slotMoves(wrong) { // otherwise they come when it has moved
		c.unmoved = wrong
	}
	for _, cmd := range append(before, read) {
		if err := cmd.Err(); err != nil && err != redis.Nil {
			return free, err
		}
	}
	return free, nil
}
