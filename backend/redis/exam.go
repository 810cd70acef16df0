package redis

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// How much the doctor examines.
const (
	examPending   = 100 // oldest pending entries
	examConsumers = 1000
	defaultLimit  = 3 // deliveries
)

// exam is what the doctor reads about a stream.
type exam struct {
	keys     keys
	features *features
	limit    int // deliveries, as pools have it by default

	kind        string // of the stream's key: "stream", "none" or another type
	length      int64
	added       *int64 // entries ever added; nil before 7.0
	bytes       int64  // memory of the stream
	trims       int64  // entries that weir removed
	cut         bool   // others removed entries only by trimming: none was deleted by its ID
	dropped     int64  // those not acknowledged
	droppedLast string

	due     int64         // delayed messages that are due and not in the stream yet
	overdue time.Duration // of the first of them

	groups    []string
	group     *group // nil: absent; lag is set only if it is plausible
	behind    *int64 // entries after the last delivered one; nil: too many to count
	others    bool   // other groups have read
	pending   []pendingEntry
	goneFirst string // the first pending entry whose data is gone
	goneCount int
	consumers []consumer
	signal    bool // the workers' signal exists

	deadKind string
	letters  int64
	memory   string // INFO memory
}

// pendingEntry is what XPENDING says about one entry.
type pendingEntry struct {
	id, consumer string
	idle         time.Duration
	count        int
	returned     bool // given back: no one has it, whatever idle says
}

// consumer is what XINFO CONSUMERS says about one consumer.
type consumer struct {
	name    string
	pending int
	idle    time.Duration
}

// work is how many messages are unfinished, as far as they were counted.
func (e *exam) work() int64 {
	if e.group == nil {
		return 0
	}
	if e.behind == nil {
		return e.group.pending + countMost
	}
	return e.group.pending + *e.behind
}

// lostUnread is how many entries programs other than weir removed before the group read
// them, 0 if unknown. perhaps says that other groups may have read them before this one
// was created.
func (e *exam) lostUnread() (n int64, perhaps bool) {
	if e.added == nil || e.group == nil {
		return 0, false
	}
	if e.group.read != nil {
		behind := e.length
		if e.behind != nil {
			behind = *e.behind
		}
		return *e.added - *e.group.read - behind - e.dropped, false
	}
	if e.group.last == cursorStart {
		return e.removed(), e.others || e.trims > 0
	}
	return 0, false
}

// removed is how many entries programs other than weir have removed; 0 if unknown.
func (e *exam) removed() int64 {
	if e.added == nil {
		return 0
	}
	return *e.added - e.length - e.trims
}

// exam reads everything in two round trips.
func (b *Backend) exam(ctx context.Context) (*exam, error) {
	f, err := b.detect(ctx)
	if err != nil {
		return nil, err
	}
	k := b.keys
	var (
		kind      = redis.NewStatusCmd(ctx, "TYPE", k.stream)
		deadKind  = redis.NewStatusCmd(ctx, "TYPE", k.dead)
		stream    = redis.NewRawCmd(ctx, "XINFO", "STREAM", k.stream)
		groups    = redis.NewRawCmd(ctx, "XINFO", "GROUPS", k.stream)
		pending   = redis.NewRawCmd(ctx, "XPENDING", k.stream, k.group, "-", "+", examPending)
		consumers = redis.NewRawCmd(ctx, "XINFO", "CONSUMERS", k.stream, k.group)
		bytes     = redis.NewIntCmd(ctx, "MEMORY", "USAGE", k.stream, "SAMPLES", 5)
		trims     = redis.NewMapStringStringCmd(ctx, "HGETALL", k.trimmed)
		signal    = redis.NewIntCmd(ctx, "EXISTS", k.lag)
		letters   = redis.NewIntCmd(ctx, "XLEN", k.dead)
		memory    = redis.NewStringCmd(ctx, "INFO", "memory")
		at        = time.Now()
		waits     = b.count.lagCmd(ctx, &k, countMost, at)
	)
	_ = b.do(ctx, kind, deadKind, stream, groups, pending, consumers, bytes, trims, signal, letters, memory, waits)
	// The others may fail because something is missing or forbidden; then they are
	// ignored.
	for _, cmd := range []redis.Cmder{kind, deadKind} {
		if err := cmd.Err(); err != nil {
			return nil, err
		}
	}
	e := &exam{
		keys: k, features: f, limit: defaultLimit, kind: kind.Val(), deadKind: deadKind.Val(),
		bytes: bytes.Val(), signal: signal.Val() == 1, letters: letters.Val(), memory: memory.Val(),
		droppedLast: trims.Val()["dropped_last"],
	}
	e.trims, _ = strconv.ParseInt(trims.Val()["removed"], 10, 64)
	e.dropped, _ = strconv.ParseInt(trims.Val()["dropped"], 10, 64)
	got, unread := b.count.read(waits, &k, at) // the error is of the group
	e.due, e.overdue = got.due, got.overdue
	if e.kind != "stream" {
		return e, nil
	}
	if err := e.readStream(stream, groups); err != nil || e.group == nil {
		return e, err
	}
	if err := e.readGroup(pending, consumers); err != nil {
		return e, err
	}
	if unread != nil {
		return e, unread
	}
	if e.group.lag = got.lag; got.lag != nil || got.behind < countMost {
		behind := got.behind - got.due
		e.behind = &behind
	}
	return e, b.lookAtPending(ctx, e)
}

func (e *exam) readStream(stream, groups *redis.RawCmd) error {
	info, err := parseInfo(stream)
	if err != nil {
		return err
	}
	e.length, _ = strconv.ParseInt(info["length"], 10, 64)
	if text, known := info["entries-added"]; known {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			e.added = &n
		}
	}
	e.cut = info["max-deleted-entry-id"] == cursorStart
	if err := groups.Err(); err != nil {
		return err
	}
	all, err := each(groups, math.MaxInt, (*replyReader).group)
	for _, g := range all {
		e.groups = append(e.groups, g.name)
		if g.name == e.keys.group {
			e.group = &g
		} else if g.last != cursorStart {
			e.others = true
		}
	}
	return err
}

func (e *exam) readGroup(pending, consumers *redis.RawCmd) error {
	if err := pending.Err(); err != nil {
		return err
	}
	var err error
	if e.pending, err = each(pending, examPending, (*replyReader).pendingEntry); err != nil || consumers.Err() != nil {
		return err
	}
	e.consumers, err = each(consumers, examConsumers, (*replyReader).consumer)
	return err
}

// consumer reads [name, value, ...].
func (r *replyReader) consumer() (consumer, error) {
	info, err := r.info()
	c := consumer{name: info["name"]}
	c.pending, _ = strconv.Atoi(info["pending"])
	idle, _ := strconv.ParseInt(info["idle"], 10, 64)
	c.idle = time.Duration(idle) * time.Millisecond
	return c, err
}

// lookAtPending finds pending entries whose data is gone, and those that were
// given back.
func (b *Backend) lookAtPending(ctx context.Context, e *exam) error {
	if len(e.pending) == 0 {
		return nil
	}
	notes := []any{"HMGET", e.keys.retry}
	cmds := make([]redis.Cmder, len(e.pending))
	for i, p := range e.pending {
		cmds[i] = redis.NewRawCmd(ctx, "XRANGE", e.keys.stream, p.id, p.id, "COUNT", 1)
		notes = append(notes, p.id)
	}
	said := redis.NewSliceCmd(ctx, notes...)
	if err := b.do(ctx, append(cmds, said)...); err != nil {
		return err
	}
	for i, cmd := range cmds {
		name, _, err := firstEntry(cmd.(*redis.RawCmd), "")
		if err != nil {
			return err
		}
		if name == "" {
			if e.goneCount++; e.goneCount == 1 {
				e.goneFirst = e.pending[i].id
			}
		}
		note, _ := said.Val()[i].(string)
		e.pending[i].returned = strings.HasPrefix(note, "!")
	}
	return nil
}

// pendingEntry reads [ID, consumer, idle, count].
func (r *replyReader) pendingEntry() (p pendingEntry, err error) {
	if _, err = r.array(); err != nil {
		return p, err
	}
	if p.id, err = r.text(); err != nil {
		return p, err
	}
	if p.consumer, err = r.text(); err != nil {
		return p, err
	}
	idle, err := r.int()
	if err != nil {
		return p, err
	}
	p.idle = time.Duration(idle) * time.Millisecond
	p.count, err = r.int()
	return p, err
}

// parseInfo reads the answer of XINFO STREAM.
func parseInfo(cmd *redis.RawCmd) (map[string]string, error) {
	if err := cmd.Err(); err != nil {
		return nil, err
	}
	r := replyReader{cmd.Val()}
	return r.info()
}

// info reads [name, value, ...] and leaves out values that are lists.
func (r *replyReader) info() (map[string]string, error) {
	n, err := r.array()
	if err != nil {
		return nil, err
	}
	info := make(map[string]string, n/2)
	for range n / 2 {
		name, err := r.text()
		if err != nil {
			return nil, err
		}
		if len(r.rest) > 0 && r.rest[0] == '*' {
			err = r.skip()
		} else {
			info[name], err = r.text()
		}
		if err != nil {
			return nil, err
		}
	}
	return info, nil
}

// skip skips a value of any shape.
func (r *replyReader) skip() error {
	if len(r.rest) == 0 || r.rest[0] != '*' {
		_, err := r.bytes()
		return err
	}
	n, err := r.array()
	for range n {
		if err := r.skip(); err != nil {
			return err
		}
	}
	return err
}

// noSuchKey reports whether XINFO was asked about a stream that does not exist.
func noSuchKey(err error) bool { return err != nil && strings.Contains(err.Error(), "no such key") }
