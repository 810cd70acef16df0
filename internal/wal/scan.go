package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Scan reads the operations of a sealed segment in LSN order, verified.
// Operations at or below the LSN that Open was given are left out. A place whose
// checksums fail, also when the file is opened anew and read past all caches, is
// a *CorruptError.
func (l *Log) Scan(number uint32, fn func(Op) error) error { return l.scan(number, fn, nil) }

// ScanDamaged is Scan for a segment that is damaged: it passes over what cannot
// be read and calls lost, in LSN order with fn, with the first and the last LSN
// of the operations that it leaves out there.
func (l *Log) ScanDamaged(number uint32, fn func(Op) error, lost func(d *CorruptError, from, to uint64) error) error {
	return l.scan(number, fn, lost)
}

// scanner is one reading of a sealed segment.
type scanner struct {
	l    *Log
	s    *segment
	show func(op Op, void bool) error
	lost func(d *CorruptError, from, to uint64) error // nil: damage is an error
}

func (l *Log) scan(number uint32, fn func(Op) error, lost func(*CorruptError, uint64, uint64) error) error {
	s := l.segment(number)
	if s == nil || !s.pin() {
		return ErrReleased
	}
	defer l.unpin(s)
	l.mu.Lock()
	sealed, last, limit := s.sealed, s.last, s.limit
	l.mu.Unlock()
	if !sealed {
		return fmt.Errorf("wal: segment %d is not sealed", number)
	}
	from := max(s.live, l.after+1)
	c := scanner{l: l, s: s, show: func(op Op, void bool) error {
		if void || op.LSN < from {
			return nil
		}
		return fn(op)
	}}
	if lost != nil {
		c.lost = func(d *CorruptError, first, to uint64) error {
			if first = max(first, from); first > to {
				return nil
			}
			return lost(d, first, to)
		}
	}
	if h := s.file.Load(); h != nil {
		own := last
		if limit > 0 {
			own = min(own, limit-1)
		}
		if err := c.file(h, own); err != nil {
			return err
		}
	}
	if ranges := s.moved.Load(); ranges != nil {
		for _, m := range *ranges {
			if err := c.moved(m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *scanner) file(f vfs.File, last uint64) error {
	s := c.s
	r := groupReader{file: f, seed: c.l.seed, off: segHeaderSize, size: s.end.Load()}
	epoch := uint64(0)
	for at := s.first; at <= last; {
		off := r.off
		h, body, ok, err := r.next()
		if err != nil {
			return fmt.Errorf("wal: %s: %w", segName(s.number), err)
		}
		if d, lost := skip(c.l.accepted, s.number, off, at); lost && (!ok || h.first != at) {
			at, r.off = d.To+1, d.Next
			continue
		}
		if !ok || h.first != at || h.segment != s.number {
			if at, err = c.again(&r, off, at, last, &epoch); err != nil {
				return err
			}
			continue
		}
		if err := eachOp(h, off, body, c.show); err != nil {
			return err
		}
		epoch = h.epoch
		at += uint64(h.count)
	}
	return nil
}

// moved shows a copied group at the places it had before.
func (c *scanner) moved(m movedRange) error {
	from, to := m.from+m.delta, m.to+m.delta
	r := groupReader{file: m.dst.file.Load(), seed: c.l.seed, off: from, size: to}
	h, body, ok, err := r.next()
	if err == nil && !ok {
		if body, err = c.l.readRange(m.dst, from, to); err == nil {
			h, ok = decodeGroupHeader(body, c.l.seed)
		}
		if ok = ok && int64(h.length) == to-from-groupHeaderSize; ok {
			h.segment = c.s.number
			return c.group(h, m.from, body[groupHeaderSize:])
		}
	}
	if err != nil {
		return fmt.Errorf("wal: %s: %w", segName(m.dst.number), err)
	}
	if !ok {
		return &CorruptError{File: c.l.path(segName(m.dst.number)), Offset: from, Reason: "a group of a sealed segment cannot be read"}
	}
	h.segment = c.s.number
	return eachOp(h, m.from, body, c.show)
}

// again continues, past all caches, at a group that could not be read. It shows
// what can be read up to the next intact group header and returns the LSN that
// follows; r is positioned there.
func (c *scanner) again(r *groupReader, off int64, at, last uint64, epoch *uint64) (next uint64, err error) {
	b, err := c.l.readRange(c.s, off, r.size)
	if err != nil {
		return 0, err
	}
	h, ok := decodeGroupHeader(b, c.l.seed)
	if ok && h.first == at && h.segment == c.s.number && int(h.length) <= len(b)-groupHeaderSize {
		*epoch = h.epoch
		r.off = off + groupHeaderSize + int64(h.length)
		return at + uint64(h.count), c.group(h, off, b[groupHeaderSize:groupHeaderSize+int(h.length)])
	}
	if c.lost == nil {
		return 0, c.corrupt(off, at)
	}
	// The header is damaged: what is behind it ends with the next one.
	p := salvage{c: c, off: off, from: at, to: last, epochs: []uint64{*epoch}}
	end, next := len(b), last+1
	g := groupReader{file: r.file, seed: r.seed, off: off + 1, size: r.size}
	if err := g.search(func(o int64, h groupHeader, _ func() bool) bool {
		if h.segment != c.s.number || h.first < at || h.first > last+1 || h.epoch < *epoch {
			return true
		}
		end, next, p.to = int(o-off), h.first, h.first-1
		p.epochs = append(p.epochs, h.epoch)
		return false
	}); err != nil {
		return 0, fmt.Errorf("wal: %s: %w", segName(c.s.number), err)
	}
	r.off = off + int64(end)
	return next, p.walk(b[min(groupHeaderSize, end):end])
}

func (c *scanner) corrupt(off int64, at uint64) *CorruptError {
	return &CorruptError{File: c.l.path(segName(c.s.number)), Offset: off, LSN: at, Reason: "a group of a sealed segment cannot be read"}
}

// group shows what can be read of a group whose header is intact.
func (c *scanner) group(h groupHeader, off int64, body []byte) error {
	if checkGroup(h, body) {
		return eachOp(h, off, body, c.show) // the first reading was wrong
	}
	if c.lost == nil {
		return c.corrupt(off, h.first)
	}
	p := salvage{c: c, off: off, from: h.first, to: h.first + uint64(h.count) - 1, epochs: []uint64{h.epoch}}
	return p.walk(body)
}

// salvage looks for the intact operations of one group.
type salvage struct {
	c        *scanner
	off      int64 // of the group
	from, to uint64
	epochs   []uint64 // of which one is the group's
}

// walk goes from operation to operation by their lengths, as far as those lead
// to another one, else byte by byte.
func (p *salvage) walk(b []byte) error {
	if p.from > p.to {
		return nil
	}
	salts := make(map[uint32]uint64, int(p.to-p.from+1))
	for lsn := p.from; lsn <= p.to && lsn-p.from <= uint64(len(b)/opHeaderSize); lsn++ {
		for _, epoch := range p.epochs {
			salts[salt(lsn, epoch)] = lsn
		}
	}
	next := p.from
	for at := 0; next <= p.to && at+opHeaderSize <= len(b); {
		op, void, ok := p.op(b, at, next, salts)
		if !ok {
			// The length of a damaged operation may be good.
			n := int64(at) + opHeaderSize + int64(le.Uint32(b[at:]))
			if n < int64(len(b)) {
				if _, _, ok = p.op(b, int(n), next+1, salts); ok {
					at = int(n)
					continue
				}
			}
			at++
			continue
		}
		if err := p.miss(next, op.LSN); err != nil {
			return err
		}
		if err := p.c.show(op, void); err != nil {
			return err
		}
		next = op.LSN + 1
		at += opHeaderSize + len(op.Payload)
	}
	return p.miss(next, p.to+1)
}

// op returns the operation at b[at:] if it is intact and one of the group's,
// from next on.
func (p *salvage) op(b []byte, at int, next uint64, salts map[uint32]uint64) (op Op, void, ok bool) {
	if at+opHeaderSize > len(b) {
		return op, false, false
	}
	lsn, ok := salts[le.Uint32(b[at+8:])]
	if !ok || lsn < next {
		return op, false, false
	}
	payload, flags, _, ok := decodeOp(b[at:])
	if !ok {
		return op, false, false
	}
	pos := Pos{Segment: p.c.s.number, Offset: uint32(p.off + groupHeaderSize + int64(at) + opHeaderSize), Len: uint32(len(payload))}
	return Op{LSN: lsn, Pos: pos, Payload: payload}, flags&flagVoid != 0, true
}

// miss says that the operations from from to before until cannot be read.
func (p *salvage) miss(from, until uint64) error {
	if from >= until {
		return nil
	}
	d := p.c.corrupt(p.off, from)
	d.Reason = "the checksum of an operation does not match"
	return p.c.lost(d, from, until-1)
}

// readRange reads a part of a file opened for it alone, past the system's
// cache. What the file does not hold is left out.
func (l *Log) readRange(s *segment, from, to int64) ([]byte, error) {
	f, err := l.opt.FS.Open(l.path(segName(s.number)))
	if err != nil {
		return nil, fmt.Errorf("wal: %w", err)
	}
	ForgetCached(f.Fd())
	b := make([]byte, to-from)
	n, err := f.ReadAt(b, from)
	if err == io.EOF {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("wal: %s: %w", segName(s.number), err)
	}
	return b[:n], nil
}
