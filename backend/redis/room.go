package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

var _ backend.Sharer = (*Backend)(nil)

// askAgain is how long a server that refuses to share out room is left alone.
const askAgain = time.Minute

// Share reads the signal and takes a share of the room in one round trip, of which a replica answers
// the first half: then it is left, if the primary is behind the same address by now. If the user
// may not write the room's key, or the server has no memory for it now, the reading is
// still valid and Room.Err says why there is no share.
func (b *Backend) Share(ctx context.Context, req backend.RoomRequest) (backend.Signal, backend.Room, error) {
	if no := b.noRoom.Load(); no != nil && time.Since(no.at) < askAgain {
		s, err := b.Signal(ctx, req.Limit)
		return s, backend.Room{Err: no.err}, err
	}
	at := time.Now()
	published := redis.NewStringCmd(ctx, "GET", b.keys.lag)
	args := append(b.count.args(&b.keys, req.Limit, at),
		b.producer, req.Limit, req.Pause, req.Need, req.Want, req.Kept, req.Lifetime.Milliseconds(), b.newGroup())
	waits := roomScript.cmd(ctx, []string{b.keys.stream, b.keys.later, b.keys.room}, args...)
	paused, back := b.pausedCmd(ctx, "HMGET"), b.givenBackCmd(ctx)
	_ = b.do(ctx, published, waits, paused, back)
	if errors.Is(waits.Err(), backend.ErrForbidden) || slotMoves(waits.Err()) {
		return b.roomless(ctx, req, waits.Err())
	}
	s, rest, err := b.signal(published, waits, at)
	if err != nil {
		return backend.Signal{}, backend.Room{}, err
	}
	s.Paused, s.GivenBack = marked(paused), min(back.Val(), s.Pending)
	given, err1 := rest.int()
	taken, err2 := rest.int()
	why, err3 := rest.text()
	if err := errors.Join(err1, err2, err3); err != nil {
		return backend.Signal{}, backend.Room{}, err
	}
	if why != "" {
		said := replyError(withoutPlace(strings.TrimSpace(why)))
		code, _ := replyCode(said)
		if code == "READONLY" && b.leaveReplica(ctx) {
			return b.Share(ctx, req)
		}
		return s, backend.Room{Err: b.noShare(explainReply(code, said))}, nil
	}
	return s, backend.Room{Given: int64(given), Taken: int64(taken)}, nil
}

// newGroup says what a group gets that its first claim creates; empty: it is not to be created.
func (b *Backend) newGroup() string {
	switch {
	case b.set.create == createNever:
		return ""
	case b.set.start == startNew:
		return "new"
	}
	return "all"
}

// roomless reads without the room's key, which the user may not touch.
func (b *Backend) roomless(ctx context.Context, req backend.RoomRequest, why error) (backend.Signal, backend.Room, error) {
	s, err := b.Signal(ctx, req.Limit)
	if err != nil {
		return s, backend.Room{}, err
	}
	return s, backend.Room{Err: b.noShare(why)}, nil
}

// noShare remembers why no room can be shared out, unless that passes.
func (b *Backend) noShare(why error) error {
	err := fmt.Errorf("redis: key %q cannot be written: %w", b.keys.room, why)
	if errors.Is(why, backend.ErrForbidden) || strings.Contains(why.Error(), "run this command") {
		err = fmt.Errorf("redis: let the ACL user run HMGET, HGETALL, HLEN, HSET, HDEL and PEXPIRE on %q: %w", b.keys.room, why)
	}
	if !backend.Retryable(err) {
		b.noRoom.Store(&denial{time.Now(), err})
	}
	return err
}

var (
	_ backend.Locator  = (*Backend)(nil)
	_ backend.Windower = (*Backend)(nil)
)

// Place names the servers, the database and the stream.
func (b *Backend) Place() string { return b.place }

// Window takes requests of the window that all processes share.
func (b *Backend) Window(ctx context.Context, most, want int64, length time.Duration) (given int64, left time.Duration, err error) {
	cmd := windowScript.cmd(ctx, []string{b.keys.window}, most, want, length.Milliseconds())
	if err := b.do(ctx, cmd); err != nil {
		return 0, 0, err
	}
	r := replyReader{cmd.Val()}
	_, err1 := r.array()
	n, err2 := r.int()
	ms, err3 := r.int()
	return int64(n), time.Duration(ms) * time.Millisecond, errors.Join(err1, err2, err3)
}

// denial is what a server refused, and when.
type denial struct {
	at  time.Time
	err error
}
