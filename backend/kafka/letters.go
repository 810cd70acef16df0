package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

var _ backend.DeadLetters = (*Backend)(nil)

// shelved reads the dead letters of a topic, oldest first: the last record of each key,
// unless that is a tombstone.
func (b *Backend) shelved(ctx context.Context, from string) ([]*kgo.Record, error) {
	l, err := b.layoutOf(ctx, from)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	if err != nil {
		return nil, b.explain(err)
	}
	var all []*kgo.Record
	for partition := range l.leaders {
		last := map[string]*kgo.Record{}
		if _, _, err := b.pages(ctx, from, l, partition, 0, func(r *kgo.Record) { last[letterKey(r)] = r }); err != nil {
			return nil, b.explain(err)
		}
		for _, r := range last {
			if r.Value != nil {
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(a, b *kgo.Record) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return all, nil
}

// letterIndex follows a topic of dead letters, so that looking for them reads only what is
// new.
type letterIndex struct {
	turn   turn
	layout *layout // nil: read it from the beginning
	next   map[int32]int64
	live   map[string]string // key → ID of its last record, unless that is a tombstone
}

// shelves are the indexes that have been needed, by topic.
type shelves struct {
	mu  sync.Mutex
	all map[string]*letterIndex
}

func (s *shelves) of(topic string) *letterIndex {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[topic]
	if x == nil {
		x = &letterIndex{turn: newTurn()}
		if s.all == nil {
			s.all = map[string]*letterIndex{}
		}
		s.all[topic] = x
	}
	return x
}

// index reads what is new in a topic of dead letters. Without an error, the index is the
// caller's until it calls done.
func (b *Backend) index(ctx context.Context, topic string) (x *letterIndex, done func(), err error) {
	x = b.dead.of(topic)
	if err := x.turn.take(ctx); err != nil {
		return nil, nil, err
	}
	if err := b.readOn(ctx, x, topic); err != nil {
		x.turn.give()
		return nil, nil, err
	}
	return x, x.turn.give, nil
}

func (b *Backend) readOn(ctx context.Context, x *letterIndex, topic string) error {
	if x.layout == nil {
		x.next, x.live = map[int32]int64{}, map[string]string{}
		l, err := b.layoutOf(ctx, topic)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		if err != nil {
			return err
		}
		x.layout = l
	}
	for partition := range x.layout.leaders {
		next, by, err := b.pages(ctx, topic, x.layout, partition, x.next[partition], func(r *kgo.Record) {
			key := letterKey(r)
			if r.Value != nil {
				x.live[key] = idOf(r.Partition, r.Offset)
			} else {
				delete(x.live, key)
			}
		})
		if err == nil && by.id != x.layout.id { // it was deleted and made again
			x.layout = nil
			return b.readOn(ctx, x, topic)
		}
		if err != nil {
			x.layout = nil
			return err
		}
		x.layout, x.next[partition] = by, next
	}
	return nil
}

func (b *Backend) letterCount(ctx context.Context) (int64, error) {
	x, done, err := b.index(ctx, b.set.deadLetter())
	if err != nil {
		return 0, err
	}
	defer done()
	return int64(len(x.live)), nil
}

// letterKey is what a letter and its tombstone have in common.
func letterKey(r *kgo.Record) string { return cmp.Or(string(r.Key), idOf(r.Partition, r.Offset)) }

// List returns dead letters. It reads their topic from its beginning.
func (b *Backend) List(ctx context.Context, from, after string, most int) ([]backend.DeadLetter, error) {
	if err := b.may(ctx); err != nil {
		return nil, err
	}
	all, err := b.shelved(ctx, cmp.Or(from, b.set.deadLetter()))
	if err != nil {
		return nil, b.cut(ctx, err)
	}
	begin := 0
	if after != "" {
		begin = slices.IndexFunc(all, func(r *kgo.Record) bool { return idOf(r.Partition, r.Offset) == after }) + 1
		if begin == 0 { // gone meanwhile: go on behind where it was
			begin = slices.IndexFunc(all, func(r *kgo.Record) bool { return behind(r, after) })
		}
	}
	if begin < 0 {
		return nil, nil
	}
	var letters []backend.DeadLetter
	for _, r := range all[begin:min(len(all), begin+max(1, most))] {
		letters = append(letters, letterOf(r))
	}
	return letters, nil
}

// behind reports whether a record comes after the one with an ID.
func behind(r *kgo.Record, id string) bool {
	partition, offset, ok := parseID(id)
	return ok && (r.Partition > partition || r.Partition == partition && r.Offset > offset)
}

func letterOf(r *kgo.Record) backend.DeadLetter {
	headers := headersOf(r)
	take := func(name string) string {
		value := headers[name]
		delete(headers, name)
		return value
	}
	take(backend.HeaderRedriveGroup)
	l := backend.DeadLetter{
		ID: idOf(r.Partition, r.Offset), Data: slices.Clone(r.Value), DeadAt: r.Timestamp,
		Stream: take(backend.HeaderDeadStream), Group: take(backend.HeaderDeadGroup), OriginID: take(backend.HeaderDeadID),
		Reason: take(backend.HeaderDeadReason), Error: take(backend.HeaderDeadError), Consumer: take(backend.HeaderDeadConsumer),
	}
	// What is no number was not written by weir.
	l.Attempts, _ = strconv.Atoi(take(backend.HeaderDeadAttempts))
	l.Redrives, _ = strconv.Atoi(take(backend.HeaderRedrives))
	if ms, err := strconv.ParseInt(take(backend.FieldEnqueued), 10, 64); err == nil {
		l.Enqueued = time.UnixMilli(ms)
	}
	for _, name := range []string{backend.HeaderDeadAt, headerKey, headerNull} {
		delete(headers, name)
	}
	if len(headers) > 0 {
		l.Headers = headers
	}
	return l
}

// Purge removes dead letters.
func (b *Backend) Purge(ctx context.Context, from string, ids []string) (int, error) {
	if err := b.may(ctx); err != nil {
		return 0, err
	}
	from = cmp.Or(from, b.set.deadLetter())
	found, err := b.find(ctx, from, ids)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	for _, r := range found {
		if err := removable(r); err != nil {
			return 0, err
		}
	}
	return len(found), b.erase(ctx, from, found)
}

// find reads the letters with these IDs that are still there.
func (b *Backend) find(ctx context.Context, from string, ids []string) ([]*kgo.Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	x, done, err := b.index(ctx, from)
	if err != nil {
		return nil, b.explain(err)
	}
	defer done()
	if x.layout == nil {
		return nil, nil
	}
	var found []*kgo.Record
	for _, id := range ids {
		partition, offset, ok := parseID(id)
		if _, there := x.layout.leaders[partition]; !ok || !there || offset >= x.next[partition] {
			continue
		}
		p, err := b.read(ctx, from, x.layout, partition, offset, 1)
		if err != nil {
			return nil, b.explain(err)
		}
		for _, r := range p.records {
			if r.Offset == offset && x.live[letterKey(r)] == id {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// removable reports why a letter cannot be removed: a tombstone takes the place of a key.
func removable(r *kgo.Record) error {
	if r.Key == nil {
		return fmt.Errorf("kafka: dead letter %s has no key: weir has not written it to %q, and cannot remove it", idOf(r.Partition, r.Offset), r.Topic)
	}
	return nil
}

// erase appends tombstones.
func (b *Backend) erase(ctx context.Context, from string, list []*kgo.Record) error {
	stones := make([]*kgo.Record, len(list))
	for i, r := range list {
		stones[i] = &kgo.Record{Topic: from, Key: r.Key}
	}
	_, err := b.produce(ctx, stones)
	return err
}
