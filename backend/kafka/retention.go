package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirmq/weir/backend"
)

var _ backend.Retainer = (*Backend)(nil)

const (
	// nearRetention is the part of the retention after which what is unfinished is near
	// its removal.
	nearRetention = 0.8
	// limitsAge is how long a topic's retention is taken to be the same.
	limitsAge = time.Minute
	gapPrefix = "gap/"
)

// gapEntry is what retention has removed of a partition before the group had finished it.
type gapEntry struct {
	From  int64  `json:"from"`
	To    int64  `json:"to"` // the offset behind the last
	Count int64  `json:"count"`
	Total int64  `json:"total"` // with earlier ones
	By    string `json:"by"`    // the member that tells
}

// beyond returns what of a gap another one has not told: nil for nothing, or nothing that is certain.
func (g *gapEntry) beyond(told *gapEntry) *gapEntry {
	if g == nil || told == nil || g.From >= told.To {
		return g
	}
	more := *g
	more.From = told.To
	more.Count = min(g.Count-min(told.Count, told.To-g.From), g.To-told.To)
	more.Total = told.Total + more.Count
	if more.Count <= 0 {
		return nil
	}
	return &more
}

// and is both of two gaps, without what the second one says again.
func (g *gapEntry) and(other *gapEntry) *gapEntry {
	switch {
	case g == nil:
		return other
	case other == nil:
		return g
	case other.From < g.From:
		g, other = other, g
	}
	if other = other.beyond(g); other == nil {
		return g
	}
	return &gapEntry{From: g.From, To: other.To, Count: g.Count + other.Count}
}

// lookout compares where the topic begins and ends with how far the group was.
type lookout struct {
	tells bool // what it finds is told once in the group
	turn  turn // of who looks, who holds the rest
	topic [16]byte
	seen  map[int32]sight
	ends  map[int32]sighting  // how far the logs reached
	there map[int32]heights   // what others have seen and is not lost
	found []backend.Gap       // not told yet
	owed  map[int32]*gapEntry // gaps that are not noted in the ledger yet
	cuts  map[int32]*cutEntry // the last lost ends that one who only looks has found
	gone  map[int32]*cutEntry // of the topic before; to be told
	stood map[int32]int64     // where something was left: how much of it was finished

	begun atomic.Bool             // it has looked, or tried to
	shown atomic.Pointer[horizon] // ends, for the ledger
}

func newLookout(tells bool) *lookout { return &lookout{tells: tells, turn: newTurn()} }

// sight is a partition as it was at a moment.
type sight struct {
	start int64 // of the log
	reach int64 // nothing before it was waiting
	count int64 // records given to members

	fetched int64 // by the member of a classic group
}

// limits is the retention of a topic; what is not limited is -1.
type limits struct {
	at    time.Time
	age   time.Duration
	bytes int64
}

// lastLimits are those last read.
type lastLimits struct {
	mu sync.Mutex
	limits
}

// Retained compares where the log begins now with how far the group was when it was looked
// at last. What retention removed in front of workers that were on their way there cannot be
// told from what they got in between, so it counts what is certain.
func (b *Backend) Retained(ctx context.Context, mark bool) (backend.Retained, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return backend.Retained{}, err
	}
	defer done()
	o := b.glance
	if mark {
		o = b.lookout
	}
	got, err := b.retained(call, o)
	return got, b.cut(ctx, err)
}

func (b *Backend) retained(ctx context.Context, o *lookout) (got backend.Retained, err error) {
	if err := o.turn.take(ctx); err != nil {
		return got, err
	}
	w, r, err := b.look(ctx, o)
	if err != nil && !errors.Is(err, backend.ErrGroupNotFound) && w.edges != nil {
		b.lookOn(o, &w)
	}
	if err == nil {
		got.Gaps, o.found = o.found, nil
		o.begun.Store(true)
	}
	var stuck []int32
	if err == nil && o.tells {
		stuck = o.stuck(&w)
	}
	o.turn.give()
	b.group.stuck(stuck)
	if err == nil && len(w.parts) > 0 {
		b.expiry(ctx, &w, &r, &got)
	}
	return got, err
}

// lookFirst looks before the handle's first claims: from then on the group may go on behind
// what is missing.
func (b *Backend) lookFirst(ctx context.Context) {
	o := b.lookout
	if o.begun.Load() {
		return
	}
	call, done, err := b.begin(ctx)
	if err != nil {
		return
	}
	defer done()
	if o.turn.take(call) != nil {
		return
	}
	defer o.turn.give()
	if !o.begun.Load() {
		_, _, _ = b.look(call, o) // the next look finds less, or the claim finds no broker either
		o.begun.Store(true)
	}
}

// look finds what was lost. It is the caller's turn.
func (b *Backend) look(ctx context.Context, o *lookout) (work, reading, error) {
	b.starts.forget() // what matters here is that it has moved
	b.topic.forget()  // and whose offsets these are: brokers are asked by name
	w, err := b.measure(ctx, false)
	if errors.Is(err, backend.ErrGroupNotFound) { // it has lost nothing yet
		b.follow(o, w.topic)
		o.see(w.edges)
	}
	if err != nil {
		return w, reading{}, err
	}
	r, err := b.ledger.read(ctx)
	if err != nil {
		return w, r, err
	}
	b.follow(o, w.topic)
	if o.tells {
		for p, gap := range b.group.passedOver(w.topic) {
			o.owed[p] = o.owed[p].and(gap)
			r.fetched[p] = max(r.fetched[p], gap.To)
		}
	}
	if err := b.tellGone(ctx, o); err != nil {
		return w, r, err
	}
	toldEnds := b.toldEnds(o, &w)
	cuts, err := b.cuts(ctx, o, &w, &r, toldEnds)
	if err == nil && len(cuts) > 0 {
		err = b.still(ctx, w.topic)
	}
	if err != nil {
		return w, r, err
	}
	for p, at := range w.edges {
		cut, err := b.tellEnd(ctx, o, p, cuts[p], toldEnds[p], at, &r)
		if err != nil {
			return w, r, err
		}
		gap := o.gap(p, at, cut.lacks(r.got[p]), r.fetched[p], b.ledger.told(gapPrefix, p).gap(), r.members == 0)
		switch {
		case gap == nil:
		case o.tells:
			o.owed[p] = o.owed[p].and(gap)
		default:
			o.find(p, backend.GapRemoved, gap)
		}
	}
	o.see(w.edges)
	return w, r, b.tellOwed(ctx, o, &w)
}

// stuck returns the partitions in which something was left by the look before, and nothing has been finished since.
func (o *lookout) stuck(w *work) (list []int32) {
	stood := map[int32]int64{}
	for p := range w.parts {
		stood[p] = w.edges[p].done
		if before, there := o.stood[p]; there && before == stood[p] {
			list = append(list, p)
		}
	}
	o.stood = stood
	return list
}

// lookOn keeps how far the logs reach while nobody says how far the group is: what they lose by then is told once somebody
// does. It is the caller's turn, and its time is over.
func (b *Backend) lookOn(o *lookout, w *work) {
	ctx, cancel := context.WithTimeout(b.closing, callTimeout)
	defer cancel()
	r, err := b.ledger.read(ctx)
	if err != nil {
		return
	}
	b.follow(o, w.topic)
	cuts, err := b.cuts(ctx, o, w, &r, b.toldEnds(o, w))
	if err != nil {
		return
	}
	for p := range cuts {
		delete(w.edges, p) // what was seen of it before is what has to be told
	}
	o.see(w.edges)
}

// tellOwed tells what retention has removed. What cannot be noted is owed still: the group may have gone on
// behind it by the next look.
func (b *Backend) tellOwed(ctx context.Context, o *lookout, w *work) error {
	for p := range w.edges {
		b.takeUp(o, gapPrefix, p) // one whose note had no answer
		told := b.ledger.told(gapPrefix, p).gap()
		gap := o.owed[p].beyond(told)
		if gap != nil {
			if gap.Total = gap.Count; told != nil {
				gap.Total += told.Total
			}
			if err := b.ledger.tell(ctx, b.ledger.keyOf(gapPrefix, p), &entry{Gap: gap}, gap); err != nil {
				return err
			}
			b.takeUp(o, gapPrefix, p)
		}
		delete(o.owed, p)
	}
	return nil
}

// follow begins the lookout anew with a topic that is another one.
func (b *Backend) follow(o *lookout, topic [16]byte) {
	if o.seen != nil && o.topic == topic {
		return
	}
	if o.seen != nil {
		was := topicID(o.topic)
		o.goes(was, b.ledger.gotOf(was))
	}
	o.topic, o.seen, o.ends, o.there, o.cuts, o.owed = topic, map[int32]sight{}, nil, map[int32]heights{}, map[int32]*cutEntry{}, map[int32]*gapEntry{}
	o.stood = nil
}

// see notes how far the logs reach, unless it was not the leader that said so.
func (o *lookout) see(edges map[int32]edge) {
	ends := maps.Clone(o.ends)
	if ends == nil {
		ends = make(map[int32]sighting, len(edges))
	}
	for p, at := range edges {
		if old, seen := ends[p]; !seen || old.Epoch <= at.end.Epoch {
			ends[p] = at.end
		}
	}
	o.ends = ends
	o.shown.Store(&horizon{topicID(o.topic), ends})
}

func (o *lookout) find(partition int32, reason string, gap *gapEntry) {
	o.found = append(o.found, backend.Gap{
		From: idOf(partition, gap.From), To: idOf(partition, gap.To-1), Reason: reason, Missed: &gap.Count,
	})
}

// gap returns what a partition has lost that nobody has told yet; idle says that no worker has any
// of it. Then the last commit, if it says what is unfinished, says it of all that a worker has
// given back, too.
func (o *lookout) gap(partition int32, at edge, got received, fetched int64, told *gapEntry, idle bool) *gapEntry {
	before, seen := o.seen[partition]
	now := sight{at.start, max(at.done, got.Top, at.start), got.Count, fetched}
	if fetched > before.fetched && fetched < at.start && at.start < at.end.End {
		if !seen {
			before = sight{reach: at.done, count: got.Count}
		}
		before.fetched = fetched
		o.seen[partition] = before // whoever goes on there says what it passes over
		return nil
	}
	o.seen[partition] = now
	gap := &gapEntry{From: at.done, To: at.start}
	passed := int64(0)
	if seen {
		gap.From, passed = before.reach, max(0, got.Count-before.count)
	}
	if fetched > gap.From {
		gap.From, passed = fetched, 0
	}
	exact := idle && len(at.left) > 0
	if exact {
		gap.From = max(at.left[0].from, before.start)
	}
	if told != nil {
		gap.From = max(gap.From, told.To)
	}
	if gap.Count = gap.To - gap.From - passed; exact {
		gap.Count = within(at.left, gap.From, gap.To)
	}
	if gap.From < 0 || gap.Count <= 0 {
		return nil
	}
	return gap
}

// keyOf is the key of what was lost of a partition.
func (l *ledger) keyOf(prefix string, partition int32) string {
	return prefix + l.b.set.group + "/" + strconv.Itoa(int(partition))
}

// told returns what was told last of a partition of the present topic.
func (l *ledger) told(prefix string, partition int32) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[l.keyOf(prefix, partition)]
	if !sameTopic(e.Topic, l.b.topic.id()) {
		return entry{}
	}
	return e
}

// old reports whether what an entry says counts no more; brokers may keep it for longer.
func (e entry) old() bool { return time.Since(e.at) >= backAge }

// loss is what an entry says is lost, and why; nil: nothing.
func (e entry) loss() (*gapEntry, string) {
	switch {
	case e.Gap != nil:
		return e.Gap, backend.GapRemoved
	case e.Cut != nil:
		return &e.Cut.gapEntry, e.Cut.reason()
	}
	return nil, ""
}

// gap is what an entry says is lost, without the number of what was lost before if it is old.
func (e entry) gap() *gapEntry {
	if e.Gap == nil || !e.old() {
		return e.Gap
	}
	old := *e.Gap
	old.Total = 0
	return &old
}

// lostTotal is what has been told of all partitions, for as long as that counts.
func (l *ledger) lostTotal() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		if gap := e.gap(); gap != nil && under(key, gapPrefix+l.b.set.group+"/") {
			n += gap.Total
		}
	}
	return n
}

// tell writes down what is lost, and reads who was the first.
func (l *ledger) tell(ctx context.Context, key string, e *entry, gap *gapEntry) error {
	gap.By, e.Topic = l.b.group.name(), l.b.topic.id()
	if err := l.write(ctx, key, e); err != nil {
		return err
	}
	return l.refresh(ctx)
}

// expiry says which limit will remove unfinished records soon.
func (b *Backend) expiry(ctx context.Context, w *work, r *reading, got *backend.Retained) {
	most, err := b.retention(ctx)
	if err != nil {
		return // not permitted to look
	}
	if oldest := b.oldestOf(ctx, w, r); most.age > 0 && !oldest.IsZero() {
		if due := oldest.Add(most.age); time.Until(due) < time.Duration(float64(most.age)*(1-nearRetention)) {
			got.Limit, got.Due = "retention.ms="+strconv.FormatInt(most.age.Milliseconds(), 10), due
			return
		}
	}
	if most.bytes <= 0 {
		return
	}
	sizes, err := b.sizes(ctx)
	if err != nil {
		return
	}
	for p, part := range w.parts {
		if stored := w.edges[p].stored; stored > 0 && float64(sizes[p])*float64(part.left)/float64(stored) > float64(most.bytes)*nearRetention {
			got.Limit = "retention.bytes=" + strconv.FormatInt(most.bytes, 10)
		}
	}
}

// retention reads the topic's limits.
func (b *Backend) retention(ctx context.Context) (limits, error) {
	b.limits.mu.Lock()
	last := b.limits.limits
	b.limits.mu.Unlock()
	if time.Since(last.at) < limitsAge {
		return last, nil
	}
	configs, err := named(ctx, b, b.admin.DescribeTopicConfigs, b.set.topic)
	if err != nil {
		return limits{}, err
	}
	config, err := configs.On(b.set.topic, nil)
	if err == nil {
		err = config.Err
	}
	if err != nil {
		return limits{}, err
	}
	now := limits{at: time.Now(), age: -1, bytes: -1}
	if strings.Contains(valueOf(config.Configs, "cleanup.policy"), "delete") {
		ms, _ := strconv.ParseInt(valueOf(config.Configs, "retention.ms"), 10, 64) // what is no number is none
		now.age = time.Duration(min(ms, int64(maxRetention/time.Millisecond))) * time.Millisecond
		now.bytes, _ = strconv.ParseInt(valueOf(config.Configs, "retention.bytes"), 10, 64)
	}
	b.limits.mu.Lock()
	defer b.limits.mu.Unlock()
	b.limits.limits = now
	return now, nil
}

// sizes returns the bytes of each partition, those of its largest replica.
func (b *Backend) sizes(ctx context.Context) (map[int32]int64, error) {
	l, err := b.layout(ctx)
	if err != nil {
		return nil, err
	}
	var topic kadm.TopicsSet
	for p := range l.leaders {
		topic.Add(b.set.topic, p)
	}
	dirs, err := asked(ctx, b, func(ctx context.Context) (kadm.DescribedAllLogDirs, error) {
		return b.admin.DescribeAllLogDirs(ctx, topic)
	})
	if err != nil {
		return nil, err
	}
	sizes := map[int32]int64{}
	dirs.Each(func(d kadm.DescribedLogDir) {
		for p, of := range d.Topics[b.set.topic] {
			sizes[p] = max(sizes[p], of.Size)
		}
	})
	return sizes, nil
}

// maxRetention is the longest time after which records may be removed.
const maxRetention = 100 * 365 * 24 * time.Hour

// parseRetention reads how long a new topic keeps its records; 0 if the URL does not say.
func parseRetention(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d > maxRetention {
		return 0, fmt.Errorf("retention %q is not a time from 1s on, such as 168h", text)
	}
	return d, nil
}
