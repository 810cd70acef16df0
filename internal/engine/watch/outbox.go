package watch

// Frame is one encoded frame without its id, shared by all streams it goes to.
type Frame struct {
	Body []byte // empty: only the position moves
	Pos  uint64 // the topic's position once it was sent
	Kind Kind
}

// Kind is what a frame says.
type Kind uint8

// The kinds of frames.
const (
	Position Kind = iota
	Records
	Tombstone
	CaughtUp
)

// Item is a frame on its way to one stream.
type Item[T any] struct {
	To    T // the stream's own note of the topic
	Frame *Frame
}

// Outbox is the frames that wait for one socket, bounded by number and bytes.
// The zero value refuses everything; see NewOutbox.
type Outbox[T any] struct {
	items    []Item[T]
	from     int
	bytes    int
	maxItems int
	maxBytes int
}

// NewOutbox returns an outbox that holds at most items frames of bytes in all.
func NewOutbox[T any](items, bytes int) Outbox[T] {
	return Outbox[T]{maxItems: items, maxBytes: bytes}
}

// Len is the number of frames that wait.
func (o *Outbox[T]) Len() int { return len(o.items) - o.from }

// Offer takes a frame unless a bound would be passed; a frame larger than the
// byte bound is taken by an empty outbox.
func (o *Outbox[T]) Offer(to T, f *Frame) bool {
	n := o.Len()
	if n >= o.maxItems || n > 0 && o.bytes+len(f.Body) > o.maxBytes {
		return false
	}
	if o.from > 0 && len(o.items) == cap(o.items) {
		k := copy(o.items, o.items[o.from:])
		clear(o.items[k:])
		o.items, o.from = o.items[:k], 0
	}
	o.items = append(o.items, Item[T]{to, f})
	o.bytes += len(f.Body)
	return true
}

// Take removes and returns the oldest frame.
func (o *Outbox[T]) Take() (Item[T], bool) {
	if o.Len() == 0 {
		return Item[T]{}, false
	}
	it := o.items[o.from]
	o.items[o.from] = Item[T]{}
	o.from++
	o.bytes -= len(it.Frame.Body)
	if o.from == len(o.items) {
		o.items, o.from = o.items[:0], 0
		if cap(o.items) > 16 {
			o.items = nil // an idle stream holds nothing
		}
	}
	return it, true
}

// Relaxed reports whether half of each bound is free again.
func (o *Outbox[T]) Relaxed() bool { return o.Len() <= o.maxItems/2 && o.bytes <= o.maxBytes/2 }
