package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirmq/weir/backend"
)

var _ backend.DeadLetters = (*Backend)(nil)

// letterIndex follows a topic of dead letters, so that looking for them reads only what is
// new. It holds where they are, not what they say.
type letterIndex struct {
	turn   turn
	layout *layout // nil: read it from the beginning
	next   map[int32]int64
	live   map[string]spot   // by key: its last record, unless that is a tombstone
	order  map[int32][]place // by partition: in the order of the log, with some that are gone
}

// spot is where a record is.
type spot struct {
	partition int32
	offset    int64
}

// place is where a partition has, or had, a letter.
type place struct {
	offset int64
	key    string
}

// forgottenPlaces is how many places without a letter a partition may have before they are
// removed, if it has no more letters than that.
const forgottenPlaces = 1000

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
		x.next, x.live, x.order = map[int32]int64{}, map[string]spot{}, map[int32][]place{}
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
		read, err := b.pages(ctx, topic, x.layout, partition, x.next[partition], func(r *kgo.Record) {
			key := letterKey(r)
			if r.Value == nil {
				delete(x.live, key)
				return
			}
			x.add(place{r.Offset, key}, r.Partition)
		})
		if err == nil && read.by.id != x.layout.id { // it was deleted and made again
			x.layout = nil
			return b.readOn(ctx, x, topic)
		}
		if err != nil && ctx.Err() != nil && read.by.id == x.layout.id {
			x.layout, x.next[partition] = read.by, read.next // the next call goes on here
			return err
		}
		if err != nil {
			x.layout = nil
			if errors.Is(err, kerr.UnknownTopicOrPartition) { // it was deleted
				return b.readOn(ctx, x, topic)
			}
			return err
		}
		x.layout, x.next[partition] = read.by, read.next
		x.tidy(partition, read.start)
	}
	return nil
}

// add notes a letter that was read. Letters that are known at its place or behind it are dropped:
// the log has lost its end, and is read again.
func (x *letterIndex) add(at place, partition int32) {
	all := x.order[partition]
	if n := len(all); n > 0 && all[n-1].offset >= at.offset {
		i := search(all, at.offset)
		for _, lost := range all[i:] {
			x.drop(partition, lost)
		}
		all = all[:i]
	}
	x.live[at.key] = spot{partition, at.offset}
	x.order[partition] = append(all, at)
}

func search(all []place, offset int64) int {
	i, _ := slices.BinarySearchFunc(all, offset, func(at place, offset int64) int { return cmp.Compare(at.offset, offset) })
	return i
}

// has reports whether a place of a partition has a letter.
func (x *letterIndex) has(partition int32, at place) bool {
	s, ok := x.live[at.key]
	return ok && s == spot{partition, at.offset}
}

func (x *letterIndex) drop(partition int32, at place) {
	if x.has(partition, at) {
		delete(x.live, at.key)
	}
}

// first returns the first letter of a partition that is not before an offset.
func (x *letterIndex) first(partition int32, offset int64) (place, bool) {
	all := x.order[partition]
	for _, at := range all[search(all, offset):] {
		if x.has(partition, at) {
			return at, true
		}
	}
	return place{}, false
}

// forget drops the letters of a partition from one offset to before another that were not
// read there: a compaction has left neither them nor a tombstone to see.
func (x *letterIndex) forget(partition int32, from, to int64, read []*kgo.Record) {
	there := map[int64]bool{}
	for _, r := range read {
		there[r.Offset] = true
	}
	for at, ok := x.first(partition, from); ok && at.offset < to; at, ok = x.first(partition, at.offset+1) {
		if !there[at.offset] {
			x.drop(partition, at)
		}
	}
}

// tidy removes the places of a partition that are before the start of its log, and those that have
// no letter any more, if they are many.
func (x *letterIndex) tidy(partition int32, start int64) {
	all := x.order[partition]
	n := search(all, start)
	for _, at := range all[:n] {
		x.drop(partition, at)
	}
	all = all[n:]
	x.order[partition] = all
	if len(all) > 2*len(x.live)+forgottenPlaces {
		x.order[partition] = slices.DeleteFunc(all, func(at place) bool { return !x.has(partition, at) })
	}
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

// listBytes is how much of a topic is read at once for a page of dead letters.
const listBytes = 128 << 10

// List returns dead letters by partition, oldest first. A letter is the last record of its
// key, unless that is a tombstone.
func (b *Backend) List(ctx context.Context, from, after string, most int) ([]backend.DeadLetter, error) {
	if err := b.may(ctx); err != nil {
		return nil, err
	}
	var begin spot
	if after != "" {
		var ok bool
		if begin.partition, begin.offset, ok = parseID(after); !ok {
			return nil, nil
		}
		begin.offset++
	}
	from, most = cmp.Or(from, b.set.deadLetter()), max(1, most)
	x, done, err := b.index(ctx, from)
	if err != nil {
		return nil, b.cut(ctx, b.explain(err))
	}
	defer done()
	var letters []backend.DeadLetter
	for _, partition := range slices.Sorted(maps.Keys(x.order)) {
		switch {
		case partition < begin.partition:
			continue
		case partition > begin.partition:
			begin = spot{partition: partition}
		}
		if letters, err = b.listOn(ctx, x, from, begin, letters, most); err != nil {
			return nil, b.cut(ctx, b.explain(err))
		}
		if x.layout == nil { // what is known of the others is of a topic that is gone, too
			break
		}
	}
	return letters, nil
}

// listOn adds letters of a partition, from a spot on, until there are most.
func (b *Backend) listOn(ctx context.Context, x *letterIndex, topic string, from spot, letters []backend.DeadLetter, most int) ([]backend.DeadLetter, error) {
	at, some := x.first(from.partition, from.offset)
	for some && len(letters) < most {
		p, err := b.read(ctx, topic, x.layout, from.partition, at.offset, listBytes)
		if err != nil || p.by.id != x.layout.id { // it was deleted, and perhaps made again
			x.layout = nil
			return letters, err
		}
		x.forget(from.partition, at.offset, p.next, p.records)
		for _, r := range p.records {
			if len(letters) < most && r.Offset >= at.offset && x.has(r.Partition, place{r.Offset, letterKey(r)}) {
				letters = append(letters, letterOf(r))
			}
		}
		at, some = x.first(from.partition, max(p.next, at.offset+1))
	}
	return letters, nil
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

// Purge removes dead letters. On an error it returns how many are certainly gone by then.
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
	return b.erase(ctx, from, found)
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
	bytes := int32(1)
	if len(ids) > 1 { // often they stand side by side
		bytes = listBytes
	}
	var found []*kgo.Record
	var p page
	var begin spot // of p
	for _, id := range ids {
		partition, offset, ok := parseID(id)
		if _, there := x.layout.leaders[partition]; !ok || !there || offset >= x.next[partition] {
			continue
		}
		if partition != begin.partition || offset < begin.offset || offset >= p.next {
			if p, err = b.read(ctx, from, x.layout, partition, offset, bytes); err != nil {
				return nil, b.explain(err)
			}
			begin = spot{partition, offset}
		}
		for _, r := range p.records {
			if r.Offset == offset && x.has(partition, place{offset, letterKey(r)}) {
				found = append(found, r)
			}
		}
	}
	return found, nil
}

// removable reports why a letter cannot be removed: a tombstone takes the place of a key.
func removable(r *kgo.Record) error {
	if len(r.Key) == 0 {
		return fmt.Errorf("kafka: dead letter %s has no key: weir has not written it to %q, and cannot remove it", idOf(r.Partition, r.Offset), r.Topic)
	}
	return nil
}

// stoneRoom is what a tombstone takes in a batch beside its key, at most.
const stoneRoom = 32

// erase appends tombstones, of which no more are sent at once than the topic takes: the client joins
// them up to its own limit. It returns how many are stored.
func (b *Backend) erase(ctx context.Context, from string, list []*kgo.Record) (n int, err error) {
	if err := b.ensure(ctx, from, b.letterConfigs()); err != nil { // it is there; this reads what it takes
		return 0, err
	}
	most := cmp.Or(int(b.made.limit(from)), defaultBatch) - leastBatch
	for len(list) > 0 {
		var stones []*kgo.Record
		for size := 0; len(list) > 0; list = list[1:] {
			key := list[0].Key
			if size += len(key) + stoneRoom; size > most && len(stones) > 0 {
				break
			}
			stones = append(stones, &kgo.Record{Topic: from, Key: key})
		}
		results, err := b.produce(ctx, stones)
		for try := 1; errors.Is(err, backend.ErrStreamNotFound) && try < leaderTries && b.pause(ctx, leaderEvery); try++ { // it was made again
			results, err = b.produce(ctx, stones)
		}
		for i := range results {
			if results[i].Err == nil {
				n++
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
