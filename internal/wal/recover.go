package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Recovery tells what Open found.
type Recovery struct {
	First, Last uint64 // LSNs present; Last is First-1 if there are none
	Epoch       uint64 // of this opening
	Segments    int    // files with operations still to be taken over, the tail included
	Bytes       int64  // read

	// A torn tail was cut: what was being written when the process or the
	// machine stopped. TornBytes is 0 if its length is not known.
	Torn       bool
	TornFile   string
	TornOffset int64
	TornBytes  int64
}

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
	epoch  uint64 // of the last good group
	last   uint64
	used   bool // part of the log
}

// recovery reads a log directory. Open and Inspect share it.
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

// load opens all files of the directory and reads their headers.
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
	return r.followed()
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

// Open reads the log, calls replay for every operation behind after in LSN
// order, cuts a torn tail and starts the log. after is the last LSN that is
// already applied elsewhere; segments wholly at or below it are used again.
func Open(opt Options, after uint64, replay func(Op) error) (*Log, Recovery, error) {
	opt = opt.WithDefaults()
	if err := opt.FS.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, Recovery{}, fmt.Errorf("wal: %w", err)
	}
	r := &recovery{opt: opt, after: after}
	err := r.load()
	if err == nil {
		err = r.walk(replay)
	}
	if err != nil {
		r.close()
		return nil, r.result, err
	}
	r.result.Last = r.next - 1
	l, err := r.start()
	if err != nil {
		r.close()
		return nil, r.result, fmt.Errorf("wal: %w", err)
	}
	return l, r.result, nil
}

// start makes the recovered state durable and builds the log from it.
func (r *recovery) start() (*Log, error) {
	opt := r.opt
	if r.id == 0 {
		r.id = newID()
		r.seed = idSeed(r.id)
	}
	l := &Log{opt: opt, start: time.Now(), id: r.id, seed: r.seed, after: r.after, accepted: r.extra,
		arm: make(chan struct{}, 1), keep: make(chan struct{}, 1), stop: make(chan struct{})}
	l.window.Store(int64(opt.Window))
	l.mu.epoch = r.epoch + 1
	r.result.Epoch = l.mu.epoch
	if err := r.tidy(l); err != nil {
		return nil, err
	}
	for _, f := range r.files {
		if f.used {
			if err := f.file.SyncData(); err != nil {
				return nil, err
			}
		}
	}
	l.mu.nextLSN = max(r.next, r.after+1)
	durable := l.mu.nextLSN - 1
	if err := r.openTail(l, durable); err != nil {
		return nil, err
	}
	l.written.Store(durable)
	l.synced.Store(durable)
	if err := l.openMark(); err != nil {
		return nil, err
	}
	r.result.Segments = len(l.mu.segs)
	l.publishTable()
	l.checkSealedLocked()
	l.wg.Add(2)
	go l.runKeeper()
	go l.runFlusher()
	if opt.StallAfter > 0 && opt.Stalled != nil {
		l.unwatch, l.watched = make(chan struct{}), make(chan struct{})
		go l.runWatch()
	}
	l.kick()
	return l, nil
}

// tidy removes what is not part of the log, newest first so that a crash on
// the way leaves no hole, and keeps one file as the spare.
func (r *recovery) tidy(l *Log) error {
	spare := uint32(1)
	if r.tail != nil {
		spare = r.tail.number + 1
	}
	for _, f := range slices.Backward(r.files) {
		switch {
		case f.used:
		case !f.valid && f.number == spare && f.size == r.opt.SegmentBytes && !r.finished():
			l.mu.spare = &spareFile{number: f.number, size: f.size, file: f.file}
		default:
			f.file.Close()
			f.file = nil
			if err := r.opt.FS.Remove(f.name); err != nil {
				return err
			}
			if err := l.syncDir(); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{tempName, healName} {
		if err := r.opt.FS.Remove(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// openTail makes the log go on behind the last good group, or in a first segment.
func (r *recovery) openTail(l *Log, durable uint64) error {
	for _, f := range r.files {
		if !f.used {
			continue
		}
		s := &segment{number: f.number, first: f.header.first, last: f.last, live: f.header.first,
			limit: f.limit, size: max(int64(f.header.size), f.end)}
		s.refs.Store(1)
		s.file.Store(&handle{f.file})
		s.end.Store(f.end)
		s.closed = f != r.tail
		s.sealed = s.closed
		l.mu.segs = append(l.mu.segs, s)
		l.mu.seg = s
	}
	if l.mu.seg == nil || r.next <= r.after {
		return r.firstSegment(l)
	}
	at := l.mu.seg.end.Load()
	if r.result.Torn {
		// An empty group of the new epoch takes the place of the torn one, so
		// that what lies behind it can never be taken for its continuation.
		var b [groupHeaderSize]byte
		groupHeader{epoch: l.mu.epoch, first: r.next, durable: durable, segment: l.mu.seg.number}.encode(b[:], l.seed)
		f := l.mu.seg.file.Load()
		if err := put(f, l.mu.seg.number, at, b[:]); err != nil {
			return err
		}
		if err := f.SyncData(); err != nil {
			return err
		}
		at += groupHeaderSize
		l.mu.seg.end.Store(at)
	}
	if r.finished() {
		return r.firstSegment(l)
	}
	l.newChunk(l.mu.seg, at, groupHeaderSize, nil)
	return nil
}

// finished reports whether the log goes on in a new segment: everything in the
// newest one was sealed, and a sealed number is not used again.
func (r *recovery) finished() bool {
	return r.next <= r.after || r.tail != nil && r.tail.last >= r.tail.header.first && r.tail.last <= r.after
}

// firstSegment creates a segment whose header is durable before it has its name.
func (r *recovery) firstSegment(l *Log) error {
	number := max(1, r.opt.FirstSegment)
	if l.mu.seg != nil {
		l.mu.seg.closed, l.mu.seg.sealed = true, true
		number = max(number, l.mu.seg.number+1)
	}
	f, err := l.createZeroed(healName, r.opt.SegmentBytes)
	if err != nil {
		return err
	}
	s := &segment{number: number, first: l.mu.nextLSN, last: l.mu.nextLSN - 1, live: l.mu.nextLSN, size: r.opt.SegmentBytes}
	var b [segHeaderSize]byte
	segHeader{number: number, first: s.first, epoch: l.mu.epoch, durable: s.last, size: uint64(s.size), id: l.id}.encode(b[:])
	if err = put(f, number, 0, b[:]); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = r.opt.FS.Rename(l.path(healName), l.path(segName(number)))
	}
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.refs.Store(1)
	s.file.Store(&handle{f})
	s.end.Store(segHeaderSize)
	l.mu.segs = append(l.mu.segs, s)
	l.mu.seg = s
	l.newChunk(s, segHeaderSize, groupHeaderSize, nil)
	return nil
}

// openMark starts the mark file anew.
func (l *Log) openMark() error {
	f, err := l.opt.FS.OpenReadWrite(l.path(markName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	var b [markSize]byte
	l.marks.lsn = l.synced.Load()
	encodeMark(b[:], l.id, l.marks.lsn)
	if _, err = f.WriteAt(b[:], 0); err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.marks.file = f
	// The directory itself may be as new as what is in it.
	return l.syncPath(l.opt.FS.PathDir(l.opt.Dir))
}
