package store

import (
	"cmp"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirmq/weir/internal/op"
)

// Verify reads every key and value and reports what it finds: the name of a
// table and nil if it is sound, the name (empty if it is not known) and what is
// wrong otherwise. It continues after damage where it can.
func (s *Store) Verify(report func(table string, err error)) {
	levels, err := s.kv.Load().SSTables()
	if err != nil {
		report("", err)
		return
	}
	for _, level := range levels {
		for _, info := range level {
			name := fmt.Sprintf("%s.sst", info.BackingSSTNum)
			from := info.Smallest.UserKey
			to := append(append([]byte(nil), info.Largest.UserKey...), 0)
			err := s.verifySpan(from, to)
			if err != nil {
				err = plain{err}
			}
			report(name, err)
		}
	}
}

// verifySpan reads all keys from from up to but without to.
func (s *Store) verifySpan(from, to []byte) error {
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	var bad error
	for ok := it.First(); ok; ok = it.Next() {
		if err := verifyKey(it); err != nil && bad == nil {
			bad = err
		}
	}
	return cmp.Or(bad, it.Error(), it.Close())
}

func verifyKey(it *pebble.Iterator) error {
	k := it.Key()
	v, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	switch k[0] {
	case prefixData:
		_, err = chunkAt(it)
	case prefixKey:
		_, err = parseIdempotency(k, v)
	case prefixTopic:
		var topic uint64
		if topic, err = keyTopic(k, topicKeyLen); err == nil {
			_, err = decodeState(topic, v)
		}
	case prefixLease:
		_, err = parseLease(k, v)
	case prefixRouter:
		_, err = parseRoute(k, v)
	case prefixWatch:
		_, err = parseWatch(k, v)
	case prefixRun:
		_, err = parseRun(k, v)
	case prefixSegment:
		_, _, err = parseSegment(k, v)
	case prefixPage:
		var h op.Holes
		if len(k) != topicNumberKeyLen {
			err = badKey(k)
		} else if !h.SetPage(pageNumber(k), v) {
			err = badValue(k)
		}
	case prefixClock:
		_, err = op.DecodeClock(v)
	case prefixFormat, prefixApplied:
	default:
		err = badKey(k)
	}
	return err
}
