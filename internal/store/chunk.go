package store

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

const (
	chunkVersion = 1
	// chunkTarget is the size a chunk may have; a record that does not fit is a
	// chunk of its own.
	chunkTarget = 128 << 10
	// headerRoom and runRoom are the most bytes that a header and the fields in
	// front of the frames of a run can take.
	headerRoom = 1 + 4*binary.MaxVarintLen64
	runRoom    = 4 * binary.MaxVarintLen64
)

// ErrChunk is a chunk whose bytes make no sense.
var ErrChunk = errors.New("store: malformed chunk of records")

// Chunk is a piece of one topic in one segment: records in ascending order.
// It never changes and may be shared. Its bytes:
//
//	version u8 = 1
//	first   uvarint   number of its first record
//	span    uvarint   last − first
//	count   uvarint   records
//	base    varint    ts of its first run, Unix ms
//	run*              up to the end
//
//	run = skip    uvarint   numbers between the run before and this one
//	      n       uvarint   records; their numbers follow each other
//	      later   varint    ts − ts of the run before (first run: − base)
//	      length  uvarint   bytes of the frames
//	      frames            n frames of package op
type Chunk struct {
	First uint64 // number of the first record
	Last  uint64 // number of the last one
	Count uint64 // records
	base  int64
	runs  []byte
	size  int

	left  atomic.Pointer[Iter] // where a reader stopped; the next one mostly goes on there
	users atomic.Int32         // callers of Read that have not released it, and the cache
	buf   *[]byte              // all its bytes; nil unless it was read from the store
}

// Iter walks the records of a chunk.
type Iter struct {
	runs   []byte // behind the current run
	frames []byte // what is left of the current run
	seq    uint64 // number of the next frame
	ts     int64
}

// runHeader reads the fields of the run at the front of b.
func runHeader(b []byte) (skip, n uint64, later int64, frames, rest []byte, ok bool) {
	v := values{b: b}
	skip, n, later = v.uint(), v.uint(), v.int()
	length := v.uint()
	if v.bad || n == 0 || length > uint64(len(v.b)) {
		return 0, 0, 0, nil, nil, false
	}
	return skip, n, later, v.b[:length:length], v.b[length:], true
}

// ParseChunk checks the bytes of a chunk, all of them, and returns it; it keeps b.
func ParseChunk(b []byte) (*Chunk, error) {
	if len(b) == 0 || b[0] != chunkVersion {
		return nil, ErrChunk
	}
	v := values{b: b[1:]}
	c := &Chunk{First: v.uint(), size: len(b)}
	c.Last = c.First + v.uint()
	c.Count, c.base = v.uint(), v.int()
	c.runs = v.b
	if v.bad || c.Last < c.First || c.Count == 0 {
		return nil, ErrChunk
	}
	var count uint64
	next, room := c.First, c.Last-c.First // room: numbers that may follow next
	first := true
	for rest := c.runs; len(rest) > 0; {
		skip, n, _, frames, after, ok := runHeader(rest)
		if !ok || n > uint64(len(frames)) {
			return nil, ErrChunk
		}
		if !first {
			if room == 0 {
				return nil, ErrChunk
			}
			next, room = next+1, room-1
		}
		if (first && skip != 0) || skip > room || n-1 > room-skip {
			return nil, ErrChunk
		}
		next, room = next+skip+n-1, room-skip-(n-1)
		for i := uint64(0); i < n; i++ {
			var r api.Record
			var err error
			if frames, err = op.ReadFrame(frames, &r); err != nil {
				return nil, ErrChunk
			}
		}
		if len(frames) > 0 {
			return nil, ErrChunk
		}
		count += n
		first = false
		rest = after
	}
	if count != c.Count || room != 0 {
		return nil, ErrChunk
	}
	return c, nil
}

// Size is the length of the chunk in bytes.
func (c *Chunk) Size() int { return c.size }

// Seek returns an iterator whose first record is the one with the number seq
// or, if there is none, the one behind it.
func (c *Chunk) Seek(seq uint64) Iter {
	it := Iter{runs: c.runs, seq: c.First, ts: c.base}
	if seq <= c.First {
		return it
	}
	if left := c.left.Load(); left != nil && left.seq <= seq {
		it = *left
		for ; len(it.frames) > 0 && it.seq < seq; it.seq++ {
			it.frames, _ = op.SkipFrame(it.frames)
		}
		if len(it.frames) > 0 {
			return it
		}
	}
	for len(it.runs) > 0 {
		skip, n, later, frames, rest, _ := runHeader(it.runs)
		it.seq += skip
		it.ts += later
		it.runs = rest
		if seq > it.seq+n-1 {
			it.seq += n
			continue
		}
		it.frames = frames
		for it.seq < seq {
			it.frames, _ = op.SkipFrame(it.frames)
			it.seq++
		}
		return it
	}
	return it
}

// Leave notes where a reader has stopped. Workers of a queue read a chunk piece by piece, and
// would walk over all that the others have read.
func (c *Chunk) Leave(it Iter) {
	if len(it.frames) > 0 || len(it.runs) > 0 {
		c.left.Store(&it)
	}
}

// Next reads the next record, whose slices point into the chunk, and reports
// whether there was one.
func (it *Iter) Next(r *api.Record) bool {
	if len(it.frames) == 0 {
		if len(it.runs) == 0 {
			return false
		}
		skip, _, later, frames, rest, _ := runHeader(it.runs)
		it.seq += skip
		it.ts += later
		it.frames, it.runs = frames, rest
	}
	it.frames, _ = op.ReadFrame(it.frames, r)
	r.Seq, r.TS = it.seq, it.ts
	it.seq++
	return true
}

// chunkBuilder gathers runs of one topic into chunks.
type chunkBuilder struct {
	buf         []byte // headerRoom bytes for the header, then the runs
	first, last uint64
	count       uint64
	base, ts    int64
}

func (b *chunkBuilder) empty() bool { return b.count == 0 }

// room is how many bytes of frames fit into one more run.
func (b *chunkBuilder) room() int {
	if b.empty() {
		return chunkTarget - headerRoom - runRoom
	}
	return chunkTarget - len(b.buf) - runRoom
}

// add appends a run: n records whose numbers follow each other from first.
func (b *chunkBuilder) add(first, n uint64, ts int64, frames []byte) {
	skip := uint64(0)
	if b.empty() {
		b.buf = append(b.buf[:0], make([]byte, headerRoom)...)
		b.first, b.base, b.ts = first, ts, ts
	} else {
		skip = first - b.last - 1
	}
	b.buf = appendUints(b.buf, skip, n)
	b.buf = binary.AppendVarint(b.buf, ts-b.ts)
	b.buf = binary.AppendUvarint(b.buf, uint64(len(frames)))
	b.buf = append(b.buf, frames...)
	b.last, b.ts = first+n-1, ts
	b.count += n
}

// finish returns the bytes of the chunk, valid until the next add, and begins
// another.
func (b *chunkBuilder) finish() []byte {
	var header [headerRoom]byte
	h := append(header[:0], chunkVersion)
	h = appendUints(h, b.first, b.last-b.first, b.count)
	h = binary.AppendVarint(h, b.base)
	start := headerRoom - len(h)
	copy(b.buf[start:], h)
	b.count = 0
	return b.buf[start:]
}
