package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// HighestTopic is the highest number of a topic that any segment holds records
// or keys of, also of one that was dropped: what is left of it would pass for
// part of a new topic of the same number.
func (s *Store) HighestTopic() (uint64, error) {
	s.excising.RLock()
	defer s.excising.RUnlock()
	s.segments.Lock()
	segments := make([]uint32, 0, len(s.segments.m))
	for number := range s.segments.m {
		segments = append(segments, number)
	}
	s.segments.Unlock()
	highest := uint64(0)
	for _, number := range segments {
		for _, prefix := range []byte{prefixData, prefixKey} {
			topic, err := s.lastTopic(prefix, number)
			if err != nil && IsDamage(err) {
				topic, err = s.boundTopic(prefix, number, err)
			}
			if err != nil {
				return 0, fmt.Errorf("store: %s: segment %d: %w", s.dir, number, plain{err})
			}
			highest = max(highest, topic)
		}
	}
	return highest, nil
}

// lastTopic is the highest topic that a segment has under a prefix, 0 if none.
func (s *Store) lastTopic(prefix byte, segment uint32) (topic uint64, err error) {
	from, to := segmentSpan(prefix, segment)
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return 0, err
	}
	if it.Last() {
		if k := it.Key(); len(k) >= len(from)+8 {
			topic = binary.BigEndian.Uint64(k[len(from):])
		} else {
			err = badKey(k)
		}
	}
	return topic, cmp.Or(err, it.Close())
}

// boundTopic is lastTopic of a segment whose last records are damaged, from the list of tables. It
// returns damage if that does not tell.
func (s *Store) boundTopic(prefix byte, segment uint32, damage error) (topic uint64, err error) {
	from, to := segmentSpan(prefix, segment)
	levels, err := s.kv.Load().SSTables(pebble.WithKeyRangeFilter(from, to))
	if err != nil {
		return 0, err
	}
	for _, level := range levels {
		for _, table := range level {
			k := table.Largest.UserKey
			if bytes.Compare(k, to) >= 0 || len(k) < len(from)+8 {
				return 0, damage
			}
			topic = max(topic, binary.BigEndian.Uint64(k[len(from):]))
		}
	}
	return topic, nil
}
