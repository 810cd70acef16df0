package wal

import (
	"errors"
	"hash/crc32"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	chunkBytes   = 256 << 10
	firstChunk   = 16 << 10
	maxFreeBufs  = 16
	lazyGroups   = 4              // this many full groups are written even if nobody waits for them
	ownChunkFrom = chunkBytes / 2 // larger operations get a chunk of their own
)

// A chunk is the image of a range of a segment file: operations are encoded
// where they will lie, and written and, while hot, read from there.
type chunk struct {
	seg     *segment
	base    int64 // file offset of buf[0]
	buf     []byte
	n       int    // bytes in use, guarded by Log.mu
	last    uint64 // last LSN in it, guarded by Log.mu
	pins    atomic.Int32
	retired atomic.Bool
}

// A group is one write of the log: a range of a chunk.
type group struct {
	chunk  *chunk
	start  int // of the write: the segment header for the first group, else the group header
	header int
	end    int
	first  uint64
	count  uint32
	slots  int
}

func (g *group) last() uint64 { return g.first + uint64(g.count) - 1 }
func (g *group) bytes() int64 { return int64(g.end - g.start) }

// A segment is one file of the log.
type segment struct {
	number uint32
	first  uint64
	last   uint64 // last operation in it; first-1 if none; guarded by Log.mu
	size   int64  // prewritten length
	file   atomic.Pointer[handle]
	end    atomic.Int64 // bytes written
	refs   atomic.Int32 // one of the log until Release, one per reader
	moved  atomic.Pointer[[]movedRange]

	live     uint64 // first LSN that Scan shows here: earlier ones belong to a failed segment
	limit    uint64 // if set, the first LSN that this file does not hold validly
	closed   bool   // takes no more operations
	sealed   bool   // and all of it is synced
	released bool
	kept     int64 // of a failed segment: where its synced part ends
	anchored bool  // its header is on disk, perhaps nothing else
	failed   bool  // a write or sync failed: never written again
}

type handle struct{ vfs.File }

// Append takes an operation into the log: it gets the next LSN and a place.
// head and body are copied; bodyCRC is Checksum(body). The slot taken by
// Reserve is given back by the log, also when Append fails. class is what the
// caller will wait for, see Wait.
//
// Append never blocks on I/O, so it may be called under a topic's lock.
func (l *Log) Append(gen uint64, head, body []byte, bodyCRC uint32, class Class) (uint64, Pos, error) {
	lsn, pos, err := l.append(gen, head, body, bodyCRC, class, 1)
	if err != nil {
		l.freeSlots(1)
	}
	return lsn, pos, err
}

// AppendUnslotted is Append for the engine's own operations, which must not
// wait behind those of clients.
func (l *Log) AppendUnslotted(gen uint64, head, body []byte, bodyCRC uint32, class Class) (uint64, Pos, error) {
	return l.append(gen, head, body, bodyCRC, class, 0)
}

func (l *Log) append(gen uint64, head, body []byte, bodyCRC uint32, class Class, slots int) (uint64, Pos, error) {
	n := opHeaderSize + len(head) + len(body)
	if len(head) > maxHead || n > maxPayload {
		return 0, Pos{}, ErrTooLarge
	}
	sum := crc32.Update(bodyCRC, castagnoli, head)
	var own []byte
	if n > ownChunkFrom {
		own = make([]byte, segHeaderSize+groupHeaderSize+n)
		p := own[segHeaderSize+groupHeaderSize+opHeaderSize:]
		copy(p[copy(p, head):], body)
	}

	defer dieOfPanic()
	l.mu.Lock()
	if err := l.appendableLocked(gen); err != nil {
		l.mu.Unlock()
		return 0, Pos{}, err
	}
	c := l.makeRoom(n, own)
	lsn := l.mu.nextLSN
	l.mu.nextLSN++
	b := c.buf[c.n:]
	if own == nil {
		p := b[opHeaderSize:]
		copy(p[copy(p, head):], body)
	}
	putOpHeader(b, len(head), len(body), byte(min(class, Synced))&flagClass, salt(lsn, l.mu.epoch), sum)
	pos := Pos{Segment: c.seg.number, Offset: uint32(c.base + int64(c.n) + opHeaderSize), Len: uint32(n - opHeaderSize)}
	c.n += n
	c.last = lsn
	c.seg.last = lsn
	g := &l.mu.group
	g.count++
	g.slots += slots
	wake := !l.mu.armed
	l.mu.armed = true
	l.mu.Unlock()
	if wake {
		l.arm <- struct{}{}
	}
	l.m.frames.Add(1)
	return lsn, pos, nil
}

func (l *Log) appendableLocked(gen uint64) error {
	switch {
	case l.mu.closed:
		return ErrClosed
	case gen != l.gen.Load():
		return ErrStale
	case l.mu.broken != nil:
		return errors.Join(ErrReadOnly, l.mu.cause)
	}
	return nil
}

// makeRoom returns the chunk whose next n bytes take an operation of an open
// group. own, if set, is a chunk already holding the operation's payload.
func (l *Log) makeRoom(n int, own []byte) *chunk {
	c := l.mu.chunk
	open := l.mu.group.count > 0 || l.mu.group.chunk != nil
	need := n
	if !open {
		need += groupHeaderSize
	}
	tail := c.base + int64(c.n)
	if tail+int64(need) > l.mu.seg.size && l.mu.seg.last >= l.mu.seg.first {
		l.closeGroup()
		l.startSegment(l.mu.seg.number+1, own)
		c = l.mu.chunk
	} else if own != nil || c.n+need > len(c.buf) {
		l.closeGroup()
		l.newChunk(l.mu.seg, tail, groupHeaderSize+n, own)
		c = l.mu.chunk
	}
	if l.mu.group.chunk == nil {
		l.openGroup()
	}
	return c
}

func (l *Log) openGroup() {
	c := l.mu.chunk
	start := c.n
	if c.base == 0 && c.n == segHeaderSize {
		start = 0
	}
	l.mu.group = group{chunk: c, start: start, header: c.n, first: l.mu.nextLSN}
	c.n += groupHeaderSize
}

// closeGroup ends the open group, if any, and queues it for the writer.
func (l *Log) closeGroup() {
	g := &l.mu.group
	if g.chunk == nil {
		return
	}
	g.end = g.chunk.n
	groupHeader{
		epoch: l.mu.epoch, first: g.first, durable: l.synced.Load(),
		segment: g.chunk.seg.number, count: g.count, length: uint32(g.end - g.header - groupHeaderSize),
	}.encode(g.chunk.buf[g.header:], l.seed)
	l.mu.pending = append(l.mu.pending, *g)
	l.mu.unsynced = append(l.mu.unsynced, *g)
	l.mu.dirty += g.bytes()
	if !l.mu.writing && len(l.mu.pending) >= lazyGroups && l.mu.broken == nil {
		l.mu.writing = true
		l.wg.Add(1)
		go l.writeLoop()
	}
	if l.mu.dirty >= l.opt.FlushBytes {
		l.block(blockUnsynced)
	}
	if l.opt.ShipSync && l.unsafeLocked() >= l.opt.FlushBytes {
		l.block(blockUnshipped)
	}
	l.mu.group = group{}
}

// newChunk makes the chunk that continues seg at file offset base, with room
// for need bytes.
func (l *Log) newChunk(seg *segment, base int64, need int, own []byte) {
	c := &chunk{seg: seg, base: base}
	switch size := chunkBytes; {
	case own != nil && base > 0:
		c.buf = own[segHeaderSize:]
	case own != nil:
		c.buf = own
	case need > size:
		c.buf = make([]byte, need)
	case l.mu.chunk == nil:
		c.buf = make([]byte, max(firstChunk, need))
	case len(l.mu.free) > 0:
		c.buf = l.mu.free[len(l.mu.free)-1]
		l.mu.free = l.mu.free[:len(l.mu.free)-1]
	default:
		c.buf = make([]byte, size)
	}
	l.mu.chunk = c
	l.mu.hotBytes += int64(len(c.buf))
	var old []*chunk
	if p := l.hot.Load(); p != nil {
		old = *p
	}
	for len(old) > 0 && l.mu.hotBytes > l.opt.HotBytes && old[0].last <= l.synced.Load() {
		l.retire(old[0])
		old = old[1:]
	}
	list := make([]*chunk, 0, len(old)+1)
	list = append(append(list, old...), c)
	l.hot.Store(&list)
}

// retire takes a chunk out of the hot range. Its buffer is used again unless a
// reader is copying from it.
func (l *Log) retire(c *chunk) {
	l.mu.hotBytes -= int64(len(c.buf))
	c.retired.Store(true)
	if len(c.buf) == chunkBytes && c.pins.Load() == 0 && len(l.mu.free) < maxFreeBufs {
		l.mu.free = append(l.mu.free, c.buf)
	}
}

// startSegment makes the next segment the tail. Its file is opened by the
// writer, when the first group of it is written.
func (l *Log) startSegment(number uint32, own []byte) {
	old := l.mu.seg
	seg := &segment{number: number, first: l.mu.nextLSN, last: l.mu.nextLSN - 1, live: l.mu.nextLSN, size: l.opt.SegmentBytes}
	seg.refs.Store(1)
	if old != nil {
		old.closed = true
	}
	l.mu.seg = seg
	l.mu.segs = append(l.mu.segs, seg)
	if l.tail != nil {
		l.tail.follow(seg)
	}
	l.publishTable()
	l.newChunk(seg, 0, segHeaderSize+groupHeaderSize+opHeaderSize, own)
	segHeader{
		number: number, first: seg.first, epoch: l.mu.epoch, durable: l.synced.Load(),
		size: uint64(seg.size), id: l.id,
	}.encode(l.mu.chunk.buf)
	l.mu.chunk.n = segHeaderSize
	l.sealLocked(l.synced.Load())
	l.checkSealedLocked()
}

// checkSealedLocked lets Reserve wait while too many full segments do.
func (l *Log) checkSealedLocked() {
	n := 0
	for _, s := range l.mu.segs {
		if s.closed && !s.released {
			n++
		}
	}
	l.m.debt.Store(int64(n))
	if n >= l.opt.MaxSealed {
		l.block(blockSealed)
	} else {
		l.unblock(blockSealed)
	}
}

// touchDirtyLocked notes the time of the oldest byte that is written but not synced.
func (l *Log) touchDirtyLocked() {
	if l.mu.dirtySince.IsZero() {
		l.mu.dirtySince = time.Now()
	}
}
