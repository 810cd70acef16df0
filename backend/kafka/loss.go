package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirmq/weir/backend"
)

// Retention takes a log's start, and says so. A log that loses its end, in an unclean election or in the power cut of a
// machine that is alone, gives its offsets to other records instead. It shows by the epochs of the leaders: who has seen
// the log reach an offset under one epoch, or has been given a record of it, asks each later leader where that epoch
// ends. What was seen is in the ledger, so that it is found though none of them was there.

// sighting is how far a log has reached: records up to an offset, the last of them of an epoch or an earlier one.
type sighting struct {
	End   int64 `json:"end"`
	Epoch int32 `json:"epoch"` // -1: unknown
}

var unseen = sighting{0, -1}

// heights is how far a log has reached under each epoch of its leaders.
type heights map[int32]int64

func (h heights) note(s sighting) { h[s.Epoch] = max(h[s.Epoch], s.End) }

// upTo is how far it had reached by the end of an epoch. What was lost before does not count; nil: nothing was.
func (h heights) upTo(epoch int32, lost *cutEntry) (end int64) {
	for e, to := range h {
		if lost != nil && e < lost.Epoch {
			to = min(to, lost.From)
		}
		if e <= epoch {
			end = max(end, to)
		}
	}
	return end
}

// horizon is how far the logs of a topic have reached.
type horizon struct {
	topic string
	ends  map[int32]sighting
}

// doubtful reports whether a log that its leader says to reach so far may lack what was seen.
func (s sighting) doubtful(now sighting) bool {
	return s.End > 0 && s.Epoch >= 0 && (s.Epoch < now.Epoch || s.Epoch == now.Epoch && s.End > now.End)
}

// tops are the sightings of the highest records that a member was given.
func (r received) tops() []sighting {
	tops := []sighting{{r.Top, r.Era - 1}}
	if r.Past != nil {
		tops = append(tops, *r.Past)
	}
	return tops
}

// noteGiven adds the sightings of what a member was given.
func noteGiven(into map[int32]heights, got map[int32]received) {
	for p, n := range got {
		if into[p] == nil {
			into[p] = heights{}
		}
		for _, s := range n.tops() {
			into[p].note(s)
		}
	}
}

const cutPrefix = "cut/"

// cutEntry is what a partition has lost with the end of its log, or with its topic.
type cutEntry struct {
	gapEntry
	Of    int32  `json:"of"`    // the epoch under which it was seen
	Epoch int32  `json:"epoch"` // of the leader that does not have it; -1: it went with the topic
	Was   string `json:"was,omitempty"`
}

func (c *cutEntry) reason() string {
	if c.Epoch < 0 {
		return backend.GapRecreated
	}
	return backend.GapLost
}

// includes reports whether who told a cut has asked the leader of its time about what was seen.
func (c *cutEntry) includes(s sighting) bool {
	return c != nil && s.Epoch < c.Epoch && s.End <= c.To
}

// follows reports whether a cut is a later one than what was told.
func (c *cutEntry) follows(told *cutEntry) bool { return told == nil || c.Of >= told.Epoch }

// beyond returns what of a cut another one has not told: nil for nothing. Who tells a cut has asked the leader of its
// time about all that was seen before.
func (c *cutEntry) beyond(told *cutEntry) *cutEntry {
	switch {
	case c == nil, told == nil:
	case c.Epoch < 0:
		if c.Was == told.Was {
			return nil
		}
	case c.Of < told.Epoch && c.To > told.To && (c.From == told.From || c.From == told.To):
		more := *c
		more.From = told.To
		more.Count = min(more.Count, more.To-more.From)
		more.Total = told.Total + more.Count
		return &more
	case c.Of < told.Epoch, c.Of == told.Of && c.To <= told.To:
		return nil
	}
	return c
}

// lacks takes the offsets that were lost off what was received before.
func (c *cutEntry) lacks(got received) received {
	if c != nil && c.Epoch >= 0 && got.Era <= c.Of+1 {
		got.Top = min(got.Top, c.From)
	}
	return got
}

// cuts returns the partitions whose logs lack what was seen of them and is not in what was told.
func (b *Backend) cuts(ctx context.Context, o *lookout, w *work, r *reading, told map[int32]*cutEntry) (map[int32]*cutEntry, error) {
	doubts := map[int32][]sighting{}
	for p, at := range w.edges {
		if list := o.doubts(p, at, r, told[p]); len(list) > 0 {
			doubts[p] = list
		}
	}
	found := map[int32]*cutEntry{}
	for len(doubts) > 0 {
		req, now := kadm.OffsetForLeaderEpochRequest{}, map[int32]sighting{}
		for p, list := range doubts {
			now[p] = list[0]
			req.Add(b.set.topic, p, list[0].Epoch)
			if doubts[p] = list[1:]; len(list) == 1 {
				delete(doubts, p)
			}
		}
		ends, err := asked(ctx, b, func(ctx context.Context) (kadm.OffsetsForLeaderEpochs, error) {
			return b.admin.OffsetForLeaderEpoch(ctx, req)
		})
		if err != nil {
			return nil, b.explain(err)
		}
		for p, s := range now {
			is, answered := ends[b.set.topic][p]
			if !answered {
				is.Err = kerr.LeaderNotAvailable
			}
			if is.Err != nil {
				return nil, b.explain(b.onTopic(is.Err, rightDescribe, b.set.topic))
			}
			o.compare(p, s, w.edges[p], is.EndOffset, told[p], found)
		}
	}
	return found, nil
}

// doubts returns what was seen of a log and may be lost, at most one sighting for each epoch.
func (o *lookout) doubts(p int32, at edge, r *reading, told *cutEntry) (list []sighting) {
	all := heights{}
	all.note(o.ends[p])
	for _, own := range r.own[p].tops() {
		all.note(own)
	}
	seen, there := r.seen[p]
	all.note(seen)
	known := heights{}
	maps.Copy(known, r.given[p])
	known.note(at.known)
	for epoch, end := range known {
		// Who has seen more under a later leader knew of this, and told what was lost. The note of it is kept for a
		// day, and the commit for longer.
		if told != nil || !there || epoch >= seen.Epoch {
			all.note(sighting{end, epoch})
		}
	}
	sure := heights{}
	for epoch, end := range all {
		s := sighting{end, epoch}
		switch {
		case !s.doubtful(at.end), told.includes(s):
		case o.there[p][epoch] >= end:
			sure[epoch] = o.there[p][epoch]
		default:
			list = append(list, s)
		}
	}
	o.there[p] = sure
	return list
}

// still reports a topic that was made again meanwhile, whose offsets say nothing of the one before.
func (b *Backend) still(ctx context.Context, topic [16]byte) error {
	b.topic.forget()
	l, err := b.layout(ctx)
	if err == nil && l.id != topic {
		err = fmt.Errorf("kafka: %w: topic %q was made again just now", backend.ErrUnavailable, b.set.topic)
	}
	return err
}

// compare notes what was seen of a log whose leader says where the epoch ends.
func (o *lookout) compare(p int32, s sighting, at edge, end int64, told *cutEntry, found map[int32]*cutEntry) {
	if end < 0 {
		return // its leader knows of no epoch
	}
	if end = max(end, at.start); end >= s.End {
		o.there[p].note(s)
		return
	}
	cut, more := &cutEntry{gapEntry: gapEntry{From: end, To: s.End}, Of: s.Epoch, Epoch: at.end.Epoch}, found[p]
	switch {
	case more == nil, cut.follows(told) && !more.follows(told):
	case more.follows(told) && !cut.follows(told):
		return
	default:
		cut.From, cut.To, cut.Of = min(cut.From, more.From), max(cut.To, more.To), max(cut.Of, more.Of)
	}
	found[p] = cut
}

// goes notes what the group had not been given of a topic that was deleted.
func (o *lookout) goes(was string, got map[int32]received) {
	o.gone = map[int32]*cutEntry{}
	for p, s := range o.seen {
		from, to := max(s.reach, got[p].Top), o.ends[p].End
		if from < to {
			o.gone[p] = &cutEntry{gapEntry: gapEntry{From: from, To: to, Count: to - from, Total: to - from}, Of: -1, Epoch: -1, Was: was}
		}
	}
}

// tellGone tells what went with the topic before.
func (b *Backend) tellGone(ctx context.Context, o *lookout) error {
	for p, cut := range o.gone {
		b.takeUp(o, cutPrefix, p)
		if err := b.tellCut(ctx, o, p, cut.beyond(b.ledger.told(cutPrefix, p).Cut)); err != nil {
			return err
		}
		delete(o.gone, p)
	}
	return nil
}

// toldEnds returns what was told last of the ends of partitions.
func (b *Backend) toldEnds(o *lookout, w *work) map[int32]*cutEntry {
	all := map[int32]*cutEntry{}
	for p := range w.edges {
		told := b.ledger.told(cutPrefix, p).Cut
		if own := o.cuts[p]; own != nil && (told == nil || own.Epoch > told.Epoch) {
			told = own
		}
		if told != nil {
			all[p] = told
		}
	}
	return all
}

// tellEnd tells what a partition has lost of its end, and returns it, or what was told last.
func (b *Backend) tellEnd(ctx context.Context, o *lookout, p int32, cut, told *cutEntry, at edge, r *reading) (*cutEntry, error) {
	b.takeUp(o, cutPrefix, p) // one whose note had no answer
	if cut == nil {
		return told, nil
	}
	whole := *cut
	if cut = cut.beyond(told); cut != nil {
		cut.Count = o.missed(p, cut, told, at, r)
		if told != nil {
			cut.Was = told.Was
		}
		if last := b.ledger.told(cutPrefix, p); last.Cut != nil && !last.old() {
			cut.Total = last.Cut.Total
		}
		cut.Total += cut.Count
	}
	return &whole, b.tellCut(ctx, o, p, cut)
}

// missed counts what was lost and had not been given to the group: behind what all members had, or if no worker has
// any of it, what the last commit says.
func (o *lookout) missed(p int32, cut, told *cutEntry, at edge, r *reading) int64 {
	old := at.known.Epoch >= 0 && at.known.Epoch <= cut.Of
	if n := len(at.left); old && n > 0 && r.members == 0 {
		return within(at.left[:n-1], cut.From, cut.To) + max(0, cut.To-max(cut.From, at.known.End))
	}
	if !cut.follows(told) {
		told = nil // it is the same loss
	}
	from := max(cut.From, o.seen[p].reach, r.given[p].upTo(cut.Of, told))
	if old {
		from = max(from, at.known.End)
	}
	return max(0, cut.To-from)
}

func (b *Backend) tellCut(ctx context.Context, o *lookout, p int32, cut *cutEntry) error {
	switch {
	case cut == nil:
	case !o.tells:
		o.cuts[p] = cut
		o.find(p, cut.reason(), &cut.gapEntry)
	default:
		if err := b.ledger.tell(ctx, b.ledger.keyOf(cutPrefix, p), &entry{Cut: cut}, &cut.gapEntry); err != nil {
			return err
		}
		b.takeUp(o, cutPrefix, p)
	}
	return nil
}

// takeUp is find of what the ledger has of this handle, once.
func (b *Backend) takeUp(o *lookout, prefix string, p int32) {
	if !o.tells {
		return
	}
	for _, e := range b.ledger.takeFirsts(b.ledger.keyOf(prefix, p)) {
		loss, reason := e.loss()
		o.find(p, reason, loss)
	}
}

// takeFirsts returns what this handle has told first of a partition of the present topic.
func (l *ledger) takeFirsts(key string) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	list, topic := l.firsts[key], l.b.topic.id()
	delete(l.firsts, key)
	return slices.DeleteFunc(list, func(e entry) bool { return !sameTopic(e.Topic, topic) })
}

// cutsTold describes what was told of the ends of all partitions, and counts what the group had not been given.
func (l *ledger) cutsTold() (ranges []string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(l.entries)) {
		e := l.entries[key]
		if e.Cut == nil || !under(key, cutPrefix+l.b.set.group+"/") || e.old() {
			continue
		}
		partition, _ := strconv.ParseInt(key[strings.LastIndexByte(key, '/')+1:], 10, 32)
		ranges, n = append(ranges, rangeOf(int32(partition), &e.Cut.gapEntry)), n+e.Cut.Total
	}
	return ranges, n
}

func rangeOf(partition int32, g *gapEntry) string {
	return fmt.Sprintf("%s–%s", idOf(partition, g.From), idOf(partition, g.To-1))
}

// show writes down how far the logs have been seen to reach, unless the ledger says so.
func (l *ledger) show(ctx context.Context) error {
	now := l.b.lookout.shown.Load()
	if now == nil || now.topic != l.b.topic.id() {
		return nil
	}
	if ends := l.further(now); ends != nil {
		if err := l.write(ctx, l.horizon(), &entry{Topic: now.topic, Seen: ends}); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = now
	return nil
}

// further returns how far the logs reach if the ledger does not say as much, or will not for much longer.
func (l *ledger) further(now *horizon) map[int32]sighting {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shown == now {
		return nil
	}
	said := l.entries[l.horizon()]
	more := time.Since(said.at) >= backAge/2
	if !sameTopic(said.Topic, now.topic) {
		said = entry{}
	}
	ends := map[int32]sighting{}
	for p, s := range now.ends {
		before, there := said.Seen[p]
		switch {
		case s.Epoch < 0:
		case there && (before.Epoch > s.Epoch || before.Epoch == s.Epoch && before.End >= s.End):
			ends[p] = before
		default:
			ends[p], more = s, true
		}
	}
	if !more {
		return nil
	}
	return ends
}
