package redis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

const (
	// countFor bounds how long one reading keeps the server busy counting; the next one
	// continues where it stopped.
	countFor = 5 * time.Millisecond
	// countAnew is how old a count, or the verification of a server's own number, may
	// get: entries deleted in the middle go unnoticed until then.
	countAnew = 10 * time.Second
	// countMost is how far Stats counts.
	countMost = 10_000
)

// count is the progress of counting the entries after the group's last delivered one,
// carried from one reading to the next.
type count struct {
	mu       sync.Mutex
	from, to string    // the IDs between which n was counted; empty: not started
	n        int64     // entries
	since    time.Time // when the count was begun
	believed time.Time // when the server's own number was last verified
}

// reading is what is waiting for the group, read in one step.
type reading struct {
	xlen, pending, consumers int64
	last                     string // last-delivered-id
	lag                      *int64 // nil: the server does not know, or its number is impossible
	behind                   int64  // entries after last, as far as they were counted
	read                     int64  // by the group, ever; -1: not known
	delayed, due             int64  // messages kept back until they are due, and beyond
	overdue                  time.Duration
}

// The first element of the script's answer.
const (
	thereIsNothing = 0
	thereIsAStream = 1
)

// Whether the server's number may be believed, as the script says; otherwise it is as it was.
const (
	disproved = 0
	proved    = 1
)

// lagCmd returns the command that reads what is waiting, counting up to most.
func (c *count) lagCmd(ctx context.Context, k *keys, most int64, now time.Time) *redis.RawCmd {
	return lagScript.cmd(ctx, []string{k.stream, k.later}, c.args(k, most, now)...)
}

// lagApart reads what is waiting with what is kept back read first: while the slot moves, the two cannot be
// read in one step.
func (b *Backend) lagApart(ctx context.Context, most int64, now time.Time) *redis.RawCmd {
	clock, kept := redis.NewTimeCmd(ctx, "TIME"), redis.NewIntCmd(ctx, "ZCARD", b.keys.later)
	due, first := redis.NewIntCmd(ctx), redis.NewZSliceCmd(ctx)
	err := b.do(ctx, clock, kept)
	if at := clock.Val().UnixMilli(); err == nil && kept.Val() > 0 {
		due = redis.NewIntCmd(ctx, "ZCOUNT", b.keys.later, "-inf", at)
		first = redis.NewZSliceCmd(ctx, "ZRANGE", b.keys.later, 0, 0, "WITHSCORES")
		_ = b.do(ctx, due, first)
	}
	overdue := int64(0)
	if len(first.Val()) > 0 {
		overdue = max(0, clock.Val().UnixMilli()-int64(first.Val()[0].Score))
	}
	cmd := lagScript.cmd(ctx, []string{b.keys.stream}, append(b.count.args(&b.keys, most, now), kept.Val(), due.Val(), overdue)...)
	_ = b.do(ctx, cmd)
	return cmd
}

// args returns the arguments of the script lag.
func (c *count) args(k *keys, most int64, now time.Time) []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, to, n, check := c.from, c.to, c.n, 0
	if now.Sub(c.since) > countAnew {
		from, to, n = "", "", 0
	}
	if now.Sub(c.believed) > countAnew {
		check = 1
	}
	return []any{k.group, from, to, n, most, countFor.Microseconds(), check}
}

// read takes the answer of lagCmd, which was sent at the time at. With
// ErrStreamNotFound and ErrGroupNotFound it still returns what is known.
func (c *count) read(cmd *redis.RawCmd, k *keys, at time.Time) (got reading, err error) {
	if err := cmd.Err(); err != nil {
		return got, err
	}
	got, _, err = c.parse(cmd.Val(), k, at)
	return got, err
}

// parse reads a reply; rest holds the elements after those of the script lag.
func (c *count) parse(reply []byte, k *keys, at time.Time) (got reading, rest replyReader, err error) {
	r := replyReader{reply}
	if _, err = r.array(); err != nil {
		return got, r, err
	}
	number := func() (n int64) {
		if err == nil {
			var v int
			v, err = r.int()
			n = int64(v)
		}
		return n
	}
	text := func() (s string) {
		if err == nil {
			s, err = r.text()
		}
		return s
	}
	found := number()
	got = reading{xlen: number(), pending: number(), consumers: number(), last: text()}
	lag, behind, from, to, believed := number(), number(), text(), text(), number()
	got.read = number()
	later, due := number(), number()
	got.delayed, got.due, got.overdue = later-due, due, time.Duration(number())*time.Millisecond
	got.xlen += later
	switch {
	case err != nil:
		return got, r, err
	case found == thereIsNothing:
		return got, r, fmt.Errorf("redis: %w: %q", backend.ErrStreamNotFound, k.stream)
	case found == thereIsAStream:
		return got, r, fmt.Errorf("redis: %w: %q of stream %q", backend.ErrGroupNotFound, k.group, k.stream)
	}
	c.keep(from, to, behind, int(believed), at)
	got.behind = behind + due // what is due waits, though no claim has moved it yet
	if lag >= 0 {
		lag += due
		got.lag = &lag
	}
	return got, r, nil
}

// doubt has the server's own number verified by the next reading: there may be another server.
func (c *count) doubt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.believed = time.Time{}
}

func (c *count) keep(from, to string, n int64, believed int, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.from == "" || at.Sub(c.since) > countAnew {
		c.since = at
	}
	c.from, c.to, c.n = from, to, n
	switch {
	case believed == disproved:
		c.believed = time.Time{}
	case believed == proved && at.Sub(c.believed) > countAnew:
		c.believed = at
	}
}
