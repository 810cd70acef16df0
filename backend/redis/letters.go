package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// purgeStep is the most IDs in one command.
const purgeStep = 1000

//go:embed lua/redrive.lua
var redriveSource string

var redriveScript = newScript(redriveSource)

var _ backend.DeadLetters = (*Backend)(nil)

// List returns dead letters. An entry that someone else put there has no origin.
func (b *Backend) List(ctx context.Context, from, after string, most int) ([]backend.DeadLetter, error) {
	start := "-"
	if after != "" {
		last, err := parseID(after)
		if err != nil {
			return nil, err
		}
		start = last.next().String()
	}
	cmd := redis.NewRawCmd(ctx, "XRANGE", b.deadKey(from), start, "+", "COUNT", max(1, most))
	if err := b.do(ctx, cmd); err != nil {
		return nil, err
	}
	var letters []backend.DeadLetter
	err := eachEntry(cmd, func(name string, c content) {
		letters = append(letters, letterOf(name, c))
	})
	return letters, err
}

func (b *Backend) deadKey(name string) string {
	if name == "" {
		return b.keys.dead
	}
	return name
}

// eachEntry calls f for the entries of an XRANGE reply.
func eachEntry(cmd *redis.RawCmd, f func(name string, c content)) error {
	r := replyReader{cmd.Val()}
	n, err := r.array()
	if err != nil {
		return err
	}
	var fields []field
	for range n {
		name, found, err := r.entry(fields)
		if err != nil {
			return err
		}
		fields = found
		f(string(name), decode(found))
	}
	return nil
}

// letterOf separates the headers that tell a letter's history from the others.
func letterOf(name string, c content) backend.DeadLetter {
	take := func(header string) string {
		value := c.headers[header]
		delete(c.headers, header)
		return value
	}
	l := backend.DeadLetter{
		ID:       name,
		Data:     c.data,
		Stream:   take(backend.HeaderDeadStream),
		Group:    take(backend.HeaderDeadGroup),
		OriginID: take(backend.HeaderDeadID),
		Reason:   take(backend.HeaderDeadReason),
		Error:    take(backend.HeaderDeadError),
		Consumer: take(backend.HeaderDeadConsumer),
		Enqueued: c.enqueued,
	}
	// What is not a number was not written by weir and is ignored.
	l.Attempts, _ = strconv.Atoi(take(backend.HeaderDeadAttempts))
	take(backend.HeaderRedriveGroup)
	l.Redrives, _ = strconv.Atoi(take(backend.HeaderRedrives))
	if ms, err := strconv.ParseInt(take(backend.HeaderDeadAt), 10, 64); err == nil {
		l.DeadAt = time.UnixMilli(ms)
	} else if v, err := parseID(name); err == nil {
		l.DeadAt = time.UnixMilli(int64(v.ms))
	}
	if len(c.headers) > 0 {
		l.Headers = c.headers
	}
	return l
}

// Redrive appends the message, newly published, to the stream it came from and removes
// the letter, in one step. The entry names the group it failed in, and weir's workers
// in other groups acknowledge it unseen. A letter without a group goes to all groups of
// this stream. If the stream has no group at all, the letter's group is created as by
// its first claim.
func (b *Backend) Redrive(ctx context.Context, from string, letter backend.DeadLetter) error {
	to := letter.Stream
	if to == "" {
		to = b.keys.stream
	}
	k, err := keysOf(to, letter.Group)
	if err != nil {
		return err
	}
	cmd := redriveScript.cmd(ctx, []string{b.deadKey(from), to, k.about}, letter.ID, letter.Group)
	if err := b.do(ctx, cmd); err != nil {
		return err
	}
	r := replyReader{cmd.Val()}
	n, err := r.array()
	switch {
	case err == nil && n == 0:
		err = fmt.Errorf("redis: dead letter %s of %q: %w", letter.ID, b.deadKey(from), backend.ErrNotFound)
	case err == nil && n > 1:
		err = fmt.Errorf("redis: %w: group %q of stream %q, which dead letter %s failed in, is gone",
			backend.ErrGroupNotFound, letter.Group, to, letter.ID)
	}
	return err
}

// Purge removes dead letters. On an error it returns how many are gone by then.
func (b *Backend) Purge(ctx context.Context, from string, ids []string) (int, error) {
	removed := 0
	for len(ids) > 0 {
		n := min(len(ids), purgeStep)
		args := []any{"XDEL", b.deadKey(from)}
		for _, name := range ids[:n] {
			if _, err := parseID(name); err != nil {
				return removed, err
			}
			args = append(args, name)
		}
		cmd := redis.NewIntCmd(ctx, args...)
		if err := b.do(ctx, cmd); err != nil {
			return removed, err
		}
		removed += int(cmd.Val())
		ids = ids[n:]
	}
	return removed, nil
}
