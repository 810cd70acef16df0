package store

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Read returns the chunk of a topic in a segment that holds the number seq or,
// if none does, the first one behind it; nil if there is none. A place that is
// damaged is a *Damage, which names the file and says how far it goes.
func (s *Store) Read(segment uint32, topic, seq uint64) (*Chunk, error) {
	if c := s.chunks.get(segment, topic, seq); c != nil {
		return c, nil
	}
	c, err := s.readChunk(segment, topic, seq)
	var bad *Damage
	if errors.As(err, &bad) {
		return nil, bad
	}
	if err != nil {
		return nil, fmt.Errorf("store: %s: segment %d, topic %d, number %d: %w", s.dir, segment, topic, seq, plain{err})
	}
	if c != nil {
		s.chunks.put(segment, topic, seq, c)
	}
	return c, nil
}

func (s *Store) readChunk(segment uint32, topic, seq uint64) (*Chunk, error) {
	s.excise.RLock()
	defer s.excise.RUnlock()
	c, err := s.seekChunk(segment, topic, seq)
	if err != nil && IsDamage(err) {
		return s.readAgain(segment, topic, seq)
	}
	return c, err
}

func (s *Store) seekChunk(segment uint32, topic, seq uint64) (*Chunk, error) {
	var from, to [dataKeyLen + 1]byte
	upper := append(dataKey(to[:0], segment, topic, 1<<64-1), 0)
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: dataKey(from[:0], segment, topic, seq), UpperBound: upper})
	if err != nil {
		return nil, err
	}
	if !it.First() {
		return nil, cmp.Or(it.Error(), it.Close())
	}
	c, err := chunkAt(it)
	return c, cmp.Or(err, it.Close())
}

// chunkAt copies the chunk an iterator stands on and checks it.
func chunkAt(it *pebble.Iterator) (*Chunk, error) {
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, err
	}
	return chunkOf(it.Key(), v)
}

// chunkOf copies a chunk and checks it.
func chunkOf(k, v []byte) (*Chunk, error) {
	_, _, last, err := parseDataKey(k)
	if err != nil {
		return nil, err
	}
	c, err := ParseChunk(append([]byte(nil), v...))
	if err != nil {
		return nil, fmt.Errorf("the chunk that ends at %d: %w", last, err)
	}
	if c.Last != last {
		return nil, fmt.Errorf("%w: its key says it ends at %d, it ends at %d", ErrChunk, last, c.Last)
	}
	return c, nil
}

type cacheKey struct {
	segment uint32
	topic   uint64
}

type cacheEntry struct {
	key  cacheKey
	from uint64 // every number from here to c.Last is answered by c
	c    *Chunk
}

// chunkCache holds the chunks read last. When full, the one not read for the
// longest time goes.
type chunkCache struct {
	mu      sync.Mutex
	limit   int64
	size    int64
	recent  list.List // of *cacheEntry, the last read one in front
	entries map[cacheKey][]*list.Element
}

func (cc *chunkCache) init(limit int64) {
	cc.limit = limit
	cc.entries = make(map[cacheKey][]*list.Element)
}

func (cc *chunkCache) get(segment uint32, topic, seq uint64) *Chunk {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for _, el := range cc.entries[cacheKey{segment, topic}] {
		if e := el.Value.(*cacheEntry); e.from <= seq && seq <= e.c.Last {
			cc.recent.MoveToFront(el)
			return e.c
		}
	}
	return nil
}

// put adds the chunk that answers seq.
func (cc *chunkCache) put(segment uint32, topic, seq uint64, c *Chunk) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	k := cacheKey{segment, topic}
	for _, el := range cc.entries[k] {
		if e := el.Value.(*cacheEntry); e.c.Last == c.Last {
			e.from = min(e.from, seq)
			return
		}
	}
	e := &cacheEntry{key: k, from: min(seq, c.First), c: c}
	cc.entries[k] = append(cc.entries[k], cc.recent.PushFront(e))
	cc.size += int64(c.size)
	for cc.size > cc.limit && cc.recent.Len() > 0 {
		cc.remove(cc.recent.Back())
	}
}

func (cc *chunkCache) remove(el *list.Element) {
	e := cc.recent.Remove(el).(*cacheEntry)
	cc.size -= int64(e.c.size)
	els := cc.entries[e.key]
	for i := range els {
		if els[i] == el {
			els[i] = els[len(els)-1]
			els = els[:len(els)-1]
			break
		}
	}
	if len(els) == 0 {
		delete(cc.entries, e.key)
		return
	}
	cc.entries[e.key] = els
}

// forget drops the chunks of a segment.
func (cc *chunkCache) forget(segment uint32) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for el := cc.recent.Front(); el != nil; {
		next := el.Next()
		if el.Value.(*cacheEntry).key.segment == segment {
			cc.remove(el)
		}
		el = next
	}
}
