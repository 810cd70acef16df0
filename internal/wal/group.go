package wal

import (
	"bytes"
	"io"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A groupReader reads groups of one file in order through a sliding window.
type groupReader struct {
	file vfs.File
	seed uint32
	off  int64 // of the next group
	size int64

	buf  []byte // window of the file that starts at base
	base int64
}

const readAhead = 1 << 20

// peek returns up to n bytes at r.off, fewer only at the end of the file.
func (r *groupReader) peek(n int) ([]byte, error) {
	skip := r.off - r.base
	if skip < 0 || skip > int64(len(r.buf)) {
		skip = int64(len(r.buf))
	}
	if have := r.buf[skip:]; len(have) >= n || r.base+int64(len(r.buf)) >= r.size {
		if r.base+skip == r.off {
			return have[:min(n, len(have))], nil
		}
	}
	want := int(min(max(int64(n), readAhead), r.size-r.off))
	if want <= 0 {
		return nil, nil
	}
	rest := 0
	if r.base+skip == r.off {
		rest = copy(r.buf, r.buf[skip:])
	}
	r.buf = slices.Grow(r.buf[:rest], want-rest)[:want]
	m, err := r.file.ReadAt(r.buf[rest:], r.off+int64(rest))
	if err != nil && err != io.EOF {
		return nil, err
	}
	r.buf, r.base = r.buf[:rest+m], r.off
	if len(r.buf) < want {
		r.size = r.base + int64(len(r.buf))
	}
	return r.buf[:min(n, len(r.buf))], nil
}

// next returns the group at r.off and steps behind it. ok is false, and the
// reader stays, if there is no intact group.
func (r *groupReader) next() (h groupHeader, body []byte, ok bool, err error) {
	b, err := r.peek(groupHeaderSize)
	if err != nil {
		return h, nil, false, err
	}
	h, ok = decodeGroupHeader(b, r.seed)
	n := int64(groupHeaderSize) + int64(h.length)
	if !ok || r.off+n > r.size || uint64(h.count)*opHeaderSize > uint64(h.length) {
		return h, nil, false, nil
	}
	if b, err = r.peek(int(n)); err != nil || int64(len(b)) < n {
		return h, nil, false, err
	}
	body = b[groupHeaderSize:]
	if !checkGroup(h, body) {
		return h, nil, false, nil
	}
	r.off += n
	return h, body, true, nil
}

// search calls fn with every intact group header behind r.off until fn returns
// false. whole says that the group's operations are intact too.
func (r *groupReader) search(fn func(off int64, h groupHeader, whole func() bool) bool) error {
	for {
		b, err := r.peek(readAhead)
		if err != nil {
			return err
		}
		if len(b) < groupHeaderSize {
			return nil
		}
		i := bytes.Index(b, groupMagic[:])
		if i < 0 {
			r.off += int64(len(b) - len(groupMagic) + 1)
			continue
		}
		r.off += int64(i)
		at := r.off
		if b, err = r.peek(groupHeaderSize); err != nil {
			return err
		}
		if h, ok := decodeGroupHeader(b, r.seed); ok {
			whole := func() bool {
				g := groupReader{file: r.file, seed: r.seed, off: at, size: r.size}
				_, _, ok, _ := g.next()
				return ok
			}
			if !fn(at, h, whole) {
				return nil
			}
		}
		r.off = at + 1
	}
}
