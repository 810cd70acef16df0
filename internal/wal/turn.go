package wal

import (
	"fmt"
	"runtime"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// leaderTurns is how many writes a caller does before it hands the work to a
// goroutine of the log: one for itself and one for those that came meanwhile.
const leaderTurns = 2

// Wait blocks until class holds for the operation that Append, called with
// gen, numbered lsn. After a failure of the log it returns a *WriteError,
// unless class held before. class must not be above the class given to Append:
// an operation that was appended with a lower class survives a failure of the
// log and moves to a new file, but its Wait for a higher class fails.
func (l *Log) Wait(lsn, gen uint64, class Class) error {
	defer dieOfPanic()
	class = l.need(class)
	err := l.waitLocal(lsn, gen, min(class, Synced))
	if err != nil || class < Shipped {
		return err
	}
	return l.waitShipped(lsn)
}

// waitLocal is Wait for what this log does alone.
func (l *Log) waitLocal(lsn, gen uint64, class Class) error {
	for class != Memory {
		if l.reached(lsn) >= class && l.gen.Load() == gen {
			return nil
		}
		l.mu.Lock()
		if l.gen.Load() != gen {
			l.mu.Unlock()
			return l.verdict(lsn, gen, class)
		}
		if l.mu.done && l.reached(lsn) < class {
			l.mu.Unlock()
			return ErrClosed
		}
		var wait chan struct{}
		if class == Written {
			wait = l.joinWriteLocked(lsn)
		} else {
			wait = l.joinSyncLocked(lsn)
		}
		if wait != nil {
			l.callers.Add(1)
			<-wait
			l.callers.Add(-1)
		}
	}
	return nil
}

func join(ch *chan struct{}) chan struct{} {
	if *ch == nil {
		*ch = make(chan struct{})
	}
	return *ch
}

func release(ch *chan struct{}) {
	if *ch != nil {
		close(*ch)
		*ch = nil
	}
}

// joinWriteLocked either does a turn as the writer and returns nil, or returns
// what will be closed when the turn that covers lsn is over. It unlocks mu.
func (l *Log) joinWriteLocked(lsn uint64) chan struct{} {
	if lsn <= l.written.Load() {
		l.mu.Unlock()
		return nil
	}
	if !l.mu.writing {
		// Let goroutines that are about to append join this write.
		l.mu.writing = true
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
		l.writeTurnsLocked(leaderTurns)
		return nil
	}
	ch := &l.mu.writeNext
	if lsn <= l.mu.writeTarget {
		ch = &l.mu.writeNow
	}
	wait := join(ch)
	l.mu.Unlock()
	return wait
}

// writeTurnsLocked writes what is pending, at most turns times; then a
// goroutine goes on if more has come. The caller has set mu.writing and holds
// mu, which is released.
func (l *Log) writeTurnsLocked(turns int) {
	for l.mu.group.chunk != nil || len(l.mu.pending) > 0 {
		if turns == 0 {
			l.wg.Add(1)
			l.mu.Unlock()
			go l.writeLoop()
			return
		}
		turns--
		l.writeTurnLocked()
	}
	l.mu.writing = false
	l.mu.Unlock()
}

func (l *Log) writeLoop() {
	defer l.wg.Done()
	l.mu.Lock()
	l.writeTurnsLocked(-1)
}

// writeTurnLocked does one write for everything appended so far and wakes those
// who wait for it. mu is released during the write and held again after.
func (l *Log) writeTurnLocked() {
	gen := l.gen.Load()
	l.closeGroup()
	batch := l.mu.pending
	l.mu.pending = l.scratch[:0]
	l.scratch = batch
	target := batch[len(batch)-1].last()
	l.mu.writeTarget = target
	l.mu.writeNow, l.mu.writeNext = l.mu.writeNext, nil
	l.mu.Unlock()

	slots, bytes := 0, int64(0)
	var err error
	var seg *segment
	l.writing.begin(l.start)
	for i := range batch {
		slots += batch[i].slots
		bytes += batch[i].bytes()
		if err == nil {
			seg = batch[i].chunk.seg
			err = l.writeGroup(&batch[i], gen)
		}
	}
	l.writing.end(l.start)
	l.m.batches.Add(int64(len(batch)))
	l.m.bytes.Add(bytes)

	l.mu.Lock()
	if l.gen.Load() == gen {
		if err == nil {
			l.written.Store(target)
			l.touchDirtyLocked()
			release(&l.mu.writeNow)
			l.wantSyncLocked()
		} else {
			l.failLocked("write", seg, err)
		}
	}
	clear(batch)
	if slots > 0 {
		l.noteFillLocked()
		l.freeSlots(slots)
		l.mu.fill.last = l.fillNow() // it falls at once
	}
}

// put writes b into the file of a segment. Nothing else writes one: groups, the
// empty group over a torn tail, the header of a first segment and the image that
// takes the place of a failed file all come through here. Only createZeroed,
// which makes the file, writes it before, with zeros.
func put(f vfs.File, segment uint32, off int64, b []byte) error {
	if _, err := f.WriteAt(b, off); err != nil {
		return fmt.Errorf("%s at %d: %w", segName(segment), off, err)
	}
	return nil
}

// writeGroup writes one group, first opening the next segment if it begins one.
func (l *Log) writeGroup(g *group, gen uint64) error {
	c := g.chunk
	h := c.seg.file.Load()
	if h == nil {
		var err error
		if h, err = l.takeSpare(c.seg, gen); err != nil {
			return err
		}
		l.m.rotations.Add(1)
	}
	c.pins.Add(1) // a hung write to a failed file still reads from it
	defer c.pins.Add(-1)
	off := c.base + int64(g.start)
	if err := put(h, c.seg.number, off, c.buf[g.start:g.end:g.end]); err != nil {
		return err
	}
	end := c.base + int64(g.end)
	c.seg.end.Store(end)
	if half := c.seg.size / 2; off < half && end >= half {
		l.kick()
	}
	return nil
}
