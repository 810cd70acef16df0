package push

// frame is one encoded frame without its id, shared by all streams it goes to.
type frame struct {
	body []byte // empty: only the position moves
	pos  uint64 // the topic's position once it was sent
	kind kind
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

// outbox is the frames that wait for one socket, bounded by number and bytes.
// The zero value refuses everything; see newOutbox.
type outbox struct {
	items    []item
	from     int
	bytes    int
	maxItems int
	maxBytes int
}

// newOutbox returns an outbox that holds at most items frames of bytes in all.
func newOutbox(items, bytes int) outbox {
	return outbox{maxItems: items, maxBytes: bytes}
}

// len is the number of frames that wait.
func (o *outbox) len() int { return len(o.items) - o.from }

// offer takes a frame unless a bound would be passed; a frame larger than the
// byte bound is taken by an empty outbox.
func (o *outbox) offer(to *sub, f *frame) bool {
	n := o.len()
	if n >= o.maxItems || n > 0 && o.bytes+len(f.body) > o.maxBytes {
		return false
	}
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
	if o.from == len(o.items) {
		o.items, o.from = o.items[:0], 0
		if cap(o.items) > 16 {
			o.items = nil // an idle stream holds nothing
		}
	}
	return it, true
}

// relaxed reports whether half of each bound is free again.
func (o *outbox) relaxed() bool { return o.len() <= o.maxItems/2 && o.bytes <= o.maxBytes/2 }
