package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/wal"
)

// partIndex holds the parts of a segment by topic, in the order of the log. What
// they say of records that the view knows to be gone is left out: it would take
// the memory of the whole segment for a queue that is nearly empty.
type partIndex struct {
	view     View // may be nil
	topics   map[uint64]*partList
	blocks   [][]byte
	fill     []byte // the one that is filled, nil if none is
	used     int    // bytes of it
	block    int    // its number
	sessions sessions
	clock    op.Clock // the last one
	scratch  []byte
}

// partList is where the parts of a topic are.
type partList struct {
	head, tail uint64
	gone       func(seq uint64) bool // may be nil
}

// partRef is a part, and the frames behind it if it is an append.
type partRef struct {
	part []byte
	bare bool // the frames were left out; they had this sum
	sum  uint32
}

// sumOf is the sum of the append's frames.
func (r *partRef) sumOf(frames []byte) uint32 {
	if r.bare {
		return r.sum
	}
	return op.SumOf(wal.Checksum(frames))
}

const (
	noPart     = 1<<64 - 1
	blockBits  = 20 // a place is the number of a block and an offset of so many bits
	partHeader = 8 + 4 + 4 + 1
)

// payloadBlock holds parts; one that is large has its own memory.
type payloadBlock [1 << blockBits]byte

// payloadBlocks keeps the memory between two segments that follow closely.
var payloadBlocks = sync.Pool{New: func() any { return new(payloadBlock) }}

func (x *partIndex) free() {
	for _, b := range x.blocks {
		if len(b) == len(payloadBlock{}) {
			payloadBlocks.Put((*payloadBlock)(b))
		}
	}
	x.blocks = nil
}

// room returns n bytes and their place.
func (x *partIndex) room(n int) (place uint64, b []byte) {
	if n > len(payloadBlock{})/4 {
		b = make([]byte, n)
		x.blocks = append(x.blocks, b)
		return uint64(len(x.blocks)-1) << blockBits, b
	}
	if x.used+n > len(x.fill) {
		x.fill, x.used, x.block = payloadBlocks.Get().(*payloadBlock)[:], 0, len(x.blocks)
		x.blocks = append(x.blocks, x.fill)
	}
	place, b = uint64(x.block)<<blockBits|uint64(x.used), x.fill[x.used:x.used+n]
	x.used += n
	return place, b
}

// at returns the part at a place, and the place of the topic's next one.
func (x *partIndex) at(place uint64) (next uint64, r partRef) {
	b := x.blocks[place>>blockBits][place%(1<<blockBits):]
	n := binary.LittleEndian.Uint32(b[8:])
	r.sum, r.bare, r.part = binary.LittleEndian.Uint32(b[12:]), b[16] == 1, b[partHeader:][:n:n]
	return binary.LittleEndian.Uint64(b), r
}

// add keeps a part, with the frames behind it.
func (x *partIndex) add(l *partList, part, frames []byte, bare bool, sum uint32) {
	place, b := x.room(partHeader + len(part) + len(frames))
	binary.LittleEndian.PutUint64(b, noPart)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(part)+len(frames)))
	binary.LittleEndian.PutUint32(b[12:], sum)
	b[16] = 0
	if bare {
		b[16] = 1
	}
	copy(b[partHeader+copy(b[partHeader:], part):], frames)
	if l.head == noPart {
		l.head = place
	} else {
		binary.LittleEndian.PutUint64(x.blocks[l.tail>>blockBits][l.tail%(1<<blockBits):], place)
	}
	l.tail = place
}

func (x *partIndex) list(topic uint64) *partList {
	l := x.topics[topic]
	if l == nil {
		l = &partList{head: noPart}
		if x.view != nil {
			l.gone = x.view.Snapshot(topic)
		}
		x.topics[topic] = l
	}
	return l
}

// keep keeps what is needed of a part that was read.
func (x *partIndex) keep(p *op.Part, part, frames []byte) {
	l := x.list(p.Topic)
	switch {
	case l.gone == nil:
	case p.Kind == op.KindAppend:
		if len(frames) > 0 && p.N > 0 && allGone(l.gone, p.First, p.N) {
			sum := uint32(0)
			if p.HasKey {
				sum = op.SumOf(wal.Checksum(frames))
			}
			x.add(l, part, nil, true, sum)
			return
		}
	case p.Kind == op.KindLease || p.Kind == op.KindRelease:
		n := len(p.Leases)
		p.Leases = slices.DeleteFunc(p.Leases, func(s op.Lease) bool { return l.gone(s.Seq) })
		if len(p.Leases) == 0 {
			return
		}
		if len(p.Leases) < n {
			x.scratch = p.Encode(x.scratch[:0])
			part = x.scratch
		}
	}
	x.add(l, part, frames, false, 0)
}

func allGone(gone func(seq uint64) bool, first, n uint64) bool {
	for seq := first; seq < first+n; seq++ {
		if !gone(seq) {
			return false
		}
	}
	return true
}

func (x *partIndex) collect(ctx context.Context, k *kv, applied uint64, scan func(func(Op) error) error) error {
	var p op.Part
	size := 0
	return scan(func(o Op) error {
		if o.LSN <= applied {
			return nil
		}
		if size += len(o.Payload); size > paceEvery {
			size = 0
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		r := op.NewReader(o.Payload)
		for r.Next(&p) {
			switch {
			case op.OfWatch(p.Kind):
				if err := x.sessions.apply(k, &p, x.view); err != nil {
					return err
				}
			case p.Kind == op.KindClock:
				x.clock = p.Clock
			case p.Kind == op.KindAppend:
				x.keep(&p, r.Part, r.Frames)
			default:
				x.keep(&p, r.Part, nil)
			}
		}
		if err := r.Err(); err != nil {
			return fmt.Errorf("operation %d: %w", o.LSN, err)
		}
		return nil
	})
}

// sorted returns the topics in ascending order.
func (x *partIndex) sorted() []uint64 {
	list := make([]uint64, 0, len(x.topics))
	for t := range x.topics {
		list = append(list, t)
	}
	slices.Sort(list)
	return list
}
