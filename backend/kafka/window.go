package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// windowRecords is how many records of a partition may be out at a time: with
	// handlers, waiting for a retry, or about to be claimed. What is said of them has to
	// fit into the metadata of a commit.
	windowRecords = 1000
	// windowSpan is how far above the committed offset records are handed out: the next
	// owner reads all of it again.
	windowSpan = 100_000
)

// window is what a member of a classic group knows of a partition that it owns: what is
// unfinished. The offset of the first of these is committed, and with it, as the commit's
// metadata, which of those behind it may have been handed out and how often.
//
//	       base                      open       next
//	 done  | 3 done 4 5 done done 8  | 9 10 11  | not fetched
//	commit ^ 3:1 4:2 5:2 8:1         ^ never handed out
//
// What is not written down as unfinished below open is finished: a record is written down
// before it is handed out, so that a delivery whose process dies is counted.
type window struct {
	partition int32
	live      []*held // what is not finished, by offset; finished ones between them go now and then
	finished  int     // how many these are
	again     []*held // given back, to be promised anew
	fresh     []*held // never promised, by offset
	promised  []*held // in no commit that has been answered yet
	unwritten int     // finished, and not said so in an answered commit
	out       int     // promised and not finished or given back
	next      int64   // behind the last record fetched; -1: none was, and nothing is committed
	open      int64   // behind the last record promised
	left      []span  // what the last owner has written down
	epoch     int32   // of the leader who has written the last of the records that are known; -1: unknown
	begun     bool    // something has been fetched
	ids       names
	spare     []held // for records to come

	said, stored int64         // changes made, and those that are in an answered commit
	changed      chan struct{} // closed when stored or gone changes
	closing      bool          // hands out nothing more
	gone         bool          // somebody else's
}

// span are unfinished records that follow each other and have been handed out as often.
type span struct {
	from, to int64 // to is behind the last
	attempts int
}

// newWindow goes on where a commit ends; offset -1: there is none.
func newWindow(partition int32, offset int64, epoch int32, metadata string) *window {
	w := &window{partition: partition, next: offset, open: max(0, offset), epoch: epoch, changed: make(chan struct{})}
	if offset >= 0 {
		if open, left, ok := parseSpans(offset, metadata); ok {
			w.open, w.left = open, left
		}
	}
	return w
}

// add takes a record that was fetched, unless it is finished.
func (w *window) add(r *kgo.Record) {
	w.reach(r)
	attempts, unfinished := w.attempts(r.Offset)
	if !unfinished {
		return
	}
	if len(w.spare) == 0 {
		w.spare = make([]held, heldAtOnce)
	}
	h := &w.spare[0]
	w.spare = w.spare[1:]
	h.window, h.record, h.id, h.attempt = w, r, w.ids.of(r.Partition, r.Offset), attempts
	w.live, w.fresh = append(w.live, h), append(w.fresh, h)
}

// pass goes behind a record that is nothing to hand out.
func (w *window) pass(r *kgo.Record) {
	w.reach(r)
	w.said++
}

// reach goes behind a record. One of a later leader than all that were known is none of those that the
// last owner has seen: the log has lost these, and what is written down of them.
func (w *window) reach(r *kgo.Record) {
	if w.epoch >= 0 && r.LeaderEpoch > w.epoch && r.Offset < w.open {
		w.open = r.Offset
		w.left = slices.DeleteFunc(w.left, func(s span) bool { return s.from >= w.open })
		if n := len(w.left); n > 0 {
			w.left[n-1].to = min(w.left[n-1].to, w.open)
		}
	}
	w.next, w.epoch, w.begun = r.Offset+1, max(w.epoch, r.LeaderEpoch), true
}

// removed returns what was unfinished and is not there any more where the log begins behind all that was fetched; nil:
// nothing.
func (w *window) removed(start int64) *gapEntry {
	if w.next < 0 || start <= w.next {
		return nil
	}
	gap := &gapEntry{From: w.next, To: start, Count: within(w.left, w.next, start) + max(0, start-max(w.next, w.open))}
	if gap.Count == 0 {
		return nil
	}
	return gap
}

// rewritten reports whether a record is at the place of one that the log has lost, and not one that is
// fetched again. Where a log ends before the commit, the client begins before it.
func (w *window) rewritten(r *kgo.Record) bool {
	return r.Offset < w.next && (!w.begun || r.LeaderEpoch > w.epoch)
}

// upTo returns a window of what is unfinished before an offset, to be handed out anew.
func (w *window) upTo(end int64) *window {
	kept := newWindow(w.partition, end, -1, "")
	kept.open, kept.begun, kept.said = min(w.open, end), true, 1
	for _, h := range w.live {
		if !h.finished && h.record.Offset < end {
			again := &held{window: kept, record: h.record, id: h.id, attempt: h.attempt}
			kept.live, kept.fresh = append(kept.live, again), append(kept.fresh, again)
			kept.epoch = h.record.LeaderEpoch
		}
	}
	return kept
}

// heldAtOnce is how many records share an allocation: as long as one of them is unfinished,
// all of them stay in memory.
const heldAtOnce = 32

// attempts returns how often the record at an offset has been handed out, and whether it
// is unfinished.
func (w *window) attempts(offset int64) (int, bool) {
	if offset >= w.open {
		return 0, true
	}
	for len(w.left) > 0 && w.left[0].to <= offset {
		w.left = w.left[1:]
	}
	if len(w.left) > 0 && w.left[0].from <= offset {
		return w.left[0].attempts, true
	}
	// Below open, only this owner's own records can be beside what the last has left, and
	// these are fetched once.
	return 0, false
}

// base is the offset to commit: everything before it is finished. -1: none is known.
func (w *window) base() int64 {
	if len(w.live) > 0 {
		return w.live[0].record.Offset
	}
	return w.next
}

// promise takes the next record, which is handed out once a commit says so.
func (w *window) promise() bool {
	var h *held
	switch {
	case w.closing || w.out >= windowRecords:
		return false
	case len(w.again) > 0:
		h, w.again = w.again[0], w.again[1:]
	case len(w.fresh) > 0 && w.fresh[0].record.Offset < w.base()+windowSpan:
		h, w.fresh = w.fresh[0], w.fresh[1:]
	default:
		return false
	}
	h.attempt++
	w.out++
	w.said++
	w.open = max(w.open, h.record.Offset+1)
	w.promised = append(w.promised, h)
	return true
}

// done takes a record off that is finished.
func (w *window) done(h *held) {
	h.finished = true
	w.out--
	w.finished++
	w.unwritten++
	w.said++
	for len(w.live) > 0 && w.live[0].finished {
		w.live[0], w.live = nil, w.live[1:]
		w.finished--
	}
	if w.finished > len(w.live)/2 {
		w.live = slices.DeleteFunc(w.live, func(h *held) bool { return h.finished })
		w.finished = 0
	}
}

// announce wakes whoever waits for stored or gone.
func (w *window) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// giveBack lets a record be promised again; unless it counts, the delivery was none.
func (w *window) giveBack(h *held, counts bool) {
	if !counts {
		h.attempt--
	}
	w.out--
	w.said++
	w.again = append(w.again, h)
}

// suspect reports whether what comes next has been handed out before.
func (w *window) suspect() bool {
	return len(w.again) > 0 || len(w.fresh) > 0 && w.fresh[0].attempt > 0
}

// written is what a commit says: its offset, and at most limit bytes of metadata.
func (w *window) written(limit int) (offset int64, metadata string) {
	offset = w.base()
	if limit == 0 {
		return offset, ""
	}
	return offset, formatSpans(offset, w.open, w.spans(), limit)
}

// lastChance reports whether what comes next was left behind by the last owner and may be
// delivered only once more.
func (w *window) lastChance(deliveries int) bool {
	return len(w.again) == 0 && len(w.fresh) > 0 && w.fresh[0].attempt > 0 && w.fresh[0].attempt == deliveries-1
}

// out reports whether a record that has been promised is still to be finished by this member.
func (h *held) out() bool { return !h.finished && !h.window.gone }

// spans are the unfinished records below open, with those that have not been fetched.
func (w *window) spans() []span {
	var list []span
	for _, h := range w.live {
		at := h.record.Offset
		if at >= w.open {
			break
		}
		if h.finished {
			continue
		}
		if n := len(list); n > 0 && list[n-1].to == at && list[n-1].attempts == h.attempt {
			list[n-1].to++
			continue
		}
		list = append(list, span{at, at + 1, h.attempt})
	}
	for _, s := range w.left {
		if s.to > w.next {
			list = append(list, span{max(s.from, w.next), s.to, s.attempts})
		}
	}
	return list
}

// spansPrefix begins the metadata of a commit that weir has made. Behind baselessPrefix, which older
// versions wrote, there is no base.
const (
	spansPrefix    = "weir2:"
	baselessPrefix = "weir1:"
)

// formatSpans writes what is unfinished from base to open, in at most limit bytes. What
// does not fit is written down as unfinished and handed out once. The base is there because others
// copy commits: a mirror of the topic has other offsets, and gets the metadata as it is.
func formatSpans(base, open int64, list []span, limit int) string {
	if len(list) == 0 && open <= base {
		return ""
	}
	limit = (limit-len(spansPrefix))*3/4 - 1
	text := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(base)), uint64(open-base))
	end := base
	for _, s := range list {
		more := appendSpan(text, end, s)
		if len(more)+3*binary.MaxVarintLen64 > limit {
			more = appendSpan(text, end, span{s.from, max(open, s.to), 1})
			return spansPrefix + base64.RawStdEncoding.EncodeToString(more)
		}
		text, end = more, s.to
	}
	return spansPrefix + base64.RawStdEncoding.EncodeToString(text)
}

func appendSpan(text []byte, end int64, s span) []byte {
	text = binary.AppendUvarint(text, uint64(s.from-end))
	text = binary.AppendUvarint(text, uint64(s.to-s.from-1))
	return binary.AppendUvarint(text, uint64(s.attempts))
}

// parseSpans reads what formatSpans has written with a commit of base.
func parseSpans(base int64, metadata string) (open int64, list []span, ok bool) {
	code, ours := strings.CutPrefix(metadata, spansPrefix)
	based := ours
	if !based {
		code, ours = strings.CutPrefix(metadata, baselessPrefix)
	}
	text, err := base64.RawStdEncoding.DecodeString(code)
	if !ours || err != nil {
		return 0, nil, false
	}
	number := func() int64 {
		v, n := binary.Uvarint(text)
		if n <= 0 || v > 1<<62 {
			ok, text = false, nil
			return 0
		}
		text = text[n:]
		return int64(v)
	}
	ok = true
	if based && number() != base {
		return 0, nil, false
	}
	open = base + number()
	for end := base; ok && len(text) > 0; {
		from := end + number()
		s := span{from, from + number() + 1, int(number())}
		if s.to > open {
			return 0, nil, false
		}
		list, end = append(list, s), s.to
	}
	return open, list, ok
}

// unfinished is how many records the spans are, within is how many of them are in a range.
func unfinished(list []span) int64 { return within(list, 0, math.MaxInt64) }

func within(list []span, from, to int64) (n int64) {
	for _, s := range list {
		n += max(0, min(s.to, to)-max(s.from, from))
	}
	return n
}

// firstOf is the first of the spans' offsets from one on, which is before the end of the last.
func firstOf(list []span, from int64) int64 {
	for _, s := range list {
		if s.to > from {
			return max(s.from, from)
		}
	}
	return from
}
