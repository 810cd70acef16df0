package store

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// Read returns the chunk of a topic in a segment that holds the number seq or,
// if none does, the first one behind it; nil if there is none. A place that is
// damaged is a *Damage, which names the file and says how far it goes. Whoever is done
// with the chunk and with what its records point to calls Release.
func (s *Store) Read(segment uint32, topic, seq uint64) (*Chunk, error) {
	k := cacheKey{segment, topic}
	c, r, begun := s.chunks.find(k, seq)
	for joined := 0; c == nil && begun && joined < maxJoined; joined++ {
		<-r.done
		c, r, begun = s.chunks.find(k, seq)
	}
	if c != nil {
		return c, nil
	}
	if !begun {
		defer s.chunks.ended(k, r)
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
		c.users.Store(1)
		s.chunks.put(k, seq, c)
	}
	return c, nil
}

// Cached is Read of what is in memory: nil for the rest. It reads no file.
func (s *Store) Cached(segment uint32, topic, seq uint64) *Chunk {
	return s.chunks.get(cacheKey{segment, topic}, seq)
}

// readChunk reads a chunk from the tables. It holds no lock that a change of them needs: a disk
// may take long over one place, and who waited for that would stop all other reads.
func (s *Store) readChunk(segment uint32, topic, seq uint64) (*Chunk, error) {
	for {
		before := s.excised.Load()
		c, err := s.readOnce(segment, topic, seq)
		if c != nil || before%2 == 0 && s.excised.Load() == before {
			return c, err
		}
		// It looked while keys were taken out, and may have found neither them nor what
		// comes in their place.
		s.awaitExcise()
	}
}

// awaitExcise returns once no keys are being taken out.
func (s *Store) awaitExcise() {
	s.excising.RLock()
	defer s.excising.RUnlock()
}

func (s *Store) readOnce(segment uint32, topic, seq uint64) (*Chunk, error) {
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
	b := chunkBuffers.Get().(*[]byte)
	*b = append((*b)[:0], v...)
	c, err := ParseChunk(*b)
	if err != nil {
		return nil, fmt.Errorf("the chunk that ends at %d: %w", last, err)
	}
	if c.Last != last {
		return nil, fmt.Errorf("%w: its key says it ends at %d, it ends at %d", ErrChunk, last, c.Last)
	}
	c.buf = b
	return c, nil
}

// chunkBuffers are the bytes of chunks that nobody uses any more.
var chunkBuffers = sync.Pool{New: func() any { return new([]byte) }}

// Release says that the caller of Read does not use the chunk any more. The last one to
// say so, the cache included, gives back its bytes; a chunk that is not released
// keeps them.
func (c *Chunk) Release() {
	if c.users.Add(-1) == 0 && c.size <= chunkTarget {
		chunkBuffers.Put(c.buf)
	}
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

// Who wants a number no further than nearby from one that is being read waits for that
// chunk, since it is probably the same, but not for more than maxJoined that are not.
const (
	nearby    = 1024
	maxJoined = 2
)

// reading is a chunk on its way from the disk.
type reading struct {
	seq  uint64
	done chan struct{} // closed when it is in the cache, or has failed
}

// chunkCache holds the chunks read last. When full, the one not read for the
// longest time goes. The workers of a queue want the same chunk at the same time:
// one of them reads it.
type chunkCache struct {
	mu      sync.Mutex
	limit   int64
	size    int64
	recent  list.List // of *cacheEntry, the last read one in front
	entries map[cacheKey][]*list.Element
	reads   map[cacheKey][]*reading
}

func (cc *chunkCache) init(limit int64) {
	cc.limit = limit
	cc.entries = make(map[cacheKey][]*list.Element)
	cc.reads = make(map[cacheKey][]*reading)
}

// find returns the chunk that answers seq or, if it is not there, the reading of one nearby
// that somebody else has begun, or else a new one, which the caller has to end.
func (cc *chunkCache) find(k cacheKey, seq uint64) (c *Chunk, r *reading, begun bool) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	if c := cc.getLocked(k, seq); c != nil {
		return c, nil, false
	}
	for _, r := range cc.reads[k] {
		if max(r.seq, seq)-min(r.seq, seq) <= nearby {
			return nil, r, true
		}
	}
	r = &reading{seq: seq, done: make(chan struct{})}
	cc.reads[k] = append(cc.reads[k], r)
	return nil, r, false
}

// get returns the chunk that answers seq, nil if it is not there.
func (cc *chunkCache) get(k cacheKey, seq uint64) *Chunk {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	return cc.getLocked(k, seq)
}

func (cc *chunkCache) getLocked(k cacheKey, seq uint64) *Chunk {
	for _, el := range cc.entries[k] {
		if e := el.Value.(*cacheEntry); e.from <= seq && seq <= e.c.Last {
			cc.recent.MoveToFront(el)
			e.c.users.Add(1)
			return e.c
		}
	}
	return nil
}

// ended lets those go on who wait for a reading.
func (cc *chunkCache) ended(k cacheKey, r *reading) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	left := slices.DeleteFunc(cc.reads[k], func(o *reading) bool { return o == r })
	if cc.reads[k] = left; len(left) == 0 {
		delete(cc.reads, k)
	}
	close(r.done)
}

// put adds the chunk that answers seq.
func (cc *chunkCache) put(k cacheKey, seq uint64, c *Chunk) {
	cc.mu.Lock()
	defer cc.mu.Unlock()
	for _, el := range cc.entries[k] {
		if e := el.Value.(*cacheEntry); e.c.Last == c.Last {
			e.from = min(e.from, seq)
			return
		}
	}
	c.users.Add(1)
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
	e.c.Release()
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
