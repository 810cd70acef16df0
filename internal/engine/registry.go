package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/push"
	"github.com/weirmq/weir/internal/engine/topic"
)

// entry is one topic with its lock, what the kernel keeps beside it, and what
// each of the rooms that follow it keeps there.
type entry struct {
	mu sync.Mutex
	topic.Topic
	life
	expiry
	counted

	next       *api.Config // the configuration staged last; nil if none is
	reserve    reserve
	loggedHead uint64 // the head as the log knows it; behind Head on an ephemeral topic

	changed   chan struct{} // closed when records become visible or the topic ends; nil while nobody waits
	lastRead  atomic.Int64
	lastWrite int64

	rank   rank
	push   push.Topic
	jobs   *leased // nil unless it is a queue
	routes routed
}

// life is a topic's way from its creation to its end.
type life struct {
	begin   logPlace // what has to be synced unless created; its lsn is 0 if the store has the creation
	leaving ticket   // the class stops being ephemeral; nothing is staged behind it
	end     ticket   // what to wait for if dropped

	created   atomic.Bool // false until its creation is durable
	dropped   bool        // its end is in the log
	gone      bool        // it left the registry, and the totals with it
	recovered bool        // its creation was lost: see replay.revive
	dirty     bool        // records of it went since the last look at disk space
}

// counted is what the engine's totals hold of a topic.
type counted struct {
	accounted uint64       // planned bytes
	keyed     atomic.Int64 // idempotency keys
}

// burial says which operation of the log moved how many jobs of a topic to the
// dead letters.
type burial struct{ lsn, topic, n uint64 }

// burials are those in segments that are not sealed.
type burials struct {
	mu   sync.Mutex
	list []burial
}

func (b *burials) add(x burial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, x)
}

// of returns those of a topic.
func (b *burials) of(topic uint64) (list []burial) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.list {
		if x.topic == topic {
			list = append(list, x)
		}
	}
	return list
}

// sealed forgets those at or below lsn.
func (b *burials) sealed(lsn uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = slices.DeleteFunc(b.list, func(x burial) bool { return x.lsn <= lsn })
}

// plannedConfig is the configuration that holds for what is staged next: its
// caps count from here on, though readers see it only once it is synced.
func (t *entry) plannedConfig() *api.Config {
	if t.next != nil {
		return t.next
	}
	return &t.Config
}

// registry finds topics by name and by number.
type registry struct {
	mu     sync.RWMutex
	byName map[string]*entry
	byID   map[uint64]*entry
	timed  atomic.Int64 // topics with a time to live
	ended  []ending     // topics that ended and began in a segment that is not sealed
	sorted []string     // all names in order; nil after a change

	shadowed []*entry // found by the recovery: ended, but the log has lost that
}

// ending is a topic that is no more, and where the log has its creation.
type ending struct{ id, lsn uint64 }

func (r *registry) init() {
	r.byName = make(map[string]*entry)
	r.byID = make(map[uint64]*entry)
}

func (r *registry) get(name string) *entry {
	r.mu.RLock()
	t := r.byName[name]
	r.mu.RUnlock()
	return t
}

func (r *registry) id(id uint64) *entry {
	r.mu.RLock()
	t := r.byID[id]
	r.mu.RUnlock()
	return t
}

// add registers a topic unless the name is taken (then it returns the holder)
// or the cap is reached (then nil).
func (r *registry) add(name string, t *entry, limit int64) (*entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.byName[name]; have != nil {
		return have, false
	}
	if limit > 0 && int64(len(r.byName)) >= limit {
		return nil, false
	}
	r.byName[name] = t
	r.byID[t.ID] = t
	r.sorted = nil
	return t, true
}

// remove takes a topic out; doing it twice is harmless.
func (r *registry) remove(t *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID[t.ID] != t {
		return false
	}
	delete(r.byID, t.ID)
	if r.byName[t.Name] == t {
		delete(r.byName, t.Name)
	}
	r.sorted = nil
	if t.begin.lsn > 0 {
		r.ended = append(r.ended, ending{t.ID, t.begin.lsn})
	}
	return true
}

// endings returns the topics that are no more and whose creation the log has at
// one of from to to.
func (r *registry) endings(from, to uint64) (ids []uint64) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, x := range r.ended {
		if x.lsn >= from && x.lsn <= to {
			ids = append(ids, x.id)
		}
	}
	return ids
}

// sealed forgets the topics that are no more and whose creation is at or below lsn.
func (r *registry) sealed(lsn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = slices.DeleteFunc(r.ended, func(x ending) bool { return x.lsn <= lsn })
}

// names returns all names in order; the slice must not be changed.
func (r *registry) names() []string {
	r.mu.RLock()
	s := r.sorted
	r.mu.RUnlock()
	if s != nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sorted == nil {
		r.sorted = make([]string, 0, len(r.byName))
		for name := range r.byName {
			r.sorted = append(r.sorted, name)
		}
		slices.Sort(r.sorted)
	}
	return r.sorted
}

func (r *registry) all() []*entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := make([]*entry, 0, len(r.byID))
	for _, t := range r.byID {
		all = append(all, t)
	}
	return all
}

func (r *registry) len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.byName)
}

// begun reports whether the log has the topic's creation, durable or not.
func (t *entry) begun() bool { return t.begin.lsn > 0 || t.created.Load() }

// isGone reports whether the topic has left the registry. Its lock is free.
func (t *entry) isGone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone
}

func (e *Engine) unregister(t *entry) {
	if !e.reg.remove(t) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	e.ended.add(t.totals())
	e.keys.Add(-t.keyed.Swap(0))
	if t.created.Load() {
		e.records.Add(-int64(t.Count))
		e.bytes.Add(-int64(t.accounted))
		t.accounted = 0
		e.count(&t.Config, -1)
	}
	t.wake()
	for _, l := range e.listeners {
		l.ended(t)
	}
	e.markDirty(t)
}

// wake lets the long polls of the topic look again.
func (t *entry) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// withTTL returns the topics whose records end with time.
func (r *registry) withTTL() []*entry {
	if r.timed.Load() == 0 {
		return nil
	}
	var some []*entry
	for _, t := range r.all() {
		t.mu.Lock()
		if t.Config.TTLMS > 0 {
			some = append(some, t)
		}
		t.mu.Unlock()
	}
	return some
}

// count adds a topic of this configuration to the totals, or takes it out with -1.
func (e *Engine) count(c *api.Config, by int64) {
	e.byClass[c.Durability].Add(by)
	if c.Type == api.TypeQueue {
		e.queueTopics.Add(by)
	}
	if c.TTLMS > 0 {
		e.reg.timed.Add(by)
	}
}
