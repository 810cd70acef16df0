package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirmq/weir/backend"
)

// Stats reads the stream in one round trip and the age of its oldest work in a second.
// It creates nothing. An impossible lag is not passed on. A group that does not exist yet
// has everything that its first claim will find, unless it is not to be created.
func (b *Backend) Stats(ctx context.Context) (backend.Stats, error) {
	at := time.Now()
	clock := redis.NewTimeCmd(ctx, "TIME")
	waits := b.count.lagCmd(ctx, &b.keys, countMost, at)
	oldest := redis.NewRawCmd(ctx, "XPENDING", b.keys.stream, b.keys.group, "-", "+", 1)
	letters := redis.NewIntCmd(ctx, "XLEN", b.keys.dead)
	paused := b.pausedCmd(ctx, "HGET")
	role := b.roleCmd(ctx)
	_ = b.do(ctx, with(role, clock, waits, oldest, letters, paused)...)
	if b.misled(ctx, role) {
		return b.Stats(ctx)
	}
	if slotMoves(waits.Err()) {
		waits = b.lagApart(ctx, countMost, at)
	}
	if err := clock.Err(); err != nil {
		return backend.Stats{}, err
	}
	got, err := b.count.read(waits, &b.keys, at)
	missing := b.notYet(err)
	if err != nil && missing == nil {
		return backend.Stats{}, err
	}
	if missing != nil {
		b.foresee(&got)
	}
	s := backend.Stats{
		Missing: missing,
		At:      clock.Val(), XLen: got.xlen, Pending: got.pending, Lag: got.lag, Behind: got.behind, Delayed: got.delayed,
		Workers: &got.consumers, OldestSource: backend.AgeNone, Paused: marked(paused),
	}
	if letters.Err() == nil {
		count := letters.Val()
		s.DeadLetters = &count
	}
	return s, b.readAge(ctx, &s, &got, oldest)
}

// notYet returns err if it says that what is missing will be created by its first use.
func (b *Backend) notYet(err error) error {
	stream := errors.Is(err, backend.ErrStreamNotFound)
	if b.set.create == createNever || !stream && !errors.Is(err, backend.ErrGroupNotFound) {
		return nil
	}
	return err
}

// foresee says what will wait for a group that its first claim will create.
func (b *Backend) foresee(got *reading) {
	got.last, got.behind = "0-0", got.due
	if b.set.start != startNew {
		got.behind = got.xlen - got.delayed
	}
	got.lag = &got.behind
}

// group is what XINFO GROUPS says about one group.
type group struct {
	name               string
	consumers, pending int64
	lag                *int64 // nil: unknown. The client's own type would make it 0.
	hasLag             bool   // the server reports a lag, if only that it is unknown (7.0)
	read               *int64 // how many entries it has read; nil: unknown
	last               string // last-delivered-id
}

// group reads [name, value, ...].
func (r *replyReader) group() (g group, err error) {
	n, err := r.array()
	if err != nil {
		return g, err
	}
	for range n / 2 {
		key, err := r.text()
		if err != nil {
			return g, err
		}
		value, err := r.bytes()
		if err != nil {
			return g, err
		}
		number, _ := strconv.ParseInt(string(value), 10, 64)
		switch key {
		case "name":
			g.name = string(value)
		case "consumers":
			g.consumers = number
		case "pending":
			g.pending = number
		case "last-delivered-id":
			g.last = string(value)
		case "entries-read":
			if value != nil {
				g.read = &number
			}
		case "lag":
			g.hasLag = true
			if value != nil {
				g.lag = &number
			}
		}
	}
	return g, nil
}

// readAge finds the age of the oldest unfinished message. A pending one comes first;
// its time of publishing is exact, the others are estimates.
func (b *Backend) readAge(ctx context.Context, s *backend.Stats, got *reading, oldest *redis.RawCmd) error {
	from, to, byTime, byID := "", "", backend.AgePending, backend.AgePendingID
	switch {
	case s.Pending > 0:
		r := replyReader{oldest.Val()}
		if n, err := r.array(); oldest.Err() == nil && err == nil && n > 0 {
			from, _, _ = r.pending()
			to = from
		}
	case s.Behind > got.due:
		from, to, byTime, byID = after(got.last), "+", backend.AgeBacklog, backend.AgeBacklogID
	case got.due > 0:
		s.OldestAge, s.OldestSource, s.Approx = got.overdue, backend.AgeBacklog, true
		return nil
	default:
		return nil
	}
	if from == "" {
		s.OldestSource, s.Approx = backend.AgeUnknown, true
		return nil
	}
	entry := redis.NewRawCmd(ctx, "XRANGE", b.keys.stream, from, to, "COUNT", 1)
	if err := b.do(ctx, entry); err != nil {
		return err
	}
	name, at, err := firstEntry(entry, b.set.enqueued)
	switch {
	case err != nil:
		return err
	case name == "" && s.Pending == 0:
		s.OldestSource, s.Approx = backend.AgeUnknown, true
		return nil
	case name == "":
		name = from // its data is gone, but its ID still tells the time
	}
	setAge(s, name, at, byTime, byID)
	return nil
}

// firstEntry reads the first of [entry, ...] and when it was published according to the
// field enqueued; no name if there is none, a zero time if the field does not say.
func firstEntry(cmd *redis.RawCmd, enqueued string) (name string, at time.Time, err error) {
	r := replyReader{cmd.Val()}
	n, err := r.array()
	if err != nil || n < 1 {
		return "", at, err
	}
	text, fields, err := r.entry(nil)
	if err != nil {
		return "", at, err
	}
	var c content
	for _, f := range fields {
		if string(f.name) == enqueued {
			c.setEnqueued(f.value)
		}
	}
	return string(text), c.enqueued, nil
}

// clockSlack is how far apart synchronized clocks may be, and earliest a time before
// which no server assigned an ID.
const clockSlack = time.Second

var earliest = time.Date(2017, 1, 1, 0, 0, 0, 0, time.UTC)

// setAge takes the age from the time of publishing, or otherwise from an entry's ID:
// also if the former is later because a producer's clock is ahead.
func setAge(s *backend.Stats, name string, at time.Time, byTime, byID backend.AgeSource) {
	s.OldestSource, s.Approx = byTime, byTime == backend.AgeBacklog
	var stored time.Time // by the server's clock, unless the producer chose the ID
	if v, err := parseID(name); err == nil {
		stored = time.UnixMilli(int64(v.ms))
	}
	plausible := stored.After(earliest) && !stored.After(s.At.Add(clockSlack))
	switch fast := at.Sub(stored) > clockSlack; {
	case at.IsZero() && stored.IsZero(), at.After(s.At.Add(clockSlack)) && !plausible:
		s.OldestSource, s.Approx = backend.AgeUnknown, true
		return
	case at.IsZero(), fast && plausible: // nothing is published after it was stored
		at, s.OldestSource, s.Approx = stored, byID, true
	case fast:
		s.Approx = true
	}
	s.OldestAge = max(0, s.At.Sub(at))
}
