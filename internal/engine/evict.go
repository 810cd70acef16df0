package engine

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// item is what a plan has to know of one record.
type item struct {
	seq    uint64
	ts     int64
	size   uint32
	logged bool // its append is in the log
}

// expiry is what a topic knows of the age of its records.
type expiry struct {
	front      front // sizes and times of the oldest records
	nextExpiry int64 // no record expires before, Unix ms
	expiring   ticket
}

// looks are the topics of which somebody waits for the next record to expire, and that is near.
// They are few: what each topic has would cost every topic.
type looks struct {
	mu sync.Mutex
	at map[*entry]int64 // Unix ms
}

// set notes a look at the topic, unless there is one that comes no later.
func (l *looks) set(t *entry, at int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, ok := l.at[t]; ok && was <= at {
		return false
	}
	if l.at == nil {
		l.at = make(map[*entry]int64)
	}
	l.at[t] = at
	return true
}

// take takes the look at that time out; false if an earlier one has come in its place.
func (l *looks) take(t *entry, at int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at[t] != at {
		return false
	}
	delete(l.at, t)
	return true
}

// front holds the items of the batch or chunk that was read last: caps and the
// time to live take the oldest records, one after the other.
type front struct {
	items []item
	at    uint32 // where the last look ended
	used  bool   // since the last call of restFronts
	noted bool   // it is one of the engine's fronts
}

func (f *front) find(seq uint64) (item, bool) {
	f.used = true
	if at := int(f.at); at < len(f.items) && f.items[at].seq == seq {
		return f.items[at], true
	}
	i := sort.Search(len(f.items), func(i int) bool { return f.items[i].seq >= seq })
	if i == len(f.items) || f.items[i].seq != seq {
		return item{}, false
	}
	f.at = uint32(i + 1)
	return f.items[i], true
}

// fronts are the topics that have a front.
type fronts struct {
	mu     sync.Mutex
	topics []*entry
}

func (f *fronts) add(t *entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics = append(f.topics, t)
}

// restFronts drops the fronts that nobody has used since its last call: they are larger than
// all else that a topic at rest holds.
func (e *Engine) restFronts() {
	e.fronts.mu.Lock()
	topics := e.fronts.topics
	e.fronts.topics = nil
	e.fronts.mu.Unlock()
	for _, t := range topics {
		t.mu.Lock()
		if t.front.used {
			t.front.used = false
			e.fronts.add(t)
		} else {
			t.front = front{}
		}
		t.mu.Unlock()
	}
	e.fetches.rest()
}

// item returns what a plan has to know of a visible live record; a *cold says that only the disk
// knows. The topic's lock is held.
func (e *Engine) item(t *entry, seq uint64) (item, error) {
	if it, ok := t.front.find(seq); ok {
		return it, nil
	}
	e.clearFront(t)
	logged := t.isLogged(seq)
	rd := getReader()
	defer rd.put()
	ok, err := rd.resident(e, t, seq, func(r *api.Record) bool {
		t.front.items = append(t.front.items, item{r.Seq, r.TS, uint32(r.Size()), logged})
		return true
	})
	if err == nil && !ok {
		if t.front.items, err = e.fetches.find(t, seq, t.front.items); err == nil && len(t.front.items) == 0 {
			err = &cold{t: t, seqs: []uint64{seq}}
		}
	}
	return t.front.first(t, seq, err)
}

// isLogged reports whether the append of a live record is in the log.
func (t *entry) isLogged(seq uint64) bool {
	if !t.Index.InMemory() {
		return true
	}
	ref, _, inLog, _ := t.Index.Find(seq)
	return !(inLog && ref.Segment == topic.InMemory)
}

// itemFromDisk is item for a plan that takes more than a fetch brings.
func (e *Engine) itemFromDisk(t *entry, seq uint64) (item, error) {
	e.clearFront(t)
	err := e.readBatch(t, seq, func(r *api.Record) bool {
		t.front.items = append(t.front.items, item{r.Seq, r.TS, uint32(r.Size()), true})
		return true
	})
	return t.front.first(t, seq, err)
}

func (e *Engine) clearFront(t *entry) {
	t.front.items, t.front.at = t.front.items[:0], 0
	if !t.front.noted {
		t.front.noted = true
		e.fronts.add(t)
	}
}

// first is find of the number for which the front was filled.
func (f *front) first(t *entry, seq uint64, err error) (item, error) {
	if err != nil {
		return item{}, err
	}
	it, ok := f.find(seq)
	if !ok {
		return item{}, unreadable(t, seq, nil)
	}
	return it, nil
}

// readBatch visits every record of the batch or chunk that holds seq, as long
// as visit wants more. The topic's lock is held.
func (e *Engine) readBatch(t *entry, seq uint64, visit func(*api.Record) bool) error {
	ref, run, inLog, sealed := t.Index.Find(seq)
	rd := getReader()
	defer rd.put()
	err := errMoved
	switch {
	case inLog:
		err = rd.batch(e, t, ref, visit)
	case sealed:
		err = rd.chunk(e, t, run, seq, visit)
	}
	if err == errMoved { // nothing moves while the topic's lock is held
		err = unreadable(t, seq, nil)
	}
	return err
}

// stagedItem is item for a record that is staged but not visible. The sizes of
// its batch are read back from the log's memory unless they were kept: a cap that comes
// while batches are in flight is rare, and keeping them would cost every write. The log
// keeps what is not synced; behind that the batch waits for less, and is visible soon.
func (e *Engine) stagedItem(t *entry, seq uint64) (item, error) {
	s := t.StagedBatch(seq)
	if s == nil {
		return item{}, unreadable(t, seq, nil)
	}
	if s.Sizes == nil {
		rd := getReader()
		defer rd.put()
		sizes := make([]uint32, 0, s.N)
		ok, err := rd.held(e, t, s.Ref, func(r *api.Record) bool {
			sizes = append(sizes, uint32(r.Size()))
			return true
		})
		if s.Gen != e.log.Gen() || !ok && e.stop.Err() == nil {
			return item{}, wal.ErrStale
		}
		if !ok {
			return item{}, errShuttingDown()
		}
		if err != nil {
			return item{}, err
		}
		s.Sizes = sizes
	}
	return item{seq, s.TS, s.Sizes[seq-s.First], s.Ref.Segment != topic.InMemory}, nil
}

// planCap plans what the caps take once the records of the batch have come, if
// there is one: the oldest first, the new ones last. Damaged records met on the
// way are announced as lost first, which may make enough room.
func (e *Engine) planCap(t *entry, caps *api.Config, b *batch) (topic.Eviction, error) {
	for {
		ev, err := e.planEvict(t, caps, b)
		if err == nil {
			return ev, nil
		}
		if err = e.stepOverHeld(t, err); err != nil {
			return ev, err
		}
	}
}

func (e *Engine) planEvict(t *entry, caps *api.Config, b *batch) (topic.Eviction, error) {
	var ev topic.Eviction
	head, count, bytes := t.PlannedHead(), t.PlannedCount(), t.PlannedBytes()
	last := head
	if b != nil {
		last, count, bytes = head+uint64(b.n), count+uint64(b.n), bytes+b.bytes
	}
	if caps.Discard != api.DiscardOld {
		return ev, nil
	}
	for seq := uint64(0); topic.OverCap(caps, count, bytes); {
		if seq < head {
			seq = t.NextFree(seq)
		} else {
			seq++
		}
		if seq > last {
			break // nothing is left to take
		}
		var it item
		var err error
		switch {
		case seq <= t.Head:
			it, err = e.item(t, seq)
		case seq <= head:
			it, err = e.stagedItem(t, seq)
		default:
			it = item{size: b.sizes[seq-head-1], logged: t.Config.Durability != api.Ephemeral}
		}
		if c, ok := err.(*cold); ok {
			if ev.N < maxFetched {
				c.enough = enoughFor(*caps, count, bytes)
				return ev, c
			}
			it, err = e.itemFromDisk(t, seq)
		}
		if err != nil {
			return ev, err
		}
		ev.Take(seq, it.size, it.logged)
		count--
		bytes -= uint64(it.size)
	}
	return ev, nil
}

// enoughFor says of records that go one after the other when the caps are met. It is asked without
// the topic's lock, so the caps are as they were.
func enoughFor(caps api.Config, count, bytes uint64) func(item) bool {
	return func(it item) bool {
		count -= min(count, 1)
		bytes -= min(bytes, uint64(it.size))
		return !topic.OverCap(&caps, count, bytes)
	}
}

// expire plans the loss of what has outlived its time. If an earlier change is
// still on its way to the disk, the loss becomes visible behind it; then
// t.expiring says what to wait for. A *cold is for again.
func (e *Engine) expire(t *entry, now int64) error {
	ttl := t.Config.TTLMS
	if ttl == 0 || t.PlannedCount() == 0 || now <= t.nextExpiry {
		return nil
	}
	var ev topic.Eviction
	next := t.nextExpiry
	for seq := t.NextFree(0); seq <= t.Head; seq = t.NextFree(seq) {
		it, err := e.item(t, seq)
		if c, ok := err.(*cold); ok {
			if ev.N >= maxFetched {
				break // the others go with the next look
			}
			c.expiry, c.enough = true, func(it item) bool { return !outlived(it, now, ttl) }
			if e.postponed(c) {
				return nil
			}
			return c
		}
		if err != nil {
			if err = e.stepOverHeld(t, err); err != nil {
				return err
			}
			t.awaitLoss()
			continue
		}
		if !outlived(it, now, ttl) {
			next = it.ts + int64(min(ttl, 1<<62))
			break
		}
		ev.Take(seq, it.size, it.logged)
	}
	if ev.To > 0 {
		if err := e.stageEvict(t, ev, op.CauseTTL, now); err != nil {
			return err
		}
	}
	t.nextExpiry = next
	return nil
}

// outlived reports whether a record is past its time to live.
func outlived(it item, now int64, ttl uint64) bool { return now > it.ts && uint64(now-it.ts) > ttl }

const (
	// expiryPeriod is how often tickLoop looks for what has expired.
	expiryPeriod = time.Second
	// expiryPace is how far apart looks are that somebody waits for, so that records which expire
	// one behind the other are not one operation each.
	expiryPace = 20 // ms
)

// dropExpired applies what is due to a topic and takes out what has expired, unless the log takes
// nothing. Its lock is held, but let go of while the disk is read.
func (e *Engine) dropExpired(t *entry) {
	for range maxFetches {
		e.advance(t)
		if _, blocked := t.blocked(); blocked || t.Config.TTLMS == 0 {
			return
		}
		err := e.expire(t, e.clock())
		if err == nil { // with an error tickLoop tries again
			e.awaitExpiry(t)
		}
		c, ok := err.(*cold)
		if !ok {
			return
		}
		t.mu.Unlock()
		err = e.fetch(e.stop, c)
		t.mu.Lock()
		if err != nil || t.gone {
			return
		}
	}
}

// awaitExpiry has the topic looked at when its next record expires if somebody waits for the room
// and tickLoop would come late. The topic's lock is held.
func (e *Engine) awaitExpiry(t *entry) {
	if t.Config.TTLMS == 0 || t.PlannedCount() == 0 {
		return
	}
	now := e.opt.Now().UnixMilli() // where time stamps are ahead nothing expires until it has caught up
	at := max(t.nextExpiry+1, now+expiryPace)
	awaits := func(l listener) bool { return l.awaitsRoom(t) }
	if at-now > 2*expiryPeriod.Milliseconds() || !slices.ContainsFunc(e.listeners[:], awaits) || !e.looks.set(t, at) {
		return
	}
	time.AfterFunc(time.Duration(at-now)*time.Millisecond, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if e.looks.take(t, at) && e.stop.Err() == nil {
			e.dropExpired(t)
		}
	})
}

// awaitLoss lets readers wait until a loss that was just staged is visible.
func (t *entry) awaitLoss() {
	if lsn, gen, need := t.Pending(); lsn != 0 {
		t.expiring = ticket{lsn, gen, wal.Class(need)}
	}
}

// stageEvict logs and stages the loss of the oldest records by itself.
func (e *Engine) stageEvict(t *entry, ev topic.Eviction, cause op.Cause, now int64) error {
	part := op.Part{Kind: op.KindEvict, Topic: t.ID, To: ev.LoggedTo, Cause: cause, N: ev.LoggedN, Bytes: ev.LoggedBytes, TS: now}
	var st topic.Staged
	if ev.LoggedN > 0 {
		if err := e.logPart(t, &st, &part, wal.Memory); err != nil {
			return err
		}
	}
	part.To, part.N, part.Bytes = ev.To, ev.N, ev.Bytes
	st.Parts = []op.Part{part}
	tk := t.stage(st)
	e.advance(t)
	if !t.Idle() {
		t.expiring = tk
	}
	return nil
}
