package push

import "sync/atomic"

// frame is one encoded frame without its id, shared by all streams it goes to.
type frame struct {
	body []byte // empty: only the position moves
	pos  uint64 // the topic's position once it was sent
	kind kind
	in   atomic.Int32 // outboxes that have it
}

// kind is what a frame says.
type kind uint8

// The kinds of frames.
const (
	kindPosition kind = iota
	kindRecords
	kindTombstone
	kindCaughtUp
)

// item is a frame on its way to one stream.
type item struct {
	to    *sub
	frame *frame
}

// held is the bytes of all frames that wait for sockets, of shared ones once.
type held struct {
	bytes atomic.Int64
	most  int64 // 0 is no limit
}

func (h *held) add(f *frame) {
	if f.in.Add(1) == 1 {
		h.bytes.Add(int64(len(f.body)))
	}
}

func (h *held) remove(f *frame) {
	if f.in.Add(-1) == 0 {
		h.bytes.Add(-int64(len(f.body)))
	}
}

// full reports whether there is no room for a frame that nobody has yet.
func (h *held) full(f *frame) bool {
	return h.most > 0 && f.in.Load() == 0 && h.bytes.Load()+int64(len(f.body)) > h.most
}

// outbox is the frames that wait for one socket, bounded by number and bytes.
// The zero value refuses everything; see newOutbox.
type outbox struct {
	all      *held
	items    []item
	from     int
	bytes    int
	maxItems int
	maxBytes int
}

// newOutbox returns an outbox that holds at most items frames of bytes in all, and
// counts them in all.
func newOutbox(all *held, items, bytes int) outbox {
	return outbox{all: all, maxItems: items, maxBytes: bytes}
}

// len is the number of frames that wait.
func (o *outbox) len() int { return len(o.items) - o.from }

// offer takes a frame unless a bound would be passed; a frame larger than the
// byte bound is taken by an empty outbox.
func (o *outbox) offer(to *sub, f *frame) bool {
	n := o.len()
	if n >= o.maxItems || n > 0 && o.bytes+len(f.body) > o.maxBytes || o.all.full(f) {
		return false
	}
	o.all.add(f)
	if o.from > 0 && len(o.items) == cap(o.items) {
		k := copy(o.items, o.items[o.from:])
		clear(o.items[k:])
		o.items, o.from = o.items[:k], 0
	}
	o.items = append(o.items, item{to, f})
	o.bytes += len(f.body)
	return true
}

// take removes and returns the oldest frame.
func (o *outbox) take() (item, bool) {
	if o.len() == 0 {
		return item{}, false
	}
	it := o.items[o.from]
	o.items[o.from] = item{}
	o.from++
	o.bytes -= len(it.frame.body)
	o.all.remove(it.frame)
	if o.from == len(o.items) {
		o.items, o.from = o.items[:0], 0
		if cap(o.items) > 16 {
			o.items = nil // an idle stream holds nothing
		}
	}
	return it, true
}

// clear forgets all frames.
func (o *outbox) clear() {
	for o.len() > 0 {
		o.take()
	}
}

// relaxed reports whether half of each bound is free again.
func (o *outbox) relaxed() bool { return o.len() <= o.maxItems/2 && o.bytes <= o.maxBytes/2 }
