package wal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A segFile is a numbered file found at Open.
type segFile struct {
	number uint32
	name   string // with its directory
	file   vfs.File
	size   int64
	header segHeader
	valid  bool   // header is intact and names this number
	limit  uint64 // LSNs from here on are void: a later segment holds them
	end    int64  // behind the last good group
	copied int64  // behind the last group that ends at Options.ShippedTo or before it
	epoch  uint64 // of the last good group
	last   uint64
	used   bool // part of the log
}

// recovery reads a log directory. Open, Look and Inspect share it.
type recovery struct {
	opt     Options
	after   uint64
	files   []*segFile
	id      uint64
	seed    uint32
	durable uint64 // the mark file's evidence
	epoch   uint64 // highest seen
	tail    *segFile
	next    uint64 // LSN expected next
	result  Recovery
	read    int64
	total   int64
	extra   []Damage // accepted as lost
	badFile *segFile // where cut refused
	look    bool     // files are opened for reading alone
}

func (r *recovery) close() {
	for _, f := range r.files {
		if f.file != nil {
			f.file.Close()
		}
	}
}

// readLog loads the directory and walks through its log. Whatever it returns, the files
// are open.
func (r *recovery) readLog(replay func(Op) error) error {
	if err := r.load(); err != nil {
		return err
	}
	if err := r.walk(replay); err != nil {
		return err
	}
	r.result.Last = r.next - 1
	return nil
}

// load opens all files of the directory and reads their headers. An absent directory
// has none.
func (r *recovery) load() error {
	names, err := r.opt.FS.List(r.opt.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	slices.Sort(names)
	var markID uint64
	for _, name := range names {
		path := r.opt.FS.PathJoin(r.opt.Dir, name)
		if name == markName {
			if markID, r.durable, err = readMark(r.opt.FS, path); err != nil {
				return err
			}
			continue
		}
		if name == skipName {
			skips, err := readSkips(r.opt.FS, path)
			if err != nil {
				return err
			}
			r.extra = append(r.extra, skips...)
		}
		number, ok := parseSegName(name)
		if !ok {
			continue
		}
		f := &segFile{number: number, name: path, end: segHeaderSize}
		r.files = append(r.files, f)
		if err := f.open(r.opt.FS, r.look); err != nil {
			return err
		}
	}
	for _, f := range r.files {
		if !f.valid {
			continue
		}
		if r.id == 0 {
			r.id = f.header.id
		}
		if f.header.id != r.id {
			return &CorruptError{File: f.name, LSN: f.header.first, Reason: "it belongs to another log"}
		}
		r.epoch = max(r.epoch, f.header.epoch)
	}
	if markID != r.id && r.id != 0 {
		r.durable = 0
	}
	r.seed = idSeed(r.id)
	return nil
}

func (f *segFile) open(fsys vfs.FS, look bool) error {
	var err error
	if look {
		f.file, err = fsys.Open(f.name)
	} else {
		f.file, err = fsys.OpenReadWrite(f.name, vfs.WriteCategoryUnspecified)
	}
	if err != nil {
		return err
	}
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.size = info.Size()
	var b [segHeaderSize]byte
	n, err := f.file.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return fmt.Errorf("wal: %s: %w", f.name, err)
	}
	if f.header, f.valid, err = decodeSegHeader(b[:n]); err != nil {
		return fmt.Errorf("wal: %s: %w", f.name, err)
	}
	f.valid = f.valid && f.header.number == f.number
	if f.size < segHeaderSize || f.valid && f.size < int64(f.header.size) {
		return &CorruptError{File: f.name, Offset: f.size, LSN: f.header.first, Reason: "the file was truncated"}
	}
	return nil
}

func readMark(fsys vfs.FS, path string) (id, durable uint64, err error) {
	f, err := fsys.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var b [markSize]byte
	n, err := f.ReadAt(b[:], 0)
	if err != nil && err != io.EOF {
		return 0, 0, fmt.Errorf("wal: %s: %w", path, err)
	}
	id, durable, _ = decodeMark(b[:n])
	return id, durable, nil
}

// walk reads the segments in order, calls replay for operations behind after,
// and finds the tail.
func (r *recovery) walk(replay func(Op) error) error {
	chain := r.chain()
	if len(chain) == 0 {
		return r.nothing()
	}
	r.next = chain[0].header.first
	if r.next > r.after+1 {
		return r.missing(chain[0])
	}
	r.result.First = max(r.next, r.after+1)
	for _, f := range chain {
		r.total += f.size
	}
	for i, f := range chain {
		if f.header.first > r.next {
			// The segment between is missing or its header is damaged.
			return r.cut(chain[i-1], chain[i:], nil)
		}
		r.tail = f
		f.used = true
		done, gr, err := r.readSegment(f, replay)
		if err != nil {
			return err
		}
		if !done {
			if err := r.cut(f, chain[i+1:], gr); err != nil {
				return err
			}
			break
		}
	}
	if r.next <= r.after {
		return r.short()
	}
	return r.followed()
}

// short refuses a log that ends in front of what is applied elsewhere: it is an older one,
// or another one, and would give the same LSNs out again.
func (r *recovery) short() error {
	r.badFile = nil // what has been logged since is not known, so it cannot be marked
	return &CorruptError{File: r.tail.name, Offset: r.tail.end, LSN: r.next, Ends: true,
		Reason: fmt.Sprintf("operations up to LSN %d were taken over from this log", r.after)}
}

// followed refuses a log that ends although a file behind its last segment is
// there: the numbers of the files have no holes at that end, so the one between
// was removed.
func (r *recovery) followed() error {
	if r.tail == nil || len(r.files) == 0 {
		return nil
	}
	next := r.tail.number + 1
	if r.files[len(r.files)-1].number <= next || slices.ContainsFunc(r.files, func(f *segFile) bool { return f.number == next }) {
		return nil
	}
	r.badFile = nil // what was in it is not known, so it cannot be marked
	return &CorruptError{File: r.opt.FS.PathJoin(r.opt.Dir, segName(next)), LSN: r.next, Reason: "the file is missing and a later one is there"}
}

// chain selects the segments that may hold operations behind after, and sets
// what is void in them.
func (r *recovery) chain() []*segFile {
	var chain []*segFile
	limit := uint64(0)
	for _, f := range slices.Backward(r.files) {
		if !f.valid {
			continue
		}
		f.limit = limit
		if limit == 0 || f.header.first < limit {
			if limit == 0 || limit > r.after+1 {
				chain = append(chain, f)
			}
			limit = f.header.first
		}
	}
	slices.Reverse(chain)
	return chain
}

// nothing handles a directory without a valid segment.
func (r *recovery) nothing() error {
	switch {
	case len(r.files) > 0:
		return &CorruptError{File: r.files[0].name, LSN: r.after + 1, Reason: "no segment has an intact header"}
	case r.durable > r.after:
		return &CorruptError{File: r.opt.FS.PathJoin(r.opt.Dir, markName), LSN: r.after + 1,
			Reason: fmt.Sprintf("LSN %d was durable but all segments are missing", r.durable)}
	}
	r.next = r.after + 1
	r.result.First = r.next
	return nil
}

func (r *recovery) missing(first *segFile) error {
	e := &CorruptError{File: first.name, LSN: r.after + 1,
		Reason: fmt.Sprintf("the log begins at LSN %d, the segment before is missing", first.header.first)}
	for _, f := range r.files {
		if !f.valid && f.number < first.number {
			e.File, e.Reason = f.name, "its header is damaged"
		}
	}
	return e
}

// readSegment replays one segment. done is true once all that the segment can
// hold was read: up to its limit.
func (r *recovery) readSegment(f *segFile, replay func(Op) error) (done bool, gr *groupReader, err error) {
	gr = &groupReader{file: f.file, seed: r.seed, off: segHeaderSize, size: f.size}
	f.epoch = f.header.epoch
	defer func() {
		f.last = r.next - 1
		r.read += f.size
	}()
	for f.limit == 0 || r.next < f.limit {
		off := gr.off
		h, body, ok, err := gr.next()
		if err != nil {
			return false, gr, fmt.Errorf("wal: %s: %w", f.name, err)
		}
		end := h.first + uint64(h.count)
		if !ok || h.segment != f.number || h.first != r.next || h.epoch < f.epoch || f.limit != 0 && end > f.limit {
			gr.off = off
			if d, ok := skip(r.extra, f.number, off, r.next); ok {
				if r.opt.Gap != nil && d.To >= d.From && d.To > r.after {
					r.opt.Gap(d.From, d.To, r.lostBytes(f, &d))
				}
				r.next, gr.off, f.end = d.To+1, d.Next, d.Next
				continue
			}
			return false, gr, nil
		}
		f.epoch = h.epoch
		r.epoch = max(r.epoch, h.epoch)
		err = eachOp(h, off, body, func(op Op, void bool) error {
			if void || op.LSN <= r.after {
				return nil
			}
			return replay(op)
		})
		if err != nil {
			return false, gr, err
		}
		r.next = end
		f.end = gr.off
		if h.count > 0 && end-1 <= r.opt.ShippedTo { // an empty one may be newer
			f.copied = gr.off
		}
		r.result.Bytes += gr.off - off
		if r.opt.Progress != nil {
			r.opt.Progress(r.read+gr.off, r.total)
		}
	}
	return true, gr, nil
}

// lostBytes bounds the bytes of accepted damage that begins in f: up to where f
// can be read again, or the rest of f and all files up to the next one in use.
func (r *recovery) lostBytes(f *segFile, d *Damage) int64 {
	if d.Next > d.Offset {
		return d.Next - d.Offset
	}
	next := f.number + 1
	for _, s := range r.files {
		if s.valid && s.number > f.number {
			next = s.number
			break
		}
	}
	return f.size - d.Offset + int64(next-f.number-1)*max(f.size, r.opt.SegmentBytes)
}

// cut decides whether the log may end in f behind f.end: only if nothing says
// that LSN r.next was durable, or, if the machine has not restarted, written.
func (r *recovery) cut(f *segFile, later []*segFile, gr *groupReader) error {
	bad := &CorruptError{File: f.name, Offset: f.end, LSN: r.next}
	r.badFile = f
	if r.durable >= r.next {
		bad.Reason = fmt.Sprintf("LSN %d was durable", r.durable)
		return bad
	}
	// What an earlier life left behind the place where a later one went on is
	// no evidence: that place was found torn.
	epoch := f.epoch
	search := append([]*segFile{f}, later...)
	for i, s := range search {
		if i > 0 && (s.header.durable >= r.next || r.opt.SameBoot) {
			bad.Reason = "segment " + s.name + " follows"
			return bad
		}
		g := groupReader{file: s.file, seed: r.seed, off: segHeaderSize, size: s.size}
		if i == 0 {
			g.off = f.end
		}
		err := g.search(func(off int64, h groupHeader, whole func() bool) bool {
			if h.segment != s.number || h.epoch < epoch || h.first < r.next {
				return true
			}
			r.epoch = max(r.epoch, h.epoch)
			if i == 0 && off == f.end {
				r.result.Torn, r.result.TornBytes = true, int64(groupHeaderSize)+int64(h.length)
				return true
			}
			r.result.Torn = true
			if h.durable >= r.next || r.opt.SameBoot && whole() {
				bad.Reason = fmt.Sprintf("a later group at offset %d of %s is intact", off, s.name)
				return false
			}
			return true
		})
		if err != nil {
			return fmt.Errorf("wal: %s: %w", s.name, err)
		}
		if bad.Reason != "" {
			return bad
		}
	}
	if r.result.Torn = r.result.Torn || len(later) > 0; r.result.Torn {
		r.result.TornFile, r.result.TornOffset = f.name, f.end
	}
	return nil
}
