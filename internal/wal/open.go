package wal

import (
	"errors"
	"fmt"
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

// Open reads the log, calls replay for every operation behind after in LSN
// order, cuts a torn tail and starts the log. after is the last LSN that is
// already applied elsewhere; segments wholly at or below it are used again.
func Open(opt Options, after uint64, replay func(Op) error) (*Log, Recovery, error) {
	opt = opt.WithDefaults()
	if err := opt.FS.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, Recovery{}, fmt.Errorf("wal: %w", err)
	}
	r := &recovery{opt: opt, after: after}
	if err := r.readLog(replay); err != nil {
		r.close()
		return nil, r.result, err
	}
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
		arm: make(chan struct{}, 1), keep: make(chan struct{}, 1), hurry: make(chan struct{}, 1), stop: make(chan struct{})}
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
	l.mu.nextLSN = r.next
	durable := l.mu.nextLSN - 1
	if err := r.openTail(l, durable); err != nil {
		return nil, err
	}
	l.written.Store(durable)
	l.synced.Store(durable)
	if opt.Ship {
		l.tailFrom(opt.ShippedTo, r.files)
	}
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
	if l.mu.seg == nil {
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
	return r.tail != nil && r.tail.last >= r.tail.header.first && r.tail.last <= r.after
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
