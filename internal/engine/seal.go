package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// sealLoop moves sealed segments of the log to the store, one at a time.
func (e *Engine) sealLoop() {
	for {
		select {
		case <-e.stop.Done():
			return
		case <-e.sealed:
		}
		for {
			seg, ok := e.log.OldestSealed()
			if !ok {
				break
			}
			err := e.seal(seg)
			if e.stop.Err() != nil {
				return
			}
			if err == nil {
				e.unsealed.Store(nil)
			} else {
				e.unsealed.Store(&err)
				e.freeForTable(err)
				e.opt.Logger.Error("a sealed segment could not be moved to the store; trying again in a second",
					"segment", seg.Number, "error", err)
				select {
				case <-e.stop.Done():
					return
				case <-time.After(time.Second):
				}
			}
		}
	}
}

// seal moves one segment to the store, points the topics at it and gives the
// log its file back. A segment that has moved meanwhile is no error.
func (e *Engine) seal(seg wal.SegmentInfo) error {
	e.sealing.Lock()
	defer e.sealing.Unlock()
	if oldest, ok := e.log.OldestSealed(); !ok || oldest.Number != seg.Number {
		return nil
	}
	runs, err := e.takeIn(seg)
	if err != nil {
		return err
	}
	byTopic := runsByTopic(runs)
	for _, t := range e.reg.all() {
		t.mu.Lock()
		t.Index.Seal(seg.Number, byTopic[t.ID])
		t.mu.Unlock()
	}
	e.reg.sealed(seg.LastLSN)
	e.buried.sealed(seg.LastLSN)
	signal(e.shrink)
	if err := e.log.Release(seg.Number); err != nil {
		return fmt.Errorf("release log segment %d: %w", seg.Number, err)
	}
	return nil
}

// takeIn has the store take in a segment, all of it that can be read.
func (e *Engine) takeIn(seg wal.SegmentInfo) ([]store.Run, error) {
	var bad *wal.CorruptError
	runs, err := e.storeSegment(seg, func(fn func(store.Op) error) error {
		err := e.log.Scan(seg.Number, func(o wal.Op) error {
			return fn(store.Op{LSN: o.LSN, Payload: o.Payload})
		})
		errors.As(err, &bad)
		return err
	})
	if err == nil || bad == nil {
		return runs, err
	}
	d := damagedSegment{e: e, seg: seg, topics: make(map[uint64]bool), routers: make(map[uint64]uint64)}
	if e.store.Applied() < seg.LastLSN {
		if err := d.announce(); err != nil {
			return nil, fmt.Errorf("step over damage in the log: %w", err)
		}
	}
	if runs, err = e.storeSegment(seg, d.scan); err == nil {
		d.report()
	}
	return runs, err
}

func (e *Engine) storeSegment(seg wal.SegmentInfo, scan func(func(store.Op) error) error) ([]store.Run, error) {
	runs, _, err := e.store.Seal(e.stop, seg.Number, seg.LastLSN, scan, view{e}, newPacer(&e.ingested, paceSeal, &e.work.sealing))
	return runs, err
}

func runsByTopic(runs []store.Run) map[uint64]topic.Run {
	byTopic := make(map[uint64]topic.Run, len(runs))
	for _, r := range runs {
		byTopic[r.Topic] = topicRun(r)
	}
	return byTopic
}

// view tells the store what is gone by now.
type view struct{ e *Engine }

// Snapshot returns which numbers of the topic need not be kept.
func (v view) Snapshot(id uint64) func(seq uint64) bool {
	t := v.e.reg.id(id)
	if t == nil {
		return func(uint64) bool { return true }
	}
	return func(seq uint64) bool {
		t.mu.Lock()
		gone := seq <= t.Start || seq <= t.Head && t.Holes.Has(seq)
		t.mu.Unlock()
		return gone
	}
}

// Recovered names a topic whose creation was lost.
func (v view) Recovered(id uint64) (name string, ok bool) {
	if t := v.e.reg.id(id); t != nil && t.recovered {
		return t.Name, true
	}
	return "", false
}

// KeyAt tells when a key was used first, unless that is past its window.
func (v view) KeyAt(id uint64, key op.KeyHash, first uint64) (at int64, ok bool) {
	t := v.e.reg.id(id)
	if t == nil {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Keys.At(key, first)
}

// Watching reports whether the watch session still lives.
func (v view) Watching(id op.WatchID) bool { return v.e.push.Watching(widOf(id)) }

// Sync makes what Snapshot relied on durable, and how the clocks stand: KeyAt told times of the lease
// clock, which goes on over a step of the wall clock only if the log has that.
func (v view) Sync() error {
	v.e.noteClock(false)
	return v.e.log.Sync()
}

// shrinkLoop gives back the disk space of what is gone, soon after it went.
func (e *Engine) shrinkLoop() {
	var d draining
	for {
		select {
		case <-e.stop.Done():
			return
		case <-e.shrink:
		}
		if err := e.shrinkStore(&d); err != nil && !errors.Is(err, context.Canceled) {
			e.freeForTable(err)
			if e.space.refuses() {
				signal(e.shrink)
			}
			e.opt.Logger.Error("disk space could not be given back; trying again with the next change", "error", err)
		}
		if d.spared {
			signal(e.shrink)
		}
		// What goes meanwhile is handled in one round.
		select {
		case <-e.stop.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// A segment is rewritten once less than this share of it is live; on a disk that
// is nearly full, where every byte counts, already below the second share.
const (
	rewriteBelow    = 0.8
	rewriteBelowLow = 0.98
)

// emptySoon is in how many rounds a segment that workers are draining has to be empty, at
// the pace of the last one, so that it is not rewritten: it is dropped then, and what a
// rewrite copies would be gone by the time it is done. One that is looked at for the first time may be
// draining, too.
const emptySoon = 8

// draining finds the segments that are emptied while one looks.
type draining struct {
	live   map[uint32]float64 // bytes at the last look
	spared bool               // the last look found one
}

// look takes the next look.
func (d *draining) look(live map[uint32]float64) (soon func(segment uint32) bool) {
	before := d.live
	d.live, d.spared = live, false
	return func(segment uint32) bool {
		was, known := before[segment]
		soon := live[segment] > 0 && (!known || live[segment] <= emptySoon*(was-live[segment]))
		d.spared = d.spared || soon
		return soon
	}
}

// shrinkStore drops sealed segments in which nothing is live and rewrites those
// with few live bytes. The segments that free most come first, since a rewrite
// needs extra space for a while; one that fails does not stop the others. Those that are
// empty soon are not rewritten, unless the disk is nearly full.
func (e *Engine) shrinkStore(d *draining) error {
	for _, t := range e.reg.all() {
		t.mu.Lock()
		t.dirty = false
		t.mu.Unlock()
	}
	e.sealing.Lock()
	segments, live := e.store.Segments(), e.liveBytes()
	e.sealing.Unlock()
	slices.SortFunc(segments, func(a, b store.Segment) int { return cmp.Compare(live[a.Segment], live[b.Segment]) })
	below, soon := rewriteBelow, d.look(live)
	low := e.space.low.Load()
	if low {
		below = rewriteBelowLow
	}
	var failed error
	for _, s := range segments {
		if e.stop.Err() != nil {
			return e.stop.Err()
		}
		if s.Disk == 0 || live[s.Segment] >= below*float64(s.Disk) || e.damage.has(s.Segment) || !low && soon(s.Segment) {
			continue
		}
		err := e.shrinkSegment(s.Segment)
		switch {
		case err != nil && store.IsDamage(err):
			e.damage.add(s.Segment, true, 0, 0)
			e.opt.Logger.Error("a segment is damaged; its bytes stay until `weir repair --mark`", "segment", s.Segment, "error", err.Error())
		case err != nil:
			failed = cmp.Or(failed, err)
		}
	}
	e.sealing.Lock()
	defer e.sealing.Unlock()
	now, window := e.leaseClock(), e.longestWindow()
	_, err := e.store.ExpireKeys(func(at int64) bool {
		if at > now {
			at = e.startMS // a time stamp of format 7 that was ahead
		}
		return now-at > window
	})
	return cmp.Or(failed, err)
}

// freeForTable makes room for a table that did not fit on a full disk by giving
// up the log's spare file; the next try finds the space.
func (e *Engine) freeForTable(err error) {
	if noRoom(err) {
		e.log.GiveSpare()
	}
}

// liveBytes estimates how many bytes of each sealed segment are live. For the
// holder of sealing the answer stays valid: a segment is in the store and in
// the topics' indexes, or in neither, and what is gone stays gone.
func (e *Engine) liveBytes() map[uint32]float64 {
	live := make(map[uint32]float64)
	for _, t := range e.reg.all() {
		t.mu.Lock()
		for _, r := range t.Index.Runs() {
			live[r.Segment] += t.liveShare(r) * float64(r.Disk)
		}
		t.mu.Unlock()
	}
	return live
}

// lives reports whether anything in the sealed segment is live; as with
// liveBytes, the answer stays valid for the holder of sealing.
func (e *Engine) lives(segment uint32) bool {
	for _, t := range e.reg.all() {
		t.mu.Lock()
		r, ok := t.Index.RunIn(segment)
		live := ok && t.liveShare(r) > 0
		t.mu.Unlock()
		if live {
			return true
		}
	}
	return false
}

// liveShare is the share of a run's records that are still live.
func (t *entry) liveShare(r topic.Run) float64 {
	if r.Last <= t.Start || r.N == 0 {
		return 0
	}
	from := max(r.First, t.Start+1)
	span := float64(r.Last - r.First + 1)
	gone := float64(from-r.First) + float64(t.Holes.Between(from, r.Last))
	// The run may be sparse already: numbers that were gone when it was built
	// take no space.
	left := span - gone
	return min(1, max(0, left/float64(r.N)))
}

func (e *Engine) shrinkSegment(segment uint32) error {
	e.sealing.Lock()
	defer e.sealing.Unlock()
	if !e.lives(segment) {
		if err := e.log.Sync(); err != nil {
			return err
		}
		err := e.store.DropSegment(segment)
		if noRoom(err) && e.ballast.give() {
			err = e.store.DropSegment(segment)
		}
		if err != nil {
			return err
		}
		e.swapRuns(segment, nil)
		return nil
	}
	runs, err := e.store.Rewrite(e.stop, segment, view{e}, newPacer(&e.ingested, paceShrink, &e.work.sealing))
	if err != nil {
		return err
	}
	byTopic := runsByTopic(runs)
	e.swapRuns(segment, byTopic)
	return nil
}

func (e *Engine) swapRuns(segment uint32, runs map[uint64]topic.Run) {
	for _, t := range e.reg.all() {
		t.mu.Lock()
		t.Index.Swap(segment, runs[t.ID])
		t.mu.Unlock()
	}
}

// longestWindow is the longest idempotency window of any topic, ms.
func (e *Engine) longestWindow() int64 {
	var longest uint64
	for _, t := range e.reg.all() {
		t.mu.Lock()
		longest = max(longest, t.Config.IdempotencyWindowMS)
		t.mu.Unlock()
	}
	return int64(min(longest, 1<<60))
}
