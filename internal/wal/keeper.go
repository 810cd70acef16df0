package wal

import (
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// flushTick is the longest time that an operation of class Memory stays in the
// process, and how often the mark file follows the log while it is busy.
const flushTick = 10 * time.Millisecond

// spareFile is a segment prepared for use: prewritten, synced, and already
// under the name of the segment that comes after the tail.
type spareFile struct {
	number uint32
	size   int64
	file   vfs.File
}

func (l *Log) path(name string) string { return l.opt.FS.PathJoin(l.opt.Dir, name) }

func (l *Log) syncDir() error { return l.syncPath(l.opt.Dir) }

func (l *Log) syncPath(dir string) error {
	d, err := l.opt.FS.OpenDir(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// takeSpare gives the writer the file of a new segment, waiting for the keeper
// if it is not ready.
func (l *Log) takeSpare(seg *segment, gen uint64) (*handle, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.gen.Load() == gen {
		if sp := l.mu.spare; sp != nil && sp.number == seg.number {
			// In one step: a keeper that saw neither a spare nor this segment's
			// file would prepare another one under the same name.
			h := &handle{sp.file}
			seg.file.Store(h)
			l.mu.spare = nil
			l.kick() // a segment that waited for this one to have a file may go
			return h, nil
		}
		if err := l.mu.spareErr; err != nil {
			l.mu.spareErr = nil
			return nil, err
		}
		l.mu.spareWanted = true
		wait := join(&l.mu.spareReady)
		l.mu.Unlock()
		l.kick()
		<-wait
		l.mu.Lock()
	}
	return nil, ErrStale
}

// kick makes the keeper look for work.
func (l *Log) kick() {
	select {
	case l.keep <- struct{}{}:
	default:
	}
}

// runKeeper prepares the next segment, recycles released ones and replaces
// failed ones.
func (l *Log) runKeeper() {
	defer l.wg.Done()
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-l.keep:
		case <-retry.C:
		case <-l.stop:
			l.decideAll() // not deferred: a panic must not wait for mu
			return
		}
		if l.heal() {
			l.recycle()
			l.dropSpare()
			l.prepare()
			l.mu.Lock()
			again := len(l.mu.retired) > 0 && !l.keptLocked() && l.activeLocked() != nil
			l.mu.Unlock()
			if again {
				retry.Reset(flushTick)
			}
		} else {
			retry.Reset(l.opt.RetryEvery)
		}
	}
}

// Provide makes the next segment's file now instead of when the tail is half
// full: by then a disk that fills up may have no room for it.
func (l *Log) Provide() {
	l.mu.Lock()
	want := l.mu.spare == nil && l.mu.broken == nil
	l.mu.spareEarly, l.mu.spareGone = want, false
	l.mu.Unlock()
	if want {
		l.kick()
	}
}

// GiveSpare gives up the next segment's file, if there is one, for something
// that frees more space. Until Provide is called the file is made again only
// when the log cannot go on without it. GiveSpare returns at once; the keeper
// does the work.
func (l *Log) GiveSpare() {
	l.mu.Lock()
	l.mu.spareGone = true
	l.mu.Unlock()
	l.kick()
}

// dropSpare does what GiveSpare asks for. Only the keeper gives a file the name
// of the next segment, so it alone may remove it.
func (l *Log) dropSpare() {
	l.mu.Lock()
	sp := l.mu.spare
	if !l.mu.spareGone || sp == nil {
		l.mu.Unlock()
		return
	}
	l.mu.spare = nil
	l.mu.Unlock()
	sp.file.Close()
	if err := l.opt.FS.Remove(l.path(segName(sp.number))); err != nil {
		l.opt.Logger.Warn("the prepared log segment could not be removed", slog.Any("error", err))
	}
}

// prepare makes the spare once the tail is half full, or earlier if it is asked to.
func (l *Log) prepare() {
	l.mu.Lock()
	wanted, early := l.mu.spareWanted, l.mu.spareEarly
	l.mu.spareEarly = false
	number := uint32(0)
	if active := l.activeLocked(); active == nil && wanted {
		number = l.mu.segs[0].number
	} else if active != nil && (wanted || early || active.end.Load() >= active.size/2 && !l.mu.spareGone) {
		number = active.number + 1
	}
	have := l.mu.spare != nil
	l.mu.Unlock()
	if number == 0 || have {
		return
	}
	sp, err := l.prepareFile(number)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.mu.spare = sp
		l.mu.spareGone = l.mu.spareGone && !l.mu.spareWanted // the writer is about to take it
	case l.mu.spareWanted:
		l.mu.spareErr = err
	default:
		l.opt.Logger.Warn("log segment could not be prepared", slog.Any("error", err))
	}
	if err == nil || l.mu.spareWanted {
		l.mu.spareWanted = false
		release(&l.mu.spareReady)
	}
}

// activeLocked returns the newest segment that has a file.
func (l *Log) activeLocked() *segment {
	for i := len(l.mu.segs) - 1; i >= 0; i-- {
		if l.mu.segs[i].file.Load() != nil {
			return l.mu.segs[i]
		}
	}
	return nil
}

// prepareFile makes a prewritten and synced file named number.
func (l *Log) prepareFile(number uint32) (*spareFile, error) {
	size := l.opt.SegmentBytes
	f, err := l.createZeroed(tempName, size)
	if err != nil {
		return nil, err
	}
	if err = l.opt.FS.Rename(l.path(tempName), l.path(segName(number))); err == nil {
		err = l.syncDir()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &spareFile{number: number, size: size, file: f}, nil
}

// createZeroed makes a file of size zeros and syncs it, so that later syncs
// need not change its blocks or its length.
func (l *Log) createZeroed(name string, size int64) (vfs.File, error) {
	path := l.path(name)
	f, err := l.opt.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if err = f.Close(); err != nil {
		return nil, err
	}
	if f, err = l.opt.FS.OpenReadWrite(path, vfs.WriteCategoryUnspecified); err != nil {
		return nil, err
	}
	// Reserving the blocks is only a help for the file system.
	_ = f.Preallocate(0, size)
	zeros := make([]byte, min(size, 1<<20))
	for off := int64(0); off < size && err == nil; off += int64(len(zeros)) {
		_, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		l.steps.Add(1) // a disk may be slow and still move
	}
	if err == nil {
		err = f.Sync()
		l.steps.Add(1)
	}
	if err != nil {
		f.Close()
		_ = l.opt.FS.Remove(path) // gives the space back; Open removes it too
		return nil, err
	}
	return f, nil
}

// recycle makes the spare from released segments, or deletes all but one, for the next spare.
func (l *Log) recycle() {
	for l.recycleOne() {
	}
}

// recycleOne deals with the segment released first and reports whether another
// one may follow. While no newer segment has a file, as after Rotate, the
// released one stays: a log must have one intact header at any time.
func (l *Log) recycleOne() bool {
	l.mu.Lock()
	if len(l.mu.retired) == 0 || l.keptLocked() || !l.anchorLocked() {
		l.mu.Unlock()
		return false
	}
	// Looked at only now: while the header was being synced the writer may have
	// taken the spare, and the newest file may have been released as well.
	active := l.activeLocked()
	if active == nil {
		l.mu.Unlock()
		return false
	}
	next := active.number + 1
	s := l.mu.retired[0]
	l.mu.retired = l.mu.retired[1:]
	h := s.file.Load()
	// While there is no spare, the number of the next one stands.
	reuse := l.mu.spare == nil && l.reusable(s)
	l.mu.Unlock()
	if h == nil {
		return true
	}
	from := l.path(segName(s.number))
	var err error
	if reuse {
		if err = l.opt.FS.Rename(from, l.path(segName(next))); err == nil {
			err = l.syncDir()
		}
		if err == nil {
			l.mu.Lock()
			l.mu.spare = &spareFile{number: next, size: s.size, file: h.File}
			l.mu.spareGone = l.mu.spareGone && !l.mu.spareWanted
			l.mu.spareWanted = false
			release(&l.mu.spareReady)
			l.mu.Unlock()
			return true
		}
	}
	h.Close()
	if err == nil {
		err = l.opt.FS.Remove(from)
	}
	if err != nil {
		l.opt.Logger.Warn("released log segment could not be removed", slog.String("file", from), slog.Any("error", err))
	}
	return true
}

func (l *Log) reusable(s *segment) bool { return !s.failed && s.size == l.opt.SegmentBytes }

// Keep says whether the disk has room for the file of one released segment besides the
// spare. It has until Keep says otherwise.
func (l *Log) Keep(room bool) {
	l.mu.Lock()
	changed := l.mu.keepNone == room
	l.mu.keepNone = !room
	l.mu.Unlock()
	if changed {
		l.kick()
	}
}

// keptLocked reports whether the one released segment stays until the spare is taken.
// Under load segments are released when the next spare is there already; without this
// each would be deleted and the spare after it written as zeros.
func (l *Log) keptLocked() bool {
	return l.mu.spare != nil && !l.mu.spareGone && !l.mu.keepNone && len(l.mu.retired) == 1 && l.reusable(l.mu.retired[0])
}

// anchorLocked makes sure that the newest file's header is on disk before an
// older file goes: a log must have one intact header at any time. It returns
// false if there is none yet or the log failed. mu is released meanwhile, so
// that file may be another one, or gone, when it returns.
func (l *Log) anchorLocked() bool {
	gen := l.gen.Load()
	s := l.activeLocked()
	if s == nil || l.mu.broken != nil {
		return false
	}
	if s.anchored || l.synced.Load() >= s.first {
		return true
	}
	h := s.file.Load()
	begun := s.end.Load() > 0 // a header written during the sync is not covered by it
	l.mu.Unlock()
	err := h.SyncData()
	l.mu.Lock()
	if l.gen.Load() != gen {
		return false
	}
	if err != nil {
		l.failLocked("sync", s, err)
		return false
	}
	s.anchored = begun
	return begun
}

// markFile is the open mark; nil after it failed.
type markFile struct {
	file  vfs.File
	lsn   uint64
	since time.Time // when lsn last changed
}

// writeMark notes what is durable. Only the flusher and Close call it.
func (l *Log) writeMark(sync bool) {
	m := &l.marks
	var err error
	if lsn := l.synced.Load(); lsn > m.lsn {
		m.lsn, m.since = lsn, time.Now()
		if m.file == nil {
			return
		}
		var b [markSize]byte
		encodeMark(b[:], l.id, lsn)
		_, err = m.file.WriteAt(b[:], 0)
	}
	if err == nil && sync && m.file != nil {
		err = m.file.SyncData()
	}
	if err != nil {
		l.opt.Logger.Warn("log mark could not be written", slog.Any("error", err))
		m.file.Close()
		m.file = nil
	}
}

// runFlusher bounds how long bytes stay unwritten and unsynced. It sleeps
// while the log is idle.
func (l *Log) runFlusher() {
	defer l.wg.Done()
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-l.arm:
		case <-l.stop:
			return
		}
		for busy := true; busy; {
			timer.Reset(flushTick)
			select {
			case <-timer.C:
			case <-l.stop:
				return
			}
			busy = l.flushTurn()
		}
	}
}

// flushTurn writes what is buffered, syncs what is due and returns false once
// nothing is left to do.
func (l *Log) flushTurn() bool {
	l.mu.Lock()
	if !l.mu.writing && (l.mu.group.chunk != nil || len(l.mu.pending) > 0) {
		l.mu.writing = true
		l.writeTurnsLocked(leaderTurns)
		l.mu.Lock()
	}
	due := l.written.Load() > l.synced.Load() && !l.mu.dirtySince.IsZero() &&
		time.Since(l.mu.dirtySince) >= l.opt.FlushEvery
	if due && !l.mu.syncing && l.mu.broken == nil {
		l.mu.syncing = true
		l.wg.Add(1)
		go l.syncLoop()
	}
	idle := l.mu.broken != nil || l.mu.nextLSN-1 == l.synced.Load() && !l.mu.writing && !l.mu.syncing &&
		l.marks.lsn == l.mu.nextLSN-1 && time.Since(l.marks.since) >= l.opt.FlushEvery
	if idle {
		l.mu.armed = false
	}
	l.mu.Unlock()
	l.writeMark(idle)
	return !idle
}

func newID() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return le.Uint64(b[:]) | 1
}
