package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// HeaderSize is the length of a segment file's header.
const HeaderSize = segHeaderSize

// Header is what the header of a segment file says.
type Header struct {
	Segment uint32
	First   uint64 // LSN of the segment's first operation
	Length  int64  // bytes that the file has at least
	Log     uint64 // random number of the log
}

// ReadHeader reads the header at the start of a segment file; ok is false if
// it is not intact.
func ReadHeader(b []byte) (h Header, ok bool) {
	s, ok, err := decodeSegHeader(b)
	return Header{Segment: s.number, First: s.first, Length: int64(s.size), Log: s.id}, ok && err == nil
}

// Ends reads a log that no process has open, changes nothing, and returns its
// random number and its last operation.
func Ends(opt Options) (log, last uint64, err error) {
	r := &recovery{opt: opt.WithDefaults(), look: true}
	defer r.close()
	if err := r.load(); err != nil {
		return 0, 0, err
	}
	for _, f := range r.files {
		if f.valid && (r.after == 0 || f.header.first-1 < r.after) {
			r.after = f.header.first - 1
		}
	}
	if err := r.walk(func(Op) error { return nil }); err != nil {
		return 0, 0, err
	}
	return r.id, r.next - 1, nil
}

// EndAt ends a log that no process has open behind the operation lsn, and
// removes the rest of it. The files need not be there from the first one on.
func EndAt(opt Options, lsn uint64) error {
	opt = opt.WithDefaults()
	r := &recovery{opt: opt, look: true}
	defer r.close()
	if err := r.load(); err != nil {
		return err
	}
	// At the first LSN of a segment the log may end in the one before as well.
	var at *segFile
	for _, f := range r.chain() {
		if f.header.first <= lsn+1 && (f.limit == 0 || lsn+1 < f.limit) {
			at = f
		}
	}
	if at == nil {
		return fmt.Errorf("wal: %s holds no operation %d", opt.Dir, lsn)
	}
	end, group, err := r.endOf(at, lsn)
	if err != nil {
		return err
	}
	l := &Log{opt: opt}
	for _, f := range slices.Backward(r.files) {
		if f.number > at.number {
			if err := opt.FS.Remove(f.name); err != nil {
				return err
			}
		}
	}
	if err := l.truncate(at, end, group); err != nil {
		return fmt.Errorf("wal: %s: %w", at.name, err)
	}
	return l.syncDir()
}

// endOf finds where operation lsn ends in f: the offset behind the last whole
// group, and what is left of one that goes on behind lsn.
func (r *recovery) endOf(f *segFile, lsn uint64) (end int64, group []byte, err error) {
	gr := &groupReader{file: f.file, seed: r.seed, off: segHeaderSize, size: f.size}
	next, epoch := f.header.first, f.header.epoch
	for next <= lsn {
		off := gr.off
		h, body, ok, err := gr.next()
		if err != nil {
			return 0, nil, fmt.Errorf("wal: %s: %w", f.name, err)
		}
		if !ok || h.segment != f.number || h.first != next || h.epoch < epoch {
			d, ok := skip(r.extra, f.number, off, next)
			if !ok {
				return 0, nil, fmt.Errorf("wal: %s: the log ends at operation %d, in front of %d", f.name, next-1, lsn)
			}
			next, gr.off = d.To+1, d.Next
			continue
		}
		epoch = h.epoch
		if next = h.first + uint64(h.count); next > lsn+1 {
			return off, headOf(h, body, uint32(lsn+1-h.first), r.seed), nil
		}
	}
	return gr.off, nil, nil
}

// headOf is a group of the first n operations of another.
func headOf(h groupHeader, body []byte, n uint32, seed uint32) []byte {
	length := 0
	for range n {
		length += opHeaderSize + int(le.Uint32(body[length:]))
	}
	h.count, h.length = n, uint32(length)
	b := make([]byte, groupHeaderSize, groupHeaderSize+length)
	h.encode(b, seed)
	return append(b, body[:length]...)
}

// truncate replaces a segment's file by one that ends behind group, at end.
func (l *Log) truncate(f *segFile, end int64, group []byte) (err error) {
	to, err := l.opt.FS.Create(l.path(healName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var head [segHeaderSize]byte
	h := f.header
	h.size = uint64(end) + uint64(len(group))
	h.encode(head[:])
	_, err = to.Write(head[:])
	if err == nil {
		_, err = io.Copy(to, io.NewSectionReader(f.file, segHeaderSize, end-segHeaderSize))
	}
	if err == nil {
		_, err = to.Write(group)
	}
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return l.opt.FS.Rename(l.path(healName), f.name)
}
