package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirmq/weir/backend"
)

var _ backend.Signaler = (*Backend)(nil)

// work is what the brokers say about the topic and the group.
type work struct {
	topic  [16]byte
	stored int64 // offsets that the topic keeps
	left   *int64
	known  int64           // what is left of the partitions of which that is known; left if it is of all
	done   map[int32]int64 // how many offsets of each are finished or removed, where what is left is known
	away   bool            // partitions have no leader: nobody says anything of them
	parts  map[int32]part  // with something left
	edges  map[int32]edge
}

// edge is where a partition's records begin, and behind which of its offsets there are as
// many as are unfinished; -1: unknown.
type edge struct {
	start, done int64
	stored      int64
	left        []span   // what is unfinished, with what retention has removed; nil: unknown
	end         sighting // of its leader
	known       sighting // what the group has written down of it
}

// part is a partition in which the group has work. The oldest unfinished record is not
// before first, and not behind last.
type part struct {
	first, last int64
	left        int64
}

// measure asks the brokers. If the group does not exist, everything is left that it would
// begin with, with ErrGroupNotFound; if nobody says how far it is, the edges are known. inOrder asks for the ends first, so that what is appended in between
// is left and not finished.
func (b *Backend) measure(ctx context.Context, inOrder bool) (work, error) {
	l, err := b.layout(ctx)
	if err != nil {
		return work{}, b.sure(ctx, err)
	}
	var starts map[int32]int64
	var ends map[int32]sighting
	var group map[int32]progress
	var wait sync.WaitGroup
	var noStarts, noEnds, missing error
	wait.Go(func() { ends, noEnds = b.listed(ctx, l, atEnd) })
	if inOrder {
		wait.Wait()
	}
	wait.Go(func() { starts, noStarts = b.logStarts(ctx, l) })
	wait.Go(func() { group, missing = coordinated(ctx, b, b.group.progress) })
	wait.Wait()
	if err := cmp.Or(noEnds, noStarts); err != nil { // who is away says the same to both
		return work{}, err
	}
	for p := range ends {
		if _, there := starts[p]; !there { // it had no leader a moment ago
			delete(ends, p)
		}
	}
	if missing != nil && !errors.Is(missing, backend.ErrGroupNotFound) {
		return work{topic: l.id, edges: sum(starts, ends, nil).edges}, missing
	}
	if missing != nil && b.set.start == startNew { // what is published before its first claim is not its own
		group = map[int32]progress{}
		for p, end := range ends {
			group[p] = progress{start: end.End, known: unseen}
		}
	}
	w := sum(starts, ends, group)
	w.topic = l.id
	if w.away = len(ends) < len(l.leaders); w.away {
		w.left = nil
	}
	return w, missing
}

func sum(starts map[int32]int64, ends map[int32]sighting, group map[int32]progress) work {
	w := work{parts: map[int32]part{}, edges: map[int32]edge{}, done: map[int32]int64{}}
	left, known := int64(0), true
	for p, seen := range ends {
		end := seen.End
		stored := max(0, end-starts[p])
		w.stored += stored
		g, there := group[p]
		begun := there && g.start >= 0
		switch {
		case !there || g.start < 0 && !g.atEnd: // nobody has fetched from it: it begins at the first record
			g = progress{start: starts[p], left: stored, known: unseen}
		case g.start < 0: // it begins wherever the end is by then
			g.left = -1
		}
		if g.exact {
			g.spans = append(g.spans, span{from: g.open, to: max(g.open, end)})
			g.left = unfinished(g.spans)
		}
		at := edge{start: starts[p], done: -1, stored: stored, end: seen, known: g.known}
		if begun && g.left >= 0 {
			at.done, at.left = end-g.left, g.spans
		}
		w.edges[p] = at
		if g.left < 0 {
			known = false
			w.parts[p] = part{first: starts[p], last: starts[p]}
			continue
		}
		if g.left = min(g.left, stored); g.exact { // what retention has removed is not left
			g.left = within(g.spans, starts[p], end)
		}
		left += g.left
		w.done[p] = end - g.left
		if g.left > 0 {
			at := part{max(g.start, starts[p]), end - g.left, g.left}
			if g.exact {
				at.first = firstOf(g.spans, starts[p])
				at.last = at.first
			}
			w.parts[p] = at
		}
	}
	if w.known = left; known {
		w.left = &left
	}
	return w
}

// behind is how many messages are known to wait where that is not known of all partitions;
// pending are held.
func (w *work) behind(pending int64) int64 {
	if w.left != nil {
		return 0
	}
	return max(0, w.known-pending)
}

// startsAge is how long the starts of the partitions are taken to be the same: brokers look
// every five minutes for what is to be removed.
const startsAge = time.Second

// logStart are the starts last read.
type logStart struct {
	mu      sync.Mutex
	at      time.Time
	id      [16]byte // of the topic
	offsets map[int32]int64
}

func (b *Backend) logStarts(ctx context.Context, l *layout) (map[int32]int64, error) {
	b.starts.mu.Lock()
	last := b.starts.offsets
	fits := time.Since(b.starts.at) < startsAge && b.starts.id == l.id && len(last) == len(l.leaders)
	b.starts.mu.Unlock()
	if fits {
		return last, nil
	}
	listed, err := b.listed(ctx, l, atStart)
	starts := withoutEpochs(listed)
	if err == nil && len(starts) == len(l.leaders) {
		b.starts.mu.Lock()
		b.starts.at, b.starts.id, b.starts.offsets = time.Now(), l.id, starts
		b.starts.mu.Unlock()
	}
	return starts, err
}

// forget makes the next reading ask.
func (s *logStart) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = time.Time{}
}

// Where offsets are asked for.
const (
	atEnd   = -1
	atStart = -2
)

// offsets asks the leaders for the ends or the starts of all partitions.
func (b *Backend) offsets(ctx context.Context, l *layout, at int64) (map[int32]int64, error) {
	listed, err := b.listed(ctx, l, at)
	if err == nil && len(listed) < len(l.leaders) {
		err = b.explain(kerr.LeaderNotAvailable)
	}
	if err != nil {
		return nil, err
	}
	return withoutEpochs(listed), nil
}

func withoutEpochs(listed map[int32]sighting) map[int32]int64 {
	offsets := make(map[int32]int64, len(listed))
	for p, s := range listed {
		offsets[p] = s.End
	}
	return offsets
}

// listed is offsets of those that have a leader, or whom somebody has led by the end of it, with the epochs of those
// who have said so.
func (b *Backend) listed(ctx context.Context, l *layout, at int64) (map[int32]sighting, error) {
	requests, led := map[int32]*kmsg.ListOffsetsRequest{}, l.led()
	for p, leader := range l.leaders {
		if leader < 0 && led { // the others are not to wait for it
			b.topic.doubt()
			continue
		}
		req := requests[leader]
		if req == nil {
			req = kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID = -1
			req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: b.set.topic}}
			requests[leader] = req
		}
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p, at
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, part)
	}
	offsets := map[int32]sighting{}
	for leader, req := range requests {
		err := b.offsetsOf(ctx, leader, req, offsets)
		if kerr.IsRetriable(err) { // the leader has moved, or there is none yet
			b.topic.forget()
			return b.offsetsByClient(ctx, at)
		}
		if err != nil {
			b.topic.forget() // another may lead by now what this one, which is gone, did
			return nil, b.explain(err)
		}
	}
	return offsets, nil
}

func (b *Backend) offsetsOf(ctx context.Context, leader int32, req *kmsg.ListOffsetsRequest, into map[int32]sighting) error {
	if leader < 0 {
		return kerr.LeaderNotAvailable
	}
	answer, err := b.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return err
	}
	for _, t := range answer.(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return b.onTopic(err, rightDescribe, b.set.topic)
			}
			into[p.Partition] = sighting{p.Offset, p.LeaderEpoch}
		}
	}
	return nil
}

// offsetsByClient lets the client look for the leaders, again and again.
func (b *Backend) offsetsByClient(ctx context.Context, at int64) (map[int32]sighting, error) {
	list := b.admin.ListEndOffsets
	if at == atStart {
		list = b.admin.ListStartOffsets
	}
	listed, err := named(ctx, b, list, b.set.topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, b.explain(err)
	}
	offsets := map[int32]sighting{}
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = sighting{o.Offset, o.LeaderEpoch} })
	return offsets, nil
}

// progress is how far the group is in a partition.
type progress struct {
	start int64 // the first offset that is not finished, or one before it; -1: none yet
	left  int64 // unfinished records; -1: unknown
	atEnd bool  // without a start it begins at the end
	// exact says that start is the first one, and spans what is unfinished below open.
	exact bool
	open  int64
	spans []span
	known sighting // what the group has written down of the log
}

// Stats reads the topic, the group and the ledger. It creates nothing. Pending is what
// weir's workers said last that they hold; Lag is the rest of what the broker says is
// unfinished. To a group that does not exist yet that is everything, and a topic that the
// first publish or claim will create has nothing.
func (b *Backend) Stats(ctx context.Context) (backend.Stats, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return backend.Stats{}, err
	}
	defer done()
	var w work
	var r reading
	var letters int64
	var wait sync.WaitGroup
	var noWork, noReading, noLetters error
	wait.Go(func() { w, noWork = b.measure(call, false) })
	wait.Go(func() { r, noReading = b.ledger.read(call) })
	wait.Go(func() { letters, noLetters = b.letterCount(call) })
	wait.Wait()
	missing := b.notYet(noWork)
	switch {
	case errors.Is(missing, backend.ErrStreamNotFound):
		w = work{left: new(int64)}
	case missing == nil && noWork != nil:
		return backend.Stats{}, b.cut(ctx, noWork)
	}
	if noReading != nil {
		return backend.Stats{}, b.cut(ctx, noReading)
	}
	s := backend.Stats{At: time.Now(), XLen: w.stored, OldestSource: backend.AgeNone, Workers: &r.members, Missing: missing}
	if !r.ours && missing == nil {
		s.Workers, s.PendingUnknown = b.others(call)
	}
	if noLetters == nil {
		s.DeadLetters = &letters
	}
	oldest := b.oldestOf(call, &w, &r)
	s.Pending, s.Lag = split(w.left, r.pending)
	s.Behind = w.behind(s.Pending)
	if len(w.parts) == 0 {
		return s, nil
	}
	s.OldestSource, s.Approx = backend.AgeUnknown, true
	if !oldest.IsZero() {
		s.OldestAge, s.OldestSource = max(0, s.At.Sub(oldest)), backend.AgeBacklog
		if s.Pending > 0 {
			s.OldestSource = backend.AgePending
		}
	}
	return s, nil
}

// notYet returns what is missing if err says so and its first use will create it.
func (b *Backend) notYet(err error) error {
	switch {
	case errors.Is(err, backend.ErrStreamNotFound) && b.set.partitions > 0 && !b.topic.known():
		return fmt.Errorf("kafka: %w: topic %q", backend.ErrStreamNotFound, b.set.topic)
	case errors.Is(err, backend.ErrGroupNotFound) && b.set.create != createNever:
		return err
	}
	return nil
}

// othersAge is how long the group is taken to have the same consumers: to ask for them costs as
// much as to ask where the group is.
const othersAge = time.Second

// lastConsumers is how many consumers the group had.
type lastConsumers struct {
	mu sync.Mutex
	at time.Time
	n  int64
}

// others returns how many consumers the group has that do not say what they hold, or had at
// most othersAge ago; nil if that is not known. Only if there are none is nothing held.
func (b *Backend) others(ctx context.Context) (members *int64, pendingUnknown bool) {
	b.consumers.mu.Lock()
	n, fits := b.consumers.n, time.Since(b.consumers.at) < othersAge
	b.consumers.mu.Unlock()
	if fits {
		return &n, n > 0
	}
	n, err := b.groupMembers(ctx)
	if err != nil {
		return nil, true
	}
	b.consumers.mu.Lock()
	b.consumers.at, b.consumers.n = time.Now(), n
	b.consumers.mu.Unlock()
	return &n, n > 0
}

// split divides what is unfinished: workers that ended a moment ago may still seem to hold
// more than there is.
func split(left *int64, pending int64) (int64, *int64) {
	if left == nil {
		return pending, nil
	}
	pending = min(pending, *left)
	lag := *left - pending
	return pending, &lag
}

// Signal reads what a guard needs. A topic that does not exist yet has nothing; a group
// that does not exist yet has everything before it.
func (b *Backend) Signal(ctx context.Context, _ int64) (backend.Signal, error) {
	call, done, err := b.begin(ctx)
	if err != nil {
		return backend.Signal{}, err
	}
	defer done()
	w, err := b.measure(call, true)
	switch {
	case errors.Is(b.notYet(err), backend.ErrStreamNotFound):
		none := int64(0)
		return backend.Signal{Lag: &none}, nil
	case err != nil && !errors.Is(err, backend.ErrGroupNotFound):
		return backend.Signal{}, b.cut(ctx, err)
	}
	r, err := b.ledger.read(call)
	if err != nil {
		return backend.Signal{}, b.cut(ctx, err)
	}
	s := backend.Signal{Workers: r.signal, XLen: w.stored}
	s.Pending, s.Lag = split(w.left, r.pending)
	s.Behind = w.behind(s.Pending)
	if w.left != nil || w.away && len(w.done) == len(w.edges) {
		s.Finished = b.finished.count(w.topic, w.done)
	}
	return s, nil
}

// finished counts the finished messages. It never falls, though two readings are of different moments, and goes on if
// the topic is deleted and made again. Of a partition that had no leader when the topic was read first, those count
// that are finished once it has one: what was before would be a leap.
type finished struct {
	mu            sync.Mutex
	topic, before [16]byte
	most          map[int32]int64
	total         int64
}

func (f *finished) count(topic [16]byte, done map[int32]int64) *int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := topic != f.topic && topic != f.before
	if first {
		f.topic, f.before, f.most = topic, f.topic, map[int32]int64{}
	}
	for p, now := range done {
		most, seen := f.most[p]
		switch {
		case topic != f.topic || seen && now <= most:
			continue
		case seen || first:
			f.total += now - most
		}
		f.most[p] = now
	}
	total := f.total
	return &total
}

// PublishSignal counts what the group's members hold and stores the number for ttl.
func (b *Backend) PublishSignal(ctx context.Context, ttl time.Duration) error {
	call, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	r, err := b.ledger.read(call)
	if err == nil {
		err = b.ledger.write(call, b.ledger.signal(), &entry{Pending: r.pending, TTL: ttl.Milliseconds()})
	}
	if err != nil {
		return fmt.Errorf("publish signal: %w", b.cut(ctx, err))
	}
	return nil
}
