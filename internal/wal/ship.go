package wal

import (
	"errors"
	"fmt"
	"io"
)

// ErrUnshipped is returned by Wait for an operation that is synced and that the
// copy will not get any more: StopShipping was called.
var ErrUnshipped = errors.New("wal: the log is not copied any more")

// A Tail walks over the bytes of the log that are synced, for whoever ships them
// to a copy. Nothing is kept in memory for it: it reads the files, and pins those
// that it has not finished. Its methods may be called concurrently, but Next by
// one goroutine.
//
// Only what is synced is shipped, so no failure of the log ever takes back what
// the copy has, and a copy never has what its log does not.
type Tail struct {
	l    *Log
	segs []*segment // pinned, oldest first, the tail of the log last; guarded by Log.mu
	off  int64      // in segs[0], of the next byte; guarded by Log.mu
	last uint64     // LSN up to which what was handed out is whole; guarded by Log.mu
	out  int64      // bytes handed out and not yet stored; guarded by Log.mu
	held bool       // Jump has left something out; guarded by Log.mu
}

// Piece is a range of bytes of one segment file.
type Piece struct {
	Segment uint32
	Offset  int64
	Bytes   []byte
	Last    uint64 // LSN up to which the log is whole with this piece
}

// tailFrom makes the tail that begins behind the LSN shipped: with the oldest segment
// that may hold a later operation, where the one with that LSN ends in its file.
func (l *Log) tailFrom(shipped uint64, files []*segFile) {
	t := &Tail{l: l, last: min(shipped, l.synced.Load())}
	for i, s := range l.mu.segs {
		if i+1 < len(l.mu.segs) && l.mu.segs[i+1].first <= shipped+1 {
			continue
		}
		t.follow(s)
	}
	for _, f := range files {
		if f.used && f.number == t.segs[0].number {
			t.off = f.copied
		}
	}
	l.tail = t
	l.shipped.Store(t.last)
}

// follow pins a segment that is new. Log.mu is held.
func (t *Tail) follow(s *segment) {
	s.refs.Add(1)
	t.segs = append(t.segs, s)
}

// Tail returns the one tail of the log; nil without Options.Ship.
func (l *Log) Tail() *Tail { return l.tail }

// Shipped returns the LSN up to which the copy has the log.
func (l *Log) Shipped() uint64 { return l.shipped.Load() }

// Synced returns the LSN up to which the log is synced.
func (l *Log) Synced() uint64 { return l.synced.Load() }

// Hurried tells that somebody waits for a shipment.
func (l *Log) Hurried() <-chan struct{} { return l.hurry }

// Hurry asks for a shipment.
func (l *Log) Hurry() {
	select {
	case l.hurry <- struct{}{}:
	default:
	}
}

// First returns the LSN of the first operation that the tail can still hand out
// from its beginning.
func (t *Tail) First() uint64 {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.segs[0].first
}

// Next reads the next synced bytes into buf, at most as many as fit; ok is false
// if there are none, or after Jump. Groups of the log may be cut: the next piece continues them.
func (t *Tail) Next(buf []byte) (p Piece, ok bool, err error) {
	l := t.l
	l.mu.Lock()
	if t.held {
		l.mu.Unlock()
		return Piece{}, false, nil
	}
	for {
		s := t.segs[0]
		end, final := l.shippableLocked(s)
		if t.off < end {
			break
		}
		if !final || len(t.segs) == 1 {
			l.mu.Unlock()
			return Piece{}, false, nil
		}
		t.segs[0] = nil
		t.segs, t.off = t.segs[1:], 0
		l.dropRefLocked(s)
	}
	s := t.segs[0]
	end, _ := l.shippableLocked(s)
	last := min(s.last, l.synced.Load())
	if s.limit > 0 {
		last = min(last, s.limit-1)
	}
	p = Piece{Segment: s.number, Offset: t.off, Bytes: buf[:min(int64(len(buf)), end-t.off)], Last: t.last}
	file := s.file.Load()
	s.refs.Add(1) // Jump may let go of it while it is read
	l.mu.Unlock()
	read, err := file.ReadAt(p.Bytes, p.Offset)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropRefLocked(s)
	if t.held {
		return Piece{}, false, nil
	}
	if err != nil && (err != io.EOF || read < len(p.Bytes)) {
		return Piece{}, false, fmt.Errorf("wal: %s: %w", segName(s.number), err)
	}
	n := int64(read)
	if p.Offset+n == end {
		p.Last = max(p.Last, last)
	}
	t.off += n
	t.out += n
	t.last = p.Last
	return p, true, nil
}

// Stored says that the copy has all pieces up to one that ended with LSN last,
// the newest of which had so many bytes.
func (t *Tail) Stored(last uint64, bytes int64) {
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	t.out = max(0, t.out-bytes)
	if last > l.shipped.Load() {
		l.shipped.Store(last)
		release(&l.mu.shipping)
	}
	l.roomLocked()
}

// roomLocked lets Reserve go on once the copy has enough.
func (l *Log) roomLocked() {
	if l.opt.ShipSync && l.unsafeLocked() < l.opt.FlushBytes {
		l.unblock(blockUnshipped)
	}
}

// Jump leaves out what is not handed out yet, lets go of its files and hands out
// nothing until Resume; then the tail goes on with what was synced after Jump.
// It returns the LSN behind which that is.
func (t *Tail) Jump() uint64 {
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(t.segs) > 1 {
		l.dropRefLocked(t.segs[0])
		t.segs[0] = nil
		t.segs = t.segs[1:]
	}
	t.off, _ = l.shippableLocked(t.segs[0])
	t.last, t.held = l.synced.Load(), true
	l.roomLocked()
	return t.last
}

// Resume ends what Jump began, if the copy has got in another way all up to the
// LSN upTo, and that covers what Jump left out.
func (t *Tail) Resume(upTo uint64) bool {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	if upTo < t.last {
		return false
	}
	t.held = false
	return true
}

// Held reports whether the tail is between Jump and Resume.
func (t *Tail) Held() bool {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.held
}

// Lag returns how many synced bytes the copy does not have.
func (t *Tail) Lag() int64 {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.lagLocked()
}

func (t *Tail) lagLocked() int64 {
	n := t.out - t.off
	for _, s := range t.segs {
		end, _ := t.l.shippableLocked(s)
		n += end
	}
	return n
}

// closeLocked lets go of the segments.
func (t *Tail) closeLocked() {
	for _, s := range t.segs {
		t.l.dropRefLocked(s)
	}
	t.segs = nil
}

// shippableLocked returns where the synced part of a segment ends. It is final
// if the segment gets no more: what a failed one holds behind it is void.
func (l *Log) shippableLocked(s *segment) (end int64, final bool) {
	switch {
	case s.failed:
		return s.kept, s.sealed
	case s.sealed:
		return s.end.Load(), true
	}
	return l.syncedEndLocked(s), false
}

// unsafeLocked is how many bytes are not synced or not in the copy.
func (l *Log) unsafeLocked() int64 { return l.mu.dirty + l.tail.lagLocked() }

// need is the class to wait for where class is asked for.
func (l *Log) need(class Class) Class {
	switch {
	case class < Synced:
		return class
	case !l.opt.Ship:
		return Synced
	case l.opt.ShipSync:
		return Shipped
	}
	return class
}

// waitShipped blocks until the copy has a synced operation.
func (l *Log) waitShipped(lsn uint64) error {
	for lsn > l.shipped.Load() {
		l.mu.Lock()
		switch {
		case lsn <= l.shipped.Load():
			l.mu.Unlock()
			return nil
		case l.mu.unshipped:
			l.mu.Unlock()
			return ErrUnshipped
		case l.mu.done:
			l.mu.Unlock()
			return ErrClosed
		}
		wait := join(&l.mu.shipping)
		l.mu.Unlock()
		l.Hurry()
		<-wait
	}
	return nil
}

// StopShipping lets every wait for the copy fail, now and later.
func (l *Log) StopShipping() {
	l.mu.Lock()
	l.mu.unshipped = true
	release(&l.mu.shipping)
	l.mu.Unlock()
}
