package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirmq/weir/internal/op"
)

// Op is one operation of the log.
type Op struct {
	LSN     uint64
	Payload []byte
}

// View is what the running engine knows beyond a sealed segment. Its methods
// are called from the goroutine that builds, with no lock of the store that a
// reader needs.
type View interface {
	// Snapshot returns which numbers of the topic are deleted or evicted by now,
	// so that their records need not be kept; all of them if the topic is
	// dropped. A nil func means none.
	Snapshot(topic uint64) (gone func(seq uint64) bool)
	// Recovered returns the name of a topic that goes on although the log has lost
	// its creation.
	Recovered(topic uint64) (name string, ok bool)
	// KeyAt returns when the append of the topic at number first was made, on the lease clock. It
	// returns false if that is past the window of its key.
	KeyAt(topic uint64, key op.KeyHash, first uint64) (at int64, ok bool)
	// Watching reports whether the watch session still lives.
	Watching(id op.WatchID) bool
	// Sync makes everything durable that the snapshots relied on. It is called
	// once, before the tables are taken in.
	Sync() error
}

// errBroken is the state after a failed write of the manifest: which of two
// versions is on disk is unknown until the store is opened again.
var errBroken = errors.New("the manifest could not be written; the store must be opened again")

// Seal takes in one sealed segment of the log: scan calls back for each of its
// operations in the order of their LSN; a payload need only be valid during the
// call. Operations up to Applied are passed over. Records that are gone, by the
// operations of the segment or by the view, are left out. It returns what the
// segment holds now, ascending by topic, and the topics that were dropped in
// it. After an error nothing has changed, or it is unknown whether the segment
// was taken in; in both cases call again with the same segment.
func (s *Store) Seal(ctx context.Context, segment uint32, lastLSN uint64, scan func(func(Op) error) error, view View, pace Pacer) ([]Run, []uint64, error) {
	s.change.Lock()
	defer s.change.Unlock()
	runs, dropped, err := s.seal(ctx, segment, lastLSN, scan, view, pace)
	if err != nil {
		return nil, nil, fmt.Errorf("store: sealing segment %d: %w", segment, plain{err})
	}
	return runs, dropped, nil
}

func (s *Store) seal(ctx context.Context, segment uint32, lastLSN uint64, scan func(func(Op) error) error, view View, pace Pacer) ([]Run, []uint64, error) {
	if err := s.usable(); err != nil {
		return nil, nil, err
	}
	applied := s.applied.Load()
	if lastLSN == applied && applied > 0 {
		return s.sealed(segment, scan)
	}
	if _, ok := s.segment(segment); ok || lastLSN < applied {
		return nil, nil, fmt.Errorf("its last operation is %d, but the store is at %d", lastLSN, applied)
	}
	parts := partIndex{view: view, topics: make(map[uint64]*partList), sessions: make(sessions)}
	defer parts.free()
	if err := parts.collect(ctx, s.kv.Load(), applied, scan); err != nil {
		return nil, nil, err
	}
	sh, err := s.newShadow()
	if err != nil {
		return nil, nil, err
	}
	t := &tables{ctx: ctx, s: s, pace: pace}
	b := &sealer{shadow: sh, parts: &parts, view: view,
		data: dataWriter{tb: t.table(dataBlockBytes), limit: s.opt.MaxTableBytes, segment: segment},
		keys: t.table(metaBlockBytes), meta: t.table(metaBlockBytes)}
	err = b.build(lastLSN)
	if err = cmp.Or(err, sh.close()); err == nil && view != nil {
		err = view.Sync()
	}
	if err == nil {
		err = s.ingest(ctx, t, nil, nil)
	}
	if err != nil {
		t.abandon(b.data.tb, b.keys, b.meta)
		return nil, nil, err
	}
	s.applied.Store(lastLSN)
	s.setSegment(segment, b.total)
	return b.runs, b.dropped, nil
}

// sealed answers for a segment that is in the store: its seal was made, but the
// write that said so was reported as failed.
func (s *Store) sealed(segment uint32, scan func(func(Op) error) error) (runs []Run, dropped []uint64, err error) {
	err = s.kv.Load().scan([]byte{prefixRun}, []byte{prefixRun + 1}, func(k, v []byte) error {
		r, err := parseRun(k, v)
		if err == nil && r.Segment == segment {
			runs = append(runs, r)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	var p op.Part
	err = scan(func(o Op) error {
		r := op.NewReader(o.Payload)
		for r.Next(&p) {
			if p.Kind == op.KindDrop {
				dropped = append(dropped, p.Topic)
			}
		}
		return r.Err()
	})
	slices.Sort(dropped)
	return runs, dropped, err
}

// sealer builds the tables of one segment, topic by topic.
type sealer struct {
	shadow *shadow
	parts  *partIndex
	view   View
	data   dataWriter
	keys   *table
	meta   *table

	metas, leases, routers, runKeys, pages entries

	// Of the topic being built:
	from     uint64 // place of the first part that counts
	appended bool   // there are appends
	keyList  []Key

	total   segmentInfo
	runs    []Run
	dropped []uint64
	scratch []byte
}

func (b *sealer) build(lastLSN uint64) error {
	for _, topic := range b.parts.sorted() {
		if err := b.topic(topic); err != nil {
			return fmt.Errorf("topic %d: %w", topic, err)
		}
	}
	b.total.Disk = b.data.disk
	var format, applied, totals, watches, clock entries
	if err := b.watches(&watches); err != nil {
		return err
	}
	format.set([]byte{prefixFormat}, appendUints(nil, FormatVersion))
	applied.set([]byte{prefixApplied}, appendUints(nil, lastLSN))
	if b.total != (segmentInfo{}) {
		totals.total(b.data.segment, b.total)
	}
	if b.parts.clock != (op.Clock{}) {
		clock.set([]byte{prefixClock}, b.parts.clock.EncodeClock(nil))
	}
	for _, e := range []*entries{&b.metas, &format, &b.leases, &b.routers, &b.runKeys, &totals, &watches, &b.pages, &clock, &applied} {
		if err := e.write(b.meta); err != nil {
			return err
		}
	}
	for _, tb := range []*table{b.data.tb, b.keys, b.meta} {
		if err := tb.close(); err != nil {
			return err
		}
	}
	return nil
}

// topic applies all parts of one topic and writes what is left of it.
func (b *sealer) topic(id uint64) error {
	st, existed, err := b.shadow.load(id)
	if err != nil {
		return err
	}
	if st, err = b.apply(id, st); err != nil {
		return err
	}
	if st == nil {
		if existed {
			return b.drop(id)
		}
		return nil
	}
	d := dead{state: st}
	if b.view != nil {
		d.gone = b.view.Snapshot(id)
	}
	if err := b.records(id, &d); err != nil {
		return err
	}
	if err := b.keyEntries(id); err != nil {
		return err
	}
	b.scratch = st.EncodeState(b.scratch[:0])
	b.metas.set(topicKey(nil, prefixTopic, id), b.scratch)
	if err := b.shadow.pagesDiff(st, &b.pages); err != nil {
		return err
	}
	if err := b.shadow.leaseDiff(st, &b.leases); err != nil {
		return err
	}
	b.shadow.routesDiff(id, &b.routers)
	return nil
}

// apply runs the parts of the topic over its state, nil if it does not exist, and
// notes from where on its appends count; nil when the topic is dropped in the end.
func (b *sealer) apply(id uint64, st *op.State) (*op.State, error) {
	b.from, b.appended = b.parts.topics[id].head, false
	var p op.Part
	for at := b.from; at != noPart; {
		here := at
		var ref partRef
		at, ref = b.parts.at(at)
		r := op.NewReader(ref.part)
		r.Next(&p)
		existed := st != nil
		if st == nil && b.view != nil && op.Revives(p.Kind) {
			if name, ok := b.view.Recovered(id); ok {
				st = new(op.State)
				*st = op.Recovered(id, name)
			}
		}
		switch {
		case p.Kind == op.KindDrop:
			if st != nil {
				b.dropped = append(b.dropped, id)
			}
			st, b.appended = nil, false
			b.shadow.forgetLeases()
			b.shadow.forgetRoutes()
			continue
		case p.Kind == op.KindCreate:
			st = new(op.State)
		case st == nil:
			continue
		case p.Kind == op.KindLease || p.Kind == op.KindRelease:
			b.shadow.lease(st, &p)
		case p.Kind == op.KindRouter || p.Kind == op.KindRouterDrop || p.Kind == op.KindCursor:
			b.shadow.route(&p)
			continue
		}
		if !existed {
			b.from = here
		}
		b.appended = b.appended || p.Kind == op.KindAppend
		st.Apply(&p)
	}
	return st, nil
}

// records writes what is live of the topic's appends, and gathers their keys.
func (b *sealer) records(id uint64, d *dead) error {
	b.keyList = b.keyList[:0]
	if !b.appended {
		return nil
	}
	b.data.begin(id)
	var p op.Part
	for at := b.from; at != noPart; {
		var ref partRef
		if at, ref = b.parts.at(at); op.Kind(ref.part[0]) != op.KindAppend {
			continue
		}
		r := op.NewReader(ref.part)
		r.Next(&p)
		if p.HasKey {
			if at, known := b.keyAt(&p, id); known {
				b.keyList = append(b.keyList, Key{Topic: id, Hash: p.Key, First: p.First, N: p.N, At: at, Sum: ref.sumOf(r.Frames)})
			}
		}
		if ref.bare {
			continue
		}
		n, err := b.data.append(p.First, p.TS, r.Frames, d)
		if err != nil {
			return err
		}
		if n != p.N {
			return fmt.Errorf("the append at number %d says it has %d records and has %d", p.First, p.N, n)
		}
	}
	run, err := b.data.end()
	if err != nil || run.N == 0 {
		return err
	}
	b.runs = append(b.runs, run)
	b.scratch = run.encode(b.scratch[:0])
	b.runKeys.set(runKey(nil, id, run.Segment), b.scratch)
	return nil
}

// keyAt returns when an append with a key was made, and whether its key is still known.
func (b *sealer) keyAt(p *op.Part, topic uint64) (at int64, known bool) {
	if b.view == nil {
		return p.TS, true
	}
	return b.view.KeyAt(topic, p.Key, p.First)
}

// keyEntries writes the idempotency keys of the topic; of two equal ones the
// later counts.
func (b *sealer) keyEntries(id uint64) error {
	list := b.keyList
	slices.SortStableFunc(list, func(x, y Key) int { return slices.Compare(x.Hash[:], y.Hash[:]) })
	var k []byte
	for i := range list {
		if i+1 < len(list) && list[i+1].Hash == list[i].Hash {
			continue
		}
		k = idempotencyKey(k[:0], b.data.segment, id, &list[i].Hash)
		b.scratch = list[i].encode(b.scratch[:0])
		if err := b.keys.set(k, b.scratch); err != nil {
			return err
		}
		if b.total.Keys == 0 || list[i].At > b.total.KeyAt {
			b.total.KeyAt = list[i].At
		}
		b.total.Keys++
	}
	return nil
}

// drop deletes all keys of a topic except its records, which go with their
// segments.
func (b *sealer) drop(id uint64) error {
	b.metas.delete(topicKey(nil, prefixTopic, id))
	for _, p := range []struct {
		prefix byte
		to     *entries
	}{{prefixLease, &b.leases}, {prefixRouter, &b.routers}, {prefixRun, &b.runKeys}, {prefixPage, &b.pages}} {
		from := topicKey(nil, p.prefix, id)
		until := append(topicNumberKey(nil, p.prefix, id, 1<<64-1), 0)
		gone := goneKeys{out: p.to}
		if err := b.shadow.s.kv.Load().scan(from, until, func(k, _ []byte) error {
			gone.add(k)
			return nil
		}); err != nil {
			return err
		}
		gone.end()
	}
	return nil
}
