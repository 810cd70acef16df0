package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// DropSegment removes the records of a segment; a segment without any is no
// error. Its idempotency keys stay until they expire.
func (s *Store) DropSegment(segment uint32) error {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	info, ok := s.segment(segment)
	if !ok || info.Disk == 0 {
		return nil
	}
	if err := s.dropSegment(context.Background(), segment, info); err != nil {
		return fmt.Errorf("store: dropping segment %d: %w", segment, plain{err})
	}
	return nil
}

func (s *Store) dropSegment(ctx context.Context, segment uint32, info segmentInfo) error {
	topics, err := s.segmentTopics(segment)
	if err != nil {
		return err
	}
	info.Disk = 0
	var runs, totals entries
	for _, topic := range topics {
		runs.delete(runKey(nil, topic, segment))
	}
	totals.total(segment, info)
	return s.swap(ctx, &change{segment: segment, prefix: prefixData, entries: []*entries{&runs, &totals}, info: info})
}

// ExpireKeys removes the idempotency keys of every segment whose youngest key is old, by when it was
// made, and returns how many keys went.
func (s *Store) ExpireKeys(isOld func(at int64) bool) (removed uint64, err error) {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.usable(); err != nil {
		return 0, err
	}
	var old []uint32
	s.segments.Lock()
	for n, i := range s.segments.m {
		if i.Keys > 0 && isOld(i.KeyAt) {
			old = append(old, n)
		}
	}
	s.segments.Unlock()
	slices.Sort(old)
	for _, segment := range old {
		info, _ := s.segment(segment)
		n := info.Keys
		info.Keys, info.KeyAt = 0, 0
		var totals entries
		totals.total(segment, info)
		if err := s.swap(context.Background(), &change{segment: segment, prefix: prefixKey, entries: []*entries{&totals}, info: info}); err != nil {
			return removed, fmt.Errorf("store: expiring the keys of segment %d: %w", segment, plain{err})
		}
		removed += n
	}
	return removed, nil
}

// total sets or deletes the key of a segment's totals.
func (e *entries) total(segment uint32, info segmentInfo) {
	k := segmentKey(nil, segment)
	if info.Disk == 0 && info.Keys == 0 {
		e.delete(k)
		return
	}
	e.set(k, info.encode(nil))
}

// change replaces all keys of a segment under a prefix by what is in t.
type change struct {
	segment uint32
	prefix  byte
	t       *tables    // nil: nothing comes in their place
	entries []*entries // other keys, ascending
	info    segmentInfo
}

// swap makes a change in one step. The files of the old tables are removed at once.
func (s *Store) swap(ctx context.Context, c *change) error {
	t := c.t
	if t == nil {
		t = &tables{ctx: ctx, s: s}
	}
	meta := t.table(metaBlockBytes)
	var err error
	for _, e := range c.entries {
		err = cmp.Or(err, e.write(meta))
	}
	err = cmp.Or(err, meta.close())
	if err == nil {
		from, to := segmentSpan(c.prefix, c.segment)
		err = s.ingest(ctx, t, from, to)
	}
	if err != nil {
		t.abandon(meta)
		return err
	}
	s.setSegment(c.segment, c.info)
	if c.prefix == prefixData {
		s.chunks.forget(c.segment)
	}
	return nil
}

// segmentTopics lists the topics that have records in a segment, ascending.
func (s *Store) segmentTopics(segment uint32) ([]uint64, error) {
	from, to := segmentSpan(prefixData, segment)
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, err
	}
	var topics []uint64
	var k []byte
	for ok := it.First(); ok; {
		_, topic, _, err := parseDataKey(it.Key())
		if err != nil {
			return nil, cmp.Or(err, it.Close())
		}
		topics = append(topics, topic)
		k = append(dataKey(k[:0], segment, topic, 1<<64-1), 0)
		ok = it.SeekGE(k)
	}
	return topics, cmp.Or(it.Error(), it.Close())
}

// Rewrite keeps only those records of a segment that are not gone according to
// the view, and frees the space of the others. It returns what the segment
// holds now, ascending by topic; without survivors the segment is dropped.
func (s *Store) Rewrite(ctx context.Context, segment uint32, view View, pace Pacer) ([]Run, error) {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	info, ok := s.segment(segment)
	if !ok || info.Disk == 0 {
		return nil, nil
	}
	runs, err := s.rewrite(ctx, segment, info, view, pace)
	if err != nil {
		return nil, fmt.Errorf("store: rewriting segment %d: %w", segment, plain{err})
	}
	return runs, nil
}

// Salvage is Rewrite for a segment with damaged places: what cannot be read is
// left out.
func (s *Store) Salvage(ctx context.Context, segment uint32, view View) ([]Run, error) {
	s.change.Lock()
	defer s.change.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	info, ok := s.segment(segment)
	if !ok || info.Disk == 0 {
		return nil, nil
	}
	runs, err := s.rewriteBy(ctx, segment, info, view, nil, s.copyReadable)
	if err != nil {
		return nil, fmt.Errorf("store: salvaging segment %d: %w", segment, plain{err})
	}
	return runs, nil
}

// copyReadable copies what can be read of the runs of a segment.
func (s *Store) copyReadable(segment uint32, w *rewriter) error {
	var runs []Run
	err := s.kv.Load().scan([]byte{prefixRun}, []byte{prefixRun + 1}, func(k, v []byte) error {
		r, err := parseRun(k, v)
		if err == nil && r.Segment == segment {
			runs = append(runs, r)
		}
		return err
	})
	for i := 0; i < len(runs) && err == nil; i++ {
		if err = w.begin(runs[i].Topic); err == nil {
			err = s.copyRun(runs[i], w)
		}
	}
	return err
}

func (s *Store) copyRun(r Run, w *rewriter) error {
	for seq := r.First; seq <= r.Last; {
		c, err := s.readChunk(r.Segment, r.Topic, seq)
		var d *Damage
		if errors.As(err, &d) {
			if d.To >= r.Last {
				return nil
			}
			seq = d.To + 1
			continue
		}
		if err != nil || c == nil {
			return err
		}
		if err := w.copy(c); err != nil {
			return err
		}
		seq = c.Last + 1
	}
	return nil
}

// Damaged returns the segments of whose records some cannot be read, ascending.
func (s *Store) Damaged(ctx context.Context) ([]uint32, error) {
	var bad []uint32
	for _, segment := range s.Segments() {
		from, to := segmentSpan(prefixData, segment.Segment)
		err := s.verifySpan(ctx, from, to)
		if err != nil && !IsDamage(err) {
			return nil, fmt.Errorf("store: segment %d: %w", segment.Segment, plain{err})
		}
		if err != nil {
			bad = append(bad, segment.Segment)
		}
	}
	slices.Sort(bad)
	return bad, nil
}

func (s *Store) rewrite(ctx context.Context, segment uint32, info segmentInfo, view View, pace Pacer) ([]Run, error) {
	return s.rewriteBy(ctx, segment, info, view, pace, s.copyChunks)
}

func (s *Store) rewriteBy(ctx context.Context, segment uint32, info segmentInfo, view View, pace Pacer, copyTo func(uint32, *rewriter) error) ([]Run, error) {
	t := &tables{ctx: ctx, s: s, pace: pace}
	w := &rewriter{view: view, data: dataWriter{tb: t.table(dataBlockBytes), limit: s.opt.MaxTableBytes, segment: segment}}
	err := copyTo(segment, w)
	if err == nil {
		err = cmp.Or(w.endTopic(), w.data.tb.close())
	}
	if err == nil {
		err = view.Sync()
	}
	if err != nil {
		t.abandon(w.data.tb)
		return nil, err
	}
	info.Disk = w.data.disk
	var totals entries
	totals.total(segment, info)
	if err := s.swap(ctx, &change{segment: segment, prefix: prefixData, t: t, entries: []*entries{&w.runKeys, &totals}, info: info}); err != nil {
		return nil, err
	}
	return w.runs, nil
}

func (s *Store) copyChunks(segment uint32, w *rewriter) error {
	from, to := segmentSpan(prefixData, segment)
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		_, topic, _, err := parseDataKey(it.Key())
		if err == nil {
			err = w.chunk(topic, it)
		}
		if err != nil {
			return cmp.Or(err, it.Close())
		}
	}
	return cmp.Or(it.Error(), it.Close())
}

// rewriter copies the survivors of a segment.
type rewriter struct {
	view    View
	data    dataWriter
	runs    []Run
	runKeys entries
	begun   bool
	dead    dead
}

func (w *rewriter) chunk(topic uint64, it *pebble.Iterator) error {
	if err := w.begin(topic); err != nil {
		return err
	}
	c, err := chunkAt(it)
	if err != nil {
		return err
	}
	return w.copy(c)
}

// begin starts the next topic.
func (w *rewriter) begin(topic uint64) error {
	if w.begun && topic == w.data.run.Topic {
		return nil
	}
	if err := w.endTopic(); err != nil {
		return err
	}
	w.begun = true
	w.data.begin(topic)
	w.dead = dead{gone: w.view.Snapshot(topic)}
	return nil
}

func (w *rewriter) copy(c *Chunk) error {
	seq, ts := c.First, c.base
	for rest := c.runs; len(rest) > 0; {
		skip, n, later, frames, after, _ := runHeader(rest)
		seq, ts, rest = seq+skip, ts+later, after
		if _, err := w.data.append(seq, ts, frames, &w.dead); err != nil {
			return err
		}
		seq += n
	}
	return w.data.tb.t.wait(0)
}

// endTopic finishes the topic that was being copied.
func (w *rewriter) endTopic() error {
	if !w.begun {
		return nil
	}
	run, err := w.data.end()
	if err != nil {
		return err
	}
	k := runKey(nil, run.Topic, run.Segment)
	if run.N == 0 {
		w.runKeys.delete(k)
		return nil
	}
	w.runs = append(w.runs, run)
	w.runKeys.set(k, run.encode(nil))
	return nil
}
