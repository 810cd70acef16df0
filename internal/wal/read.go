package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
)

const (
	blockBytes  = 256 << 10 // one read ahead for sequential readers
	cacheBlocks = 8
	nearBytes   = 64 << 10 // a read this close behind the last one is sequential
)

// Read appends the payload (head‖body) at pos to dst. It comes from memory
// while hot, else from the file, verified; bytes that fail their checksum, also
// when the file is opened anew and read past all caches, are a *CorruptError.
// ErrReleased means that the segment was released: look again
// where the operation is.
func (l *Log) Read(pos Pos, dst []byte) ([]byte, error) {
	if b, loan, ok := l.LendHot(pos); ok {
		defer loan.Return()
		return append(dst, b...), nil
	}
	return l.readFile(pos, dst)
}

// Lend is Read into buf that copies nothing while the payload is hot. What it returns is
// valid until the loan is returned.
func (l *Log) Lend(pos Pos, buf *[]byte) ([]byte, Loan, error) {
	if b, loan, ok := l.LendHot(pos); ok {
		return b, loan, nil
	}
	var err error
	*buf, err = l.readFile(pos, (*buf)[:0])
	return *buf, Loan{}, err
}

// Loan keeps the log from using memory again that it has lent. The zero value is of
// memory that is not the log's.
type Loan struct{ chunk *chunk }

// Return ends the loan.
func (l Loan) Return() {
	if l.chunk != nil {
		l.chunk.pins.Add(-1)
	}
}

func (l *Log) readFile(pos Pos, dst []byte) ([]byte, error) {
	s := l.segment(pos.Segment)
	if s == nil || !s.pin() {
		return dst, ErrReleased
	}
	defer l.unpin(s)
	if ranges := s.moved.Load(); ranges != nil {
		for _, m := range *ranges {
			if off := int64(pos.Offset); off >= m.from && off < m.to {
				pos.Offset = uint32(off + m.delta)
				return l.readCold(m.dst, pos, dst)
			}
		}
	}
	return l.readCold(s, pos, dst)
}

// LendHot is Lend of what is hot; it reads no file, and ok is false for the rest.
func (l *Log) LendHot(pos Pos) (payload []byte, loan Loan, ok bool) {
	p := l.hot.Load()
	if p == nil {
		return nil, Loan{}, false
	}
	list := *p
	i := sort.Search(len(list), func(i int) bool {
		c := list[i]
		return c.seg.number > pos.Segment || c.seg.number == pos.Segment && c.base > int64(pos.Offset)
	}) - 1
	if i < 0 {
		return nil, Loan{}, false
	}
	c := list[i]
	off := int64(pos.Offset) - c.base
	if c.seg.number != pos.Segment || off+int64(pos.Len) > int64(len(c.buf)) {
		return nil, Loan{}, false
	}
	c.pins.Add(1)
	loan = Loan{c}
	if c.retired.Load() {
		loan.Return()
		return nil, Loan{}, false
	}
	end := off + int64(pos.Len)
	return c.buf[off:end:end], loan, true
}

func (s *segment) pin() bool {
	for {
		n := s.refs.Load()
		if n <= 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *Log) unpin(s *segment) {
	if s.refs.Add(-1) == 0 {
		l.mu.Lock()
		l.retireSegmentLocked(s)
		l.mu.Unlock()
	}
}

func (l *Log) dropRefLocked(s *segment) {
	if s.refs.Add(-1) == 0 {
		l.retireSegmentLocked(s)
	}
}

// retireSegmentLocked hands a segment that nobody reads any more to the keeper.
func (l *Log) retireSegmentLocked(s *segment) {
	l.mu.retired = append(l.mu.retired, s)
	if ranges := s.moved.Load(); ranges != nil {
		l.dropRefLocked((*ranges)[0].dst)
	}
	l.kick()
}

// readCold reads from a pinned segment's file.
func (l *Log) readCold(s *segment, pos Pos, dst []byte) ([]byte, error) {
	from, n := int64(pos.Offset)-opHeaderSize, opHeaderSize+int(pos.Len)
	h := s.file.Load()
	if h == nil || from < segHeaderSize || from+int64(n) > s.end.Load() {
		return dst, fmt.Errorf("wal: %s: there is no operation at offset %d", l.path(segName(s.number)), pos.Offset)
	}
	if out, ok := l.cache.read(s, h, from, n, dst); ok {
		return out, nil
	}
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	if _, err := h.ReadAt(dst[start:], from); err != nil && err != io.EOF {
		return dst[:start], fmt.Errorf("wal: %s: %w", segName(s.number), err)
	}
	payload, _, _, ok := decodeOp(dst[start:])
	if !ok || len(payload) != int(pos.Len) {
		if err := l.readAgain(s, from, dst[start:]); err != nil {
			return dst[:start], err
		}
		if payload, _, _, ok = decodeOp(dst[start:]); !ok || len(payload) != int(pos.Len) {
			return dst[:start], &CorruptError{File: l.path(segName(s.number)), Offset: int64(pos.Offset), Reason: "the checksum of an operation does not match"}
		}
	}
	copy(dst[start:], payload)
	return dst[:start+len(payload)], nil
}

// readAgain fills b from a file opened for it alone, past the system's cache.
// What the file does not hold is left zero.
func (l *Log) readAgain(s *segment, from int64, b []byte) error {
	f, err := l.opt.FS.Open(l.path(segName(s.number)))
	if err != nil {
		return fmt.Errorf("wal: %w", err)
	}
	ForgetCached(f.Fd())
	clear(b)
	if _, err = f.ReadAt(b, from); err == io.EOF {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("wal: %s: %w", segName(s.number), err)
	}
	return nil
}

// blockCache makes sequential reads cheap: one block read serves the
// operations that follow. Its lock is not held while a block is read.
type blockCache struct {
	sync.Mutex
	blocks [cacheBlocks]block
	recent [cacheBlocks]place // ends of the last reads that found no block
	next   int
}

type place struct {
	seg uint32
	end int64
}

// block is a piece of a segment's file. While it is being read, data is with the reader.
type block struct {
	seg     uint32
	from    int64
	data    []byte
	reading bool
}

// read serves a range from a cached block, or reads one if the range follows
// an earlier read. It returns false if the caller should read the range alone.
func (c *blockCache) read(s *segment, h *handle, from int64, n int, dst []byte) ([]byte, bool) {
	if n > blockBytes/2 {
		return dst, false
	}
	out, ok, slot, data := c.find(s, from, n, dst)
	if ok || data == nil {
		return out, ok
	}
	data = data[:min(blockBytes, s.end.Load()-from)]
	if m, err := h.ReadAt(data, from); err != nil || m < len(data) {
		c.put(slot, block{data: data[:0]})
		return dst, false
	}
	dst, ok = payloadIn(data, n, dst)
	c.put(slot, block{seg: s.number, from: from, data: data})
	return dst, ok
}

// find serves a range from a cached block. If there is none and the range follows an earlier
// read, data is where the caller reads a block for the slot.
func (c *blockCache) find(s *segment, from int64, n int, dst []byte) (out []byte, ok bool, slot int, data []byte) {
	c.Lock()
	defer c.Unlock()
	sequential := false
	for i := range c.blocks {
		b := &c.blocks[i]
		if b.seg != s.number {
			continue
		}
		end := b.from + int64(len(b.data))
		if from >= b.from && from+int64(n) <= end {
			out, ok = payloadIn(b.data[from-b.from:], n, dst)
			return out, ok, 0, nil
		}
		if b.reading && from >= b.from && from < b.from+blockBytes {
			return dst, false, 0, nil // somebody reads it, and may wait for the disk
		}
		sequential = sequential || from > b.from && from <= end+nearBytes
	}
	for _, p := range c.recent {
		sequential = sequential || p.seg == s.number && from >= p.end && from <= p.end+nearBytes
	}
	slot = c.next
	c.next = (c.next + 1) % cacheBlocks
	if !sequential {
		c.recent[slot] = place{s.number, from + int64(n)}
		return dst, false, 0, nil
	}
	data = c.blocks[slot].data
	if data == nil {
		data = make([]byte, 0, blockBytes)
	}
	c.blocks[slot] = block{seg: s.number, from: from, reading: true}
	return dst, false, slot, data
}

func (c *blockCache) put(slot int, b block) {
	c.Lock()
	defer c.Unlock()
	c.blocks[slot] = b
}

// payloadIn appends the payload of the operation of n bytes that b begins with to dst.
func payloadIn(b []byte, n int, dst []byte) ([]byte, bool) {
	payload, _, _, ok := decodeOp(b)
	if !ok || len(payload) != n-opHeaderSize {
		return dst, false
	}
	return append(dst, payload...), true
}

// OldestSealed returns the segment that is to be taken over by the store and
// released next.
func (l *Log) OldestSealed() (SegmentInfo, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.mu.segs {
		if s.released {
			continue
		}
		if !s.sealed {
			break
		}
		return SegmentInfo{Number: s.number, FirstLSN: max(s.live, l.after+1), LastLSN: s.last, Bytes: s.end.Load()}, true
	}
	return SegmentInfo{}, false
}

// Release gives a sealed segment back: the store holds what is in it. Its file
// is used again once no reader is in it.
func (l *Log) Release(number uint32) error {
	defer dieOfPanic()
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.mu.segs, func(s *segment) bool { return s.number == number })
	if i < 0 {
		return ErrReleased
	}
	s := l.mu.segs[i]
	if !s.sealed {
		return fmt.Errorf("wal: segment %d is not sealed", number)
	}
	s.released = true
	l.mu.segs = slices.Delete(slices.Clone(l.mu.segs), i, i+1)
	l.publishTable()
	l.dropRefLocked(s)
	l.checkSealedLocked()
	return nil
}
