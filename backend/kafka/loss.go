package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weirmq/weir/backend"
)

// Retention takes a log's start, and says so. A log that loses its end, in an unclean election or in the power cut of a
// machine that is alone, gives its offsets to other records instead. It shows by the epochs of the leaders: who has seen
// the log reach an offset under one epoch, or has been given a record of it, asks each later leader where that epoch
// ends. What members have seen is in the ledger, so that it is found though none of them was there.

// sighting is how far a log has reached: records up to an offset, the last of them of an epoch or an earlier one.
type sighting struct {
	End   int64 `json:"end"`
	Epoch int32 `json:"epoch"` // -1: unknown
}

var unseen = sighting{0, -1}

// horizon is how far the logs of a topic have reached.
type horizon struct {
	topic string
	ends  map[int32]sighting
}

// doubtful reports whether a log that its leader says to reach so far may lack what was seen.
func (s sighting) doubtful(now sighting) bool {
	return s.End > 0 && s.Epoch >= 0 && (s.Epoch < now.Epoch || s.Epoch == now.Epoch && s.End > now.End)
}

// top is the sighting of the highest record that a member was given.
func (r received) top() sighting { return sighting{r.Top, r.Era - 1} }

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

// beyond returns what of a cut another one has not told: nil for nothing. Who tells a cut has asked the leader of its
// time about all that was seen before.
func (c *cutEntry) beyond(told *cutEntry) *cutEntry {
	switch {
	case told == nil:
	case c.Epoch < 0:
		if c.Was == told.Was {
			return nil
		}
	case c.Of < told.Epoch && c.To > told.To && (c.From == told.From || c.From == told.To):
		more := *c
		more.From = told.To
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

// cuts returns the partitions whose logs lack what was seen of them. The lock of the lookout is held.
func (b *Backend) cuts(ctx context.Context, w *work, r *reading) (map[int32]*cutEntry, error) {
	doubts := map[int32][]sighting{}
	for p, at := range w.edges {
		for _, s := range append(r.seen[p], b.lookout.ends[p], r.got[p].top(), at.known) {
			if s.doubtful(at.end) && !slices.Contains(doubts[p], s) && !slices.Contains(b.lookout.there[p], s) {
				doubts[p] = append(doubts[p], s)
			}
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
			b.lookout.compare(p, s, w.edges[p], is.EndOffset, found)
		}
	}
	return found, nil
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

// thereMost is how many sightings of a partition are known not to be lost.
const thereMost = 16

// compare notes what was seen of a log whose leader says where the epoch ends.
func (o *lookout) compare(p int32, s sighting, at edge, end int64, found map[int32]*cutEntry) {
	if end < 0 {
		return // its leader knows of no epoch
	}
	if end = max(end, at.start); end >= s.End {
		if o.there == nil {
			o.there = map[int32][]sighting{}
		}
		list := append(o.there[p], s)
		o.there[p] = list[max(0, len(list)-thereMost):]
		return
	}
	cut := &cutEntry{gapEntry: gapEntry{From: end, To: s.End}, Of: s.Epoch, Epoch: at.end.Epoch}
	if more := found[p]; more != nil {
		cut.From, cut.To, cut.Of = min(cut.From, more.From), max(cut.To, more.To), max(cut.Of, more.Of)
	}
	found[p] = cut
}

// goes notes what the group had not been given of a topic that was deleted. The lock is held.
func (o *lookout) goes(was string, got map[int32]received) {
	o.gone = map[int32]*cutEntry{}
	for p, s := range o.seen {
		from, to := max(s.reach, got[p].Top), o.ends[p].End
		if from < to {
			o.gone[p] = &cutEntry{gapEntry: gapEntry{From: from, To: to, Count: to - from, Total: to - from}, Of: -1, Epoch: -1, Was: was}
		}
	}
}

// tellGone tells what went with the topic before. The lock of the lookout is held.
func (b *Backend) tellGone(ctx context.Context, mark bool) error {
	for p, cut := range b.lookout.gone {
		if mark {
			b.lookout.tellCut(p, b.ledger.told(cutPrefix, p).Cut, b.group.name())
		}
		if err := b.tellCut(ctx, p, cut.beyond(b.ledger.told(cutPrefix, p).Cut), mark); err != nil {
			return err
		}
		delete(b.lookout.gone, p)
	}
	return nil
}

// tellEnd tells what a partition has lost of its end, and returns it, or what was told last. The lock of the lookout is held.
func (b *Backend) tellEnd(ctx context.Context, p int32, cut *cutEntry, at edge, r *reading, mark bool) (*cutEntry, error) {
	o := &b.lookout
	told := b.ledger.told(cutPrefix, p).Cut
	if mark {
		o.tellCut(p, told, b.group.name())
	} else if told == nil || o.cuts[p] != nil && o.cuts[p].Epoch > told.Epoch {
		told = o.cuts[p]
	}
	if cut == nil {
		return told, nil
	}
	whole := *cut
	if cut = cut.beyond(told); cut != nil {
		cut.Count = o.missed(p, cut, at, r)
		if told != nil {
			cut.Was, cut.Total = told.Was, told.Total
		}
		cut.Total += cut.Count
	}
	return &whole, b.tellCut(ctx, p, cut, mark)
}

// missed counts what was lost and had not been given to the group: behind what all members had, or if no worker has
// any of it, what the last commit says. The lock is held.
func (o *lookout) missed(p int32, cut *cutEntry, at edge, r *reading) int64 {
	old := at.known.Epoch >= 0 && at.known.Epoch <= cut.Of
	if n := len(at.left); old && n > 0 && r.members == 0 {
		return within(at.left[:n-1], cut.From, cut.To) + max(0, cut.To-max(cut.From, at.known.End))
	}
	from := max(cut.From, o.seen[p].reach)
	if got := r.got[p]; got.Era <= cut.Of+1 {
		from = max(from, got.Top)
	}
	if old {
		from = max(from, at.known.End)
	}
	return max(0, cut.To-from)
}

func (b *Backend) tellCut(ctx context.Context, p int32, cut *cutEntry, mark bool) error {
	o := &b.lookout
	switch {
	case cut == nil:
	case !mark:
		o.cuts[p] = cut
		o.find(p, cut.reason(), &cut.gapEntry)
	default:
		if err := b.ledger.tell(ctx, b.ledger.keyOf(cutPrefix, p), &entry{Cut: cut}, &cut.gapEntry); err != nil {
			return err
		}
		o.tellCut(p, b.ledger.told(cutPrefix, p).Cut, b.group.name())
	}
	return nil
}

// tellCut is find of a cut that is in the ledger, once, if that is this handle's to tell. The lock is held.
func (o *lookout) tellCut(p int32, cut *cutEntry, own string) {
	if cut == nil {
		return
	}
	if last := o.cuts[p]; cut.By == own && (last == nil || *last != *cut) {
		o.find(p, cut.reason(), &cut.gapEntry)
	}
	o.cuts[p] = cut
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

// show returns what the ledger says that this member has seen of a topic, but for what follows from what it has got.
func (o *lookout) show(topic string, got map[int32]received) map[int32]sighting {
	seen := o.shown.Load()
	if seen == nil || seen.topic != topic {
		return nil
	}
	list := maps.Clone(seen.ends)
	maps.DeleteFunc(list, func(p int32, s sighting) bool {
		top := got[p].top()
		return s.Epoch < 0 || top.Epoch >= 0 && top.Epoch <= s.Epoch && top.End >= s.End
	})
	return list
}
