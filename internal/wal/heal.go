package wal

import (
	"errors"
	"hash/crc32"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// maxFailures is how many failures Wait can still give a verdict about.
const maxFailures = 64

// A failure is the end of one generation of the log: a write or a sync failed.
type failure struct {
	gen             uint64
	err             *WriteError
	written, synced uint64 // what held when it failed
	next            uint64 // first LSN of the next generation
	groups          []group
	decided         chan struct{} // closed after the first attempt to replace the file
	told            bool
}

// kept says whether an operation survives: it was acknowledged as its class
// says, so it moves to the new file.
func (f *failure) kept(class Class, lsn uint64) bool {
	return class == Memory || class == Written && lsn <= f.written
}

// A movedRange says where a group of a failed segment was copied to.
type movedRange struct {
	from, to int64 // of the group in the failed segment
	delta    int64
	dst      *segment
}

// failLocked ends the generation: everything not acknowledged fails, the files
// with unsynced bytes are dead, and the keeper builds a new one.
func (l *Log) failLocked(op string, seg *segment, err error) {
	if l.mu.broken != nil {
		return
	}
	l.closeGroup()
	f := &failure{
		gen: l.gen.Load(), err: newWriteError(op, err), decided: make(chan struct{}),
		written: l.written.Load(), synced: l.synced.Load(), groups: l.mu.unsynced,
	}
	f.next = f.synced + 1
	for _, g := range f.groups {
		b := g.body()
		for lsn := g.first; lsn <= g.last(); lsn++ {
			if f.kept(Class(b[7]&flagClass), lsn) {
				f.next = lsn + 1
			}
			b = b[opHeaderSize+int(le.Uint32(b)):]
		}
	}
	l.gen.Add(1)
	l.mu.broken = f
	l.mu.cause = f.err
	told := *f
	told.groups = nil
	l.mu.failures = append(l.mu.failures, told)
	if len(l.mu.failures) > maxFailures {
		l.mu.failures = l.mu.failures[1:]
	}
	l.mu.nextLSN = f.next
	l.written.Store(min(f.written, f.next-1))
	for _, s := range l.mu.segs {
		if !s.sealed {
			s.kept = l.syncedEndLocked(s)
			s.closed = true
			s.failed = true
		}
	}
	slots := 0
	for _, g := range l.mu.pending {
		slots += g.slots
	}
	clear(l.mu.pending)
	l.mu.pending = l.mu.pending[:0]
	l.mu.unsynced = nil
	l.mu.writeTarget, l.mu.syncTarget, l.mu.syncWaiters = 0, 0, 0
	for _, ch := range []*chan struct{}{&l.mu.writeNow, &l.mu.writeNext, &l.mu.syncNow, &l.mu.syncNext, &l.mu.gather, &l.mu.spareReady} {
		release(ch)
	}
	l.mu.spareWanted, l.mu.spareErr = false, nil
	l.block(blockHealing)
	l.freeSlots(slots)
	l.m.failures.Add(1)
	l.opt.Logger.Error("log failed, going on in a new file", slog.String("op", op),
		slog.Uint64("segment", uint64(seg.number)), slog.Any("error", err))
	l.kick()
}

func (g *group) body() []byte { return g.chunk.buf[g.header+groupHeaderSize : g.end] }

// verdict returns what became of an operation of an earlier generation. It
// reports a failure only after the first attempt to replace the file: if that
// was done, what failed cannot come back after a restart. If not, the error is Open.
func (l *Log) verdict(lsn, gen uint64, class Class) error {
	l.mu.Lock()
	var f *failure
	for i := range l.mu.failures {
		if l.mu.failures[i].gen == gen {
			f = &l.mu.failures[i]
		}
	}
	if f == nil {
		l.mu.Unlock()
		return ErrStale
	}
	v := *f
	l.mu.Unlock()
	if class == Written && lsn <= v.written || class >= Synced && lsn <= v.synced {
		return nil
	}
	l.callers.Add(1)
	<-v.decided
	l.callers.Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.mu.broken; f != nil && f.gen == gen {
		open := *v.err
		open.Open = true
		return &open
	}
	return v.err
}

// heal replaces the failed files. It returns false if it has to be tried again.
func (l *Log) heal() bool {
	l.mu.Lock()
	f := l.mu.broken
	if f == nil {
		l.mu.Unlock()
		return true
	}
	epoch := l.mu.epoch + 1
	number := l.mu.seg.number + 1
	spare := l.mu.spare
	l.mu.spare = nil
	l.mu.Unlock()

	image, moved := l.healImage(f, number, epoch)
	file, err := l.healFile(spare, number, image)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.decideLocked(f)
	if err != nil {
		l.mu.cause = newWriteError("write", err)
		l.block(blockReadOnly)
		l.unblock(blockHealing)
		l.wakeAll()
		if !f.told {
			l.opt.Logger.Error("log is read-only until a file can be written", slog.Any("error", err))
		}
		return false
	}
	l.installLocked(f, file, number, epoch, int64(len(image)), moved)
	return true
}

func (l *Log) decideLocked(f *failure) {
	if !f.told {
		f.told = true
		close(f.decided)
	}
}

func (l *Log) decideAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.broken != nil {
		l.decideLocked(l.mu.broken)
	}
}

type move struct {
	seg *segment
	movedRange
	last uint64 // last kept LSN of the group
}

// healImage builds the new segment: its header and the groups that were not
// synced, with the operations that failed made void and cut at the end. Groups
// keep their layout, so that places stay valid by an offset.
func (l *Log) healImage(f *failure, number uint32, epoch uint64) ([]byte, []move) {
	size := segHeaderSize
	for i := range f.groups {
		size += len(f.groups[i].body()) + groupHeaderSize
	}
	image := make([]byte, segHeaderSize, size)
	segHeader{
		number: number, first: f.synced + 1, epoch: epoch, durable: f.synced,
		size: uint64(l.opt.SegmentBytes), id: l.id,
	}.encode(image)
	var moves []move
	for i := range f.groups {
		g := &f.groups[i]
		if g.count == 0 || g.first >= f.next {
			continue
		}
		at := len(image)
		image = append(image, make([]byte, groupHeaderSize)...)
		image = append(image, g.body()...)
		b := image[at+groupHeaderSize:]
		m := move{seg: g.chunk.seg}
		m.from = g.chunk.base + int64(g.header)
		m.delta = int64(at) - m.from
		count, used := uint32(0), 0
		for lsn := g.first; lsn < f.next && count < g.count; lsn++ {
			used += rewriteOp(b[used:], f, lsn, epoch, &m)
			count++
		}
		image = image[:at+groupHeaderSize+used]
		m.to = m.from + int64(groupHeaderSize+used)
		groupHeader{
			epoch: epoch, first: g.first, durable: f.synced, segment: number, count: count, length: uint32(used),
		}.encode(image[at:], l.seed)
		moves = append(moves, m)
	}
	return image, moves
}

// rewriteOp gives an operation the salt of its new epoch, or makes it void,
// and returns its length.
func rewriteOp(b []byte, f *failure, lsn, epoch uint64, m *move) int {
	n, hf := int(le.Uint32(b)), le.Uint32(b[4:])
	head, flags := int(hf&maxHead), byte(hf>>24)
	payload := b[opHeaderSize : opHeaderSize+n]
	if flags&flagVoid == 0 && f.kept(Class(flags&flagClass), lsn) {
		m.last = lsn
	} else {
		clear(payload)
		head, flags = 0, flags|flagVoid
	}
	sum := crc32.Update(crc32.Checksum(payload[head:], castagnoli), castagnoli, payload[:head])
	putOpHeader(b, head, n-head, flags, salt(lsn, epoch), sum)
	return opHeaderSize + n
}

// healFile writes image to a new file and syncs it under the name of segment
// number. The file appears there complete or not at all.
func (l *Log) healFile(spare *spareFile, number uint32, image []byte) (vfs.File, error) {
	var file vfs.File
	var err error
	path := l.path(healName)
	if spare != nil && spare.size == l.opt.SegmentBytes {
		if err = l.opt.FS.Rename(l.path(segName(spare.number)), path); err == nil {
			file = spare.file
		} else {
			spare.file.Close()
		}
	}
	if file == nil {
		if file, err = l.createZeroed(healName, l.opt.SegmentBytes); err != nil {
			return nil, err
		}
	}
	if err = put(file, number, 0, image); err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = l.opt.FS.Rename(path, l.path(segName(number)))
	}
	if err == nil {
		err = l.syncDir()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// installLocked makes the new file the tail and seals the failed segments.
func (l *Log) installLocked(f *failure, file vfs.File, number uint32, epoch uint64, end int64, moves []move) {
	seg := &segment{number: number, first: f.synced + 1, last: f.next - 1, live: f.next, size: l.opt.SegmentBytes}
	seg.refs.Store(1)
	seg.file.Store(&handle{file})
	seg.end.Store(end)
	keep := l.mu.segs[:0:0]
	for _, s := range l.mu.segs {
		if s.sealed {
			keep = append(keep, s)
			continue
		}
		if l.supersedeLocked(s, f, seg, moves) {
			keep = append(keep, s)
		}
	}
	l.mu.segs = append(keep, seg)
	if l.tail != nil {
		l.tail.follow(seg)
	}
	l.publishTable()
	l.mu.epoch = epoch
	l.mu.seg = seg
	l.newChunk(seg, end, groupHeaderSize, nil)
	l.mu.unsynced, l.mu.dirty = nil, 0
	l.mu.dirtySince = time.Time{}
	l.written.Store(f.next - 1)
	l.synced.Store(f.next - 1)
	l.mu.broken, l.mu.cause = nil, nil
	l.unblock(blockReadOnly | blockHealing | blockUnsynced)
	l.checkSealedLocked()
	l.opt.Logger.Info("log goes on", slog.Uint64("segment", uint64(number)), slog.Uint64("lsn", f.next))
	if l.opt.Sealed != nil {
		l.opt.Sealed()
	}
	if l.opt.ShipSync {
		l.Hurry()
	}
}

// supersedeLocked seals a failed segment with the operations that were
// acknowledged: the synced ones in its own file, the rest in the new one. It
// returns false if there are none.
func (l *Log) supersedeLocked(s *segment, f *failure, dst *segment, moves []move) bool {
	last := min(s.last, f.synced)
	var ranges []movedRange
	for _, m := range moves {
		if m.seg == s {
			m.dst = dst
			ranges = append(ranges, m.movedRange)
			last = max(last, m.last)
		}
	}
	s.sealed = true
	s.limit = f.synced + 1
	s.last = max(last, s.first-1)
	if s.last < s.first {
		s.released = true
		l.dropRefLocked(s)
		return false
	}
	if len(ranges) > 0 {
		dst.refs.Add(1)
		s.moved.Store(&ranges)
	}
	return true
}
