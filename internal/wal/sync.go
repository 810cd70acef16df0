package wal

import "time"

// wantSyncLocked starts a sync when too much is unsynced or a full segment
// waits to be sealed.
func (l *Log) wantSyncLocked() {
	if l.mu.syncing || l.mu.broken != nil {
		return
	}
	if l.needSyncLocked() {
		l.mu.syncing = true
		l.wg.Add(1)
		go l.syncLoop()
	}
}

func (l *Log) needSyncLocked() bool {
	if l.mu.dirty >= l.opt.FlushBytes/2 {
		return true
	}
	for _, s := range l.mu.segs {
		if s.closed && !s.sealed && s.last <= l.written.Load() {
			return true
		}
	}
	return false
}

// joinSyncLocked either does a round as the syncer and returns nil, or returns
// what will be closed when the round that covers lsn is over. It unlocks mu.
func (l *Log) joinSyncLocked(lsn uint64) chan struct{} {
	if lsn <= l.synced.Load() {
		l.mu.Unlock()
		return nil
	}
	if l.mu.syncing && lsn <= l.mu.syncTarget {
		wait := join(&l.mu.syncNow)
		l.mu.Unlock()
		return wait
	}
	l.mu.syncWaiters++
	if l.mu.syncing {
		if l.mu.gather != nil && l.mu.syncWaiters >= l.mu.gatherGoal {
			release(&l.mu.gather)
		}
		wait := join(&l.mu.syncNext)
		l.mu.Unlock()
		return wait
	}
	l.mu.syncing = true
	l.syncRoundLocked()
	l.endSyncLocked()
	return nil
}

// endSyncLocked gives up the syncer's place, or to a goroutine of the log if
// more wait. It unlocks mu.
func (l *Log) endSyncLocked() {
	if l.mu.syncWaiters > 0 || l.needSyncLocked() && l.mu.broken == nil {
		l.wg.Add(1)
		go l.syncLoop()
	} else {
		l.mu.syncing = false
	}
	l.mu.Unlock()
}

func (l *Log) syncLoop() {
	defer l.wg.Done()
	l.mu.Lock()
	for {
		l.syncRoundLocked()
		if l.mu.broken != nil || l.mu.syncWaiters == 0 && !l.needSyncLocked() {
			l.mu.syncing = false
			l.mu.Unlock()
			return
		}
	}
}

// syncRoundLocked gathers company, writes what is buffered, syncs once and
// wakes every waiter that this covers. The caller has set mu.syncing and holds
// mu, which is released meanwhile and held again after.
func (l *Log) syncRoundLocked() {
	l.gatherLocked()
	// gen and target are taken behind the gathering, which lets go of mu: who came
	// meanwhile is covered, and a failure meanwhile is not mistaken for this
	// round's. syncNext becomes syncNow under the same hold of mu as target is set,
	// so a waiter is on syncNow exactly if target covers it; later ones wait for the
	// next round. If gen has changed by the end, the failure has woken this round's
	// waiters, and syncNow is not theirs any more.
	gen := l.gen.Load()
	target := l.mu.nextLSN - 1
	released := l.mu.syncWaiters
	l.mu.syncTarget = target
	l.mu.syncWaiters = 0
	l.mu.syncNow, l.mu.syncNext = l.mu.syncNext, nil
	if l.mu.broken == nil && l.writeUpToLocked(target, gen) {
		l.syncFilesLocked(gen)
	}
	if l.gen.Load() == gen {
		release(&l.mu.syncNow)
		l.mu.lastReleased = released
	}
	l.mu.syncTarget = 0
}

// gatherLocked waits until as many callers want a sync as the last round woke,
// or the window is over. Alone, or with a window of 0, it does not wait; with a
// window above the default it waits the window out.
func (l *Log) gatherLocked() {
	window := time.Duration(l.window.Load())
	goal := l.mu.lastReleased
	if window <= defaultWindow {
		l.gathered.Store(0)
	}
	if window <= 0 || l.mu.syncWaiters == 0 || goal <= 1 && l.mu.syncWaiters == 1 {
		l.gathered.Store(0)
		return
	}
	if window > defaultWindow {
		goal = 1 << 30
	}
	if l.mu.syncWaiters >= goal {
		return
	}
	l.mu.gatherGoal = goal
	wait := join(&l.mu.gather)
	l.mu.Unlock()
	begin := time.Now()
	timer := time.NewTimer(window)
	select {
	case <-wait:
		timer.Stop()
	case <-timer.C:
	}
	if window > defaultWindow {
		l.gathered.Store(int64(time.Since(begin)))
	}
	l.mu.Lock()
	l.mu.gather = nil
}

// writeUpToLocked returns true once everything up to target is written, with
// mu held; false if the log failed.
func (l *Log) writeUpToLocked(target, gen uint64) bool {
	for l.gen.Load() == gen {
		if l.written.Load() >= target {
			return true
		}
		wait := l.joinWriteLocked(target)
		if wait != nil {
			<-wait
		}
		l.mu.Lock()
	}
	return false
}

// syncFilesLocked syncs every file that holds written bytes not yet synced,
// oldest first, and seals what is full.
func (l *Log) syncFilesLocked(gen uint64) {
	target := l.written.Load()
	if target <= l.synced.Load() && !l.needSyncLocked() {
		return
	}
	l.mu.syncTarget = max(l.mu.syncTarget, target)
	l.mu.dirtySince = time.Time{}
	if l.crowdedLocked() {
		l.syncing.begin(l.start)
		defer l.syncing.end(l.start)
	}
	var files []*segment
	for _, s := range l.mu.segs {
		if !s.sealed && !s.failed && s.first <= target && s.file.Load() != nil {
			files = append(files, s)
		}
	}
	l.mu.Unlock()
	var err error
	var bad *segment
	for _, s := range files {
		start := time.Now()
		l.syncs.Add(1)
		if err = s.file.Load().SyncData(); err != nil {
			bad = s
			break
		}
		l.m.fsync(time.Since(start))
	}
	l.mu.Lock()
	if l.gen.Load() != gen {
		return
	}
	if err != nil {
		l.failLocked("sync", bad, err)
		return
	}
	l.synced.Store(target)
	l.trimUnsyncedLocked(target)
	l.sealLocked(target)
	if l.opt.ShipSync {
		l.Hurry()
	}
}

func (l *Log) trimUnsyncedLocked(target uint64) {
	u := l.mu.unsynced
	k := 0
	for k < len(u) && u[k].last() <= target {
		l.mu.dirty -= u[k].bytes()
		k++
	}
	n := copy(u, u[k:])
	clear(u[n:])
	l.mu.unsynced = u[:n]
	if l.mu.dirty < l.opt.FlushBytes {
		l.unblock(blockUnsynced)
	}
}

// sealLocked seals the full segments that end at or before target.
func (l *Log) sealLocked(target uint64) {
	any := false
	for _, s := range l.mu.segs {
		if s.closed && !s.sealed && s.last <= target {
			s.sealed = true
			any = true
		}
	}
	if any && l.opt.Sealed != nil {
		l.opt.Sealed()
	}
}

// Sync returns once everything appended so far is written and synced here.
func (l *Log) Sync() error {
	l.mu.Lock()
	lsn, gen := l.mu.nextLSN-1, l.gen.Load()
	err := l.appendableLocked(gen)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.waitLocal(lsn, gen, Synced)
}

// Rotate seals the active segment if it holds anything and waits until that is
// on disk.
func (l *Log) Rotate() error {
	defer dieOfPanic()
	l.mu.Lock()
	gen := l.gen.Load()
	if err := l.appendableLocked(gen); err != nil {
		l.mu.Unlock()
		return err
	}
	last := l.mu.seg.last
	if last < l.mu.seg.first {
		l.mu.Unlock()
		return l.Sync()
	}
	l.closeGroup()
	l.startSegment(l.mu.seg.number+1, nil)
	l.mu.Unlock()
	return l.waitLocal(last, gen, Synced)
}
