package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/engine/topic"
	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/internal/store"
	"github.com/weirmq/weir/internal/wal"
)

// recover loads what the store holds and applies the operations of the log
// behind it, where every number and loss is as it was logged. What a crash has
// taken is logged at the end of it.
func (e *Engine) recover(ctx context.Context) error {
	begin := time.Now()
	if err := e.openStore(!e.dir.fresh); err != nil {
		return err
	}
	r := replay{e: e}
	var was wal.Recovery
	var err error
	e.log, was, err = wal.Open(e.logOptions(&r), e.store.Applied(), r.applier(ctx))
	if err != nil {
		return e.logError(err)
	}
	if bad := e.store.Manifest(); bad != nil {
		e.opt.Logger.Warn("the log holds all that the damaged list of tables does not name; nothing is lost", "file", bad.File, "offset", bad.Offset)
	}
	// Only now, since the log goes on where the store ends, is the store known
	// to be whole: what it does not name may go.
	if err := e.store.Writable(); err != nil {
		return fmt.Errorf("data directory %s: %w", e.opt.Dir, err)
	}
	e.opt.Logger.Debug("log replayed", "first_lsn", was.First, "last_lsn", was.Last, "bytes", was.Bytes, "torn", was.Torn)
	if r.stray > 0 {
		e.opt.Logger.Warn("parts of the log that came behind the end of their topic were left out; they hold no record", "parts", r.stray)
	}
	r.last = was.Last
	if was.Torn {
		e.opt.Logger.Warn("the end of the log was torn and is cut off; nothing acknowledged was in it", "file", was.TornFile, "offset", was.TornOffset, "bytes", was.TornBytes)
	}
	e.startClocks()
	if err := e.finish(&r); err != nil {
		return err
	}
	e.noted.gen, e.noted.lsn = e.log.Gen(), e.log.Synced()
	e.opt.Logger.Info("the data directory is open", "topics", e.reg.len(), "records", e.records.Load(), "format", FormatVersion,
		"replayed_operations", r.applied, "replayed_bytes", was.Bytes, "seconds", time.Since(begin).Seconds(),
		"closed_cleanly", e.dir.clean, "lost_numbers", r.announced)
	return nil
}

// openStore loads what the store holds. The store of a directory that was used
// is read only for now.
func (e *Engine) openStore(readOnly bool) (err error) {
	if e.store, err = store.Open(store.Options{FS: e.opt.FS, Dir: e.opt.Dir, Logger: e.opt.Logger, ReadOnly: readOnly}); err == nil {
		err = e.load()
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", e.opt.Dir, err)
	}
	return nil
}

func (e *Engine) logOptions(r *replay) wal.Options {
	return wal.Options{
		FS: e.opt.FS, Dir: e.opt.FS.PathJoin(e.opt.Dir, "wal"), SegmentBytes: e.opt.SegmentBytes, HotBytes: min(e.opt.Memory/hotShare, wal.DefaultHotBytes), FlushEvery: e.opt.DiskFlush,
		// A directory restored from an old backup has no log, and the numbers of
		// the segments in its store are taken.
		FirstSegment: e.store.LastSegment() + 1,
		Slots:        e.opt.IngestSlots, SameBoot: e.dir.sameBoot, Logger: e.opt.Logger, Sealed: func() { signal(e.sealed) },
		StallAfter: e.opt.StallAfter, Stalled: e.opt.Stalled,
		Gap:  r.lost.gap,
		Ship: e.opt.Replica != nil, ShipSync: e.opt.Replica != nil && e.opt.Replica.Sync, ShippedTo: e.copied(),
		Progress: shareOf(e.opt.Progress),
	}
}

// shareOf tells progress the share of what is done.
func shareOf(progress func(float64)) func(done, total int64) {
	return func(done, total int64) {
		if total > 0 {
			progress(float64(done) / float64(total))
		}
	}
}

// logError says of a log that does not open what can be done, and whether it and
// the store are apart.
func (e *Engine) logError(err error) error {
	var bad *wal.CorruptError
	if !errors.As(err, &bad) {
		return err
	}
	if apart := apart(e.store, bad); apart != nil {
		return fmt.Errorf("data directory %s: %w: %w", e.opt.Dir, apart, err)
	}
	return fmt.Errorf("%w; `weir repair %s` says what can be saved", err, e.opt.Dir)
}

// apart says which of the two is too old if the log does not go on where the store ends.
// If the log begins behind that, the store's list of tables is not the newest one, or not
// all of it; if it ends in front, the log is not the newest one, or not this store's.
func apart(s *store.Store, bad *wal.CorruptError) error {
	at := s.Applied()
	if bad.Ends {
		return fmt.Errorf("the log ends in front of operation %d, where the store ends: if wal is older than kv, or of another directory, put back the one that belongs here; else restore a backup", at)
	}
	if bad.LSN != at+1 {
		return nil
	}
	if m := s.Manifest(); m != nil {
		return fmt.Errorf("%w, and the log does not hold what is missing: restore a backup, or that file", m)
	}
	return fmt.Errorf("the store ends at operation %d by %s and the log goes on elsewhere: if a file was removed or is older than the others, put it back; else restore a backup", at, s.Listed())
}

// load reads the topics, the routers and the watch sessions of the store.
func (e *Engine) load() error {
	var err error
	if e.noted.Clock, err = e.store.Clock(); err != nil {
		return err
	}
	if err := e.loadTopics(); err != nil {
		return err
	}
	if err := e.store.Routes(func(r op.Route) error { e.routes.restore(r); return nil }); err != nil {
		return err
	}
	if err := e.store.Watches(func(w *op.Watch) error { e.found.put(w); return nil }); err != nil {
		return err
	}
	highest, err := e.store.HighestTopic()
	e.nextTopic.Store(max(e.nextTopic.Load(), highest))
	return err
}

func (e *Engine) loadTopics() error {
	var runOf *entry
	return e.store.Load(func(s *op.State) error {
		t := &entry{}
		t.State = *s
		e.adopt(t)
		return nil
	}, func(r store.Run) error {
		if runOf == nil || runOf.ID != r.Topic {
			runOf = e.reg.byID[r.Topic]
		}
		if runOf == nil {
			return nil
		}
		runOf.Index.AddRun(topicRun(r))
		if len(r.Flows) == 0 {
			return nil
		}
		var flows []op.Span
		err := op.DecodeSpans(r.Flows, func(s op.Span) { flows = append(flows, s) })
		jobRoom{e}.appended(runOf, flows)
		return err
	}, func(k store.Key) error {
		if t := e.reg.byID[k.Topic]; t != nil {
			t.Keys.Put(k.Hash, topic.Key{First: k.First, N: uint32(k.N), At: k.At, Sum: k.Sum})
		}
		return nil
	}, func(l store.Lease) error {
		if t := e.reg.byID[l.Topic]; t != nil && t.jobs != nil && t.Live(l.Seq) {
			e.restoreLease(t, l)
		}
		return nil
	})
}

// finish brings every topic to where it goes on: what a crash took is
// announced, the rest is counted.
func (e *Engine) finish(r *replay) error {
	if r.lost.any() {
		if err := e.announceLost(&r.lost); err != nil {
			return err
		}
		r.announced = r.lost.announced
	}
	unclean := !e.dir.clean
	for _, t := range e.reg.all() {
		if unclean && losesTail(&t.Config, e.dir) {
			r.announced += max(t.Reserved, t.Head) - t.Head
			if err := e.loseTail(t); err != nil {
				return err
			}
		}
		t.reserve.safe, t.reserve.next = t.Reserved, t.Reserved
		if e.copyLags() { // the copy may not have it yet
			t.reserve.safe, t.reserve.lsn, t.reserve.gen = 0, r.last, uint32(e.log.Gen())
		}
		if t.jobs != nil {
			t.jobs.recovered(t)
		}
		t.loggedHead, t.lastWrite = t.Head, t.LastTS
		e.ended.sum.Appended -= int64(t.Head)
		t.setPriority()
		t.Keys.NotAfter(e.startMS)
		t.Init()
		e.account(t)
		e.countKeys(t)
		e.records.Add(int64(t.Count))
		e.count(&t.Config, 1)
	}
	e.adoptRouters()
	if err := e.reviveSessions(); err != nil {
		return err
	}
	return e.log.Sync()
}

// copied is how far the copy has the log.
func (e *Engine) copied() uint64 {
	if e.opt.Replica == nil {
		return 0
	}
	return e.opt.Replica.LSN
}

// losesTail reports whether a topic may have lost numbers that were handed out
// when its server was killed, its machine lost power, or, for every class, its
// directory went and is a copy now. An fsync topic may have reserved numbers for
// another reason: it had another class once.
func losesTail(c *api.Config, d *directory) bool {
	switch c.Durability {
	case api.Fsync:
		return d.lagged
	case api.Disk:
		return !d.sameBoot
	}
	return true
}

// loseTail announces the numbers that may have been handed out and lost.
func (e *Engine) loseTail(t *entry) error {
	if t.Reserved <= t.Head {
		return nil
	}
	part := op.Part{Kind: op.KindLose, Topic: t.ID, From: t.Head + 1, To: t.Reserved, Cause: op.CauseCrash}
	if _, _, err := e.log.AppendUnslotted(e.log.Gen(), part.Encode(nil), nil, noFrames, wal.Memory); err != nil {
		return err
	}
	t.State.Apply(&part)
	return nil
}
