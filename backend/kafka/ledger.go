package kafka

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// workerTTL is how long a member's entry counts without being renewed, workerBeat how
	// often it is renewed.
	workerTTL  = 10 * time.Second
	workerBeat = 3 * time.Second
	// ledgerGap is the least time between two entries of a member.
	ledgerGap = 20 * time.Millisecond
	pageBytes = 256 << 10 // that a slow link brings while a call lasts
	// leaveTimeout is how long a member that leaves tries to say what it has finished, and then what
	// it gave back. Without the one, what is finished is handed out once more and what is not counts as
	// after a crash; without the other, the age of the oldest may be that of a later one.
	leaveTimeout = 3 * time.Second
	// backAge is how long what a member gave back when it left says something, and how long
	// a producer is remembered that says nothing.
	backAge = 24 * time.Hour
)

// ledger is the topic <topic>.weir: what the groups' members hold, and the workers' signal.
// Brokers tell nobody how much a share group has in flight, and its members have no
// metadata. The topic is compacted: it keeps the last entry of each member and group.
type ledger struct {
	b    *Backend
	kick chan struct{}

	asking chan struct{} // holds the one refresh that runs
	layout *layout       // of that one; nil: it has to be asked for
	topic  [16]byte      // the ledger that was read, of that one

	mu      sync.Mutex // held for no call
	next    int64      // written by the one that asks
	entries map[string]entry
	ours    bool // weir's workers have been in the group
	past    past
	shown   *horizon // what of this handle's was written last, or need not be
	// The losses that this handle has told first and not taken up yet, though others may have told more since,
	// and the offset behind them.
	firsts  map[string][]entry
	firstTo int64
	// What producers have counted, and all of them, also those that are forgotten.
	counts map[string]counted
	sums   []uint32
	forgot time.Time // when who is gone was forgotten last, by the broker's clock
	shares []share   // of the room, in their order
}

// entry is a record of the ledger. An unknown version is not understood and counts as none.
type entry struct {
	Version int   `json:"v"`
	Pending int64 `json:"pending"`
	TTL     int64 `json:"ttl_ms"`
	// Name is what the member's worker calls itself, for people.
	Name string `json:"name,omitempty"`
	// Topic is the ID of the topic whose offsets these are.
	Topic string `json:"topic,omitempty"`
	// Held are the lowest offsets that the member holds, or gave back when it left.
	Held map[int32]int64 `json:"held,omitempty"`
	// Got is what the member has been given since it joined.
	Got map[int32]received `json:"got,omitempty"`
	// Fetched is how far it has fetched.
	Fetched map[int32]int64 `json:"fetched,omitempty"`
	// Seen is how far members have seen the logs reach.
	Seen map[int32]sighting `json:"seen,omitempty"`
	// Gap is what the group has lost of a partition by retention, Cut what with the log's end.
	Gap *gapEntry `json:"gap,omitempty"`
	Cut *cutEntry `json:"cut,omitempty"`
	// Offered is what a producer has counted, and Room what it takes of the room.
	Offered []uint32   `json:"offered,omitempty"`
	Room    *roomEntry `json:"room,omitempty"`

	at time.Time // the broker's
}

const entryVersion = 1

func (e entry) valid(now time.Time) bool {
	return e.Version == entryVersion && now.Before(e.at.Add(time.Duration(e.TTL)*time.Millisecond))
}

func newLedger(b *Backend) *ledger {
	return &ledger{
		b: b, kick: make(chan struct{}, 1), asking: make(chan struct{}, 1), entries: map[string]entry{}, firsts: map[string][]entry{}, counts: map[string]counted{},
	}
}

// past is what members had got of a topic before they went on with the one that was made again.
type past struct {
	topic string
	got   map[int32]received
}

const workerPrefix = "worker/"

func (l *ledger) workers() string { return workerPrefix + l.b.set.group + "/" }
func (l *ledger) own() string     { return l.workers() + l.b.group.name() }
func (l *ledger) signal() string  { return "signal/" + l.b.set.group }
func (l *ledger) horizon() string { return "seen/" + l.b.set.group }

// changed says that the number of pending messages is another.
func (l *ledger) changed() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// keep writes the member's entry when it changes and before it expires.
func (l *ledger) keep() {
	l.changed()
	beat := time.NewTicker(workerBeat)
	defer beat.Stop()
	for {
		select {
		case <-l.b.closing.Done():
			return
		case <-l.kick:
		case <-beat.C:
		}
		if l.b.ended.Load() {
			return // what it says last is to stay: see leave
		}
		_, pending := l.b.held.count()
		ctx, cancel := context.WithTimeout(l.b.closing, callTimeout)
		err := l.write(ctx, l.own(), &entry{
			Pending: int64(pending), TTL: workerTTL.Milliseconds(), Name: l.b.consumer(),
			Topic: l.b.topic.id(), Held: l.b.held.lowest(), Got: l.b.held.received(), Fetched: l.b.group.fetched(),
		})
		if err == nil {
			_ = l.show(ctx) // what does not get there goes with the next entry
		}
		cancel()
		if !l.b.pause(l.b.closing, ledgerGap) {
			return
		}
	}
}

// write appends an entry; nil removes it.
func (l *ledger) write(ctx context.Context, key string, e *entry) error {
	_, err := l.append(ctx, key, e)
	return err
}

// append is write and returns the ID of the record.
func (l *ledger) append(ctx context.Context, key string, e *entry) (id string, err error) {
	if err := l.b.ensure(ctx, l.b.set.ledger(), map[string]string{
		"cleanup.policy": "compact,delete", "retention.ms": "86400000", "segment.bytes": "1048576",
		"message.timestamp.type": "LogAppendTime", "min.compaction.lag.ms": "60000",
	}); err != nil {
		return "", err
	}
	r := &kgo.Record{Topic: l.b.set.ledger(), Key: []byte(key)}
	if e != nil {
		e.Version = entryVersion
		r.Value, _ = json.Marshal(e) // numbers cannot fail
	}
	return l.b.produceNext(ctx, r)
}

// leave replaces the member's entry by what it has given back.
func (l *ledger) leave(back map[int32]int64) {
	if !l.b.group.joined() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = l.write(ctx, l.own(), &entry{Topic: l.b.topic.id(), Held: back, Got: l.b.held.received()}) // if it does not get there, the old one expires
	_ = l.show(ctx)
}

// refresh reads what has been appended since the last time.
func (l *ledger) refresh(ctx context.Context) error {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.layout == nil {
		layout, err := l.b.layoutOf(ctx, l.b.set.ledger())
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil // no worker has been here
		}
		if err != nil {
			return err
		}
		l.follow(layout)
	}
	read, err := l.b.pages(ctx, l.b.set.ledger(), l.layout, 0, l.next, l.note)
	if err == nil && l.follow(read.by) {
		read, err = l.b.pages(ctx, l.b.set.ledger(), read.by, 0, 0, l.note)
	}
	if err != nil {
		l.layout = nil
		if read.by != nil && read.by.id == l.topic {
			l.goOn(read.next) // or a slow link would never bring all of a long ledger in the time of one call
		}
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) { // it was deleted
		l.b.made.forget(l.b.set.ledger())
		return nil
	}
	if err != nil {
		return err
	}
	l.layout = read.by
	l.goOn(read.next)
	return nil
}

// goOn notes up to where it was read.
func (l *ledger) goOn(next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next = next
}

// follow takes over where the ledger is, and reports whether it is another one than before: what is known of
// one that was deleted is forgotten, but for what producers have counted, whose sums do not fall.
func (l *ledger) follow(to *layout) (another bool) {
	l.layout = to
	if l.topic == to.id {
		return false
	}
	l.topic = to.id
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next, l.firstTo, l.entries, l.shares = 0, 0, map[string]entry{}, nil
	return true
}

func (l *ledger) note(r *kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ours = l.ours || under(string(r.Key), l.workers())
	l.forget(r.Timestamp)
	e := entry{at: r.Timestamp}
	if r.Value == nil || json.Unmarshal(r.Value, &e) != nil {
		delete(l.entries, string(r.Key))
		return
	}
	switch key := string(r.Key); {
	case e.Version != entryVersion:
	case e.Room != nil:
		l.noteRoom(key, r.Offset, e.at, e.Room)
		return
	case e.Offered != nil && under(key, l.allOffers()):
		l.noteOffered(key, e.at, e.Offered)
		return
	}
	old := l.entries[string(r.Key)]
	if under(string(r.Key), l.workers()) && !sameTopic(e.Topic, old.Topic) {
		if l.past.topic != old.Topic {
			l.past = past{old.Topic, map[int32]received{}}
		}
		addGot(l.past.got, old.Got)
	}
	if loss, _ := e.loss(); loss != nil && sameTopic(e.Topic, old.Topic) { // two may have found the same: the first tells
		if e.Gap, e.Cut = e.Gap.beyond(old.gap()), e.Cut.beyond(old.Cut); e.Gap == nil && e.Cut == nil {
			return
		}
	}
	if loss, _ := e.loss(); loss != nil && loss.By == l.b.group.name() && r.Offset >= l.firstTo {
		l.firsts[string(r.Key)], l.firstTo = append(l.firsts[string(r.Key)], e), r.Offset+1
	}
	l.entries[string(r.Key)] = e
}

// under reports whether a key is one below another: a group's name may be the beginning of
// another's.
func under(key, parent string) bool {
	name, below := strings.CutPrefix(key, parent)
	return below && !strings.Contains(name, "/")
}

// reading is what the ledger says about the group.
type reading struct {
	pending int64
	members int64
	signal  *int64
	ours    bool               // weir's workers are in the group, or were
	held    map[int32]int64    // the lowest offsets that are held, or were given back and not claimed again
	own     map[int32]received // by this handle
	got     map[int32]received // by all
	given   map[int32]heights  // the same, by the epochs of the records
	fetched map[int32]int64    // how far those have fetched that are there
	seen    map[int32]sighting // by members
}

// read reads the ledger. What this handle holds it knows better.
func (l *ledger) read(ctx context.Context) (reading, error) {
	if err := l.refresh(ctx); err != nil {
		return reading{}, l.b.explain(err)
	}
	_, own := l.b.held.count()
	r := reading{pending: int64(own), held: l.b.held.lowest(), own: l.b.held.received(), given: map[int32]heights{}, fetched: map[int32]int64{}}
	higher(r.fetched, l.b.group.fetched())
	r.got = maps.Clone(r.own)
	noteGiven(r.given, r.got)
	back, topic := map[int32]int64{}, l.b.topic.id()
	here := l.b.group.joined() // though what it says of itself is old, as after an outage
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	r.ours = l.ours
	for key, e := range l.entries {
		member, isWorker := strings.TrimPrefix(key, l.workers()), under(key, l.workers())
		if !sameTopic(e.Topic, topic) { // it was deleted and made again
			e.Held, e.Got, e.Fetched, e.Seen = nil, nil, nil, nil
		}
		if isWorker && member != l.b.group.name() {
			addGot(r.got, e.Got)
			noteGiven(r.given, e.Got)
		}
		switch {
		case key == l.signal() && e.valid(now):
			r.signal = &e.Pending
		case key == l.horizon():
			r.seen = e.Seen
		case !isWorker:
		case member == l.b.group.name():
			here = here || e.valid(now)
		case !e.valid(now) && now.Sub(e.at) > backAge:
			delete(l.entries, key)
		case !e.valid(now):
			lower(back, e.Held)
		default:
			r.pending += e.Pending
			r.members++
			lower(r.held, e.Held)
			higher(r.fetched, e.Fetched)
		}
	}
	if here {
		r.members++
	}
	if r.members == 0 { // otherwise they are soon held again
		lower(r.held, back)
	}
	return r, nil
}

// addGot adds what another member has been given.
func addGot(into, got map[int32]received) {
	for p, n := range got {
		have := into[p].higher(n.Top, n.Era)
		have.Count += n.Count
		into[p] = have
	}
}

// gotOf is what members had got of a topic before.
func (l *ledger) gotOf(topic string) map[int32]received {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[int32]received{}
	if l.past.topic == topic {
		addGot(all, l.past.got)
	}
	for key, e := range l.entries {
		if under(key, l.workers()) && e.Topic == topic {
			addGot(all, e.Got)
		}
	}
	return all
}

// higher takes over the offsets that are higher, lower those that are lower.
func higher(into, from map[int32]int64) {
	for p, offset := range from {
		into[p] = max(into[p], offset)
	}
}

func lower(into, from map[int32]int64) {
	for p, offset := range from {
		if have, there := into[p]; !there || offset < have {
			into[p] = offset
		}
	}
}
