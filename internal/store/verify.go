package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/weirmq/weir/internal/op"
)

// Verify reads every key and value and reports what it finds: the name of a
// table and nil if it is sound, the name (empty if it is not known) and what is
// wrong otherwise. It continues after damage where it can. progress is told how many bytes
// of the tables have been read, of how many. The error is that of ctx.
func (s *Store) Verify(ctx context.Context, report func(table string, err error), progress func(read, all int64)) error {
	levels, err := s.kv.Load().SSTables()
	if err != nil {
		report("", err)
		return nil
	}
	tables := slices.Concat(levels...)
	var read, all int64
	for _, info := range tables {
		all += int64(info.Size)
	}
	for _, info := range tables {
		from := info.Smallest.UserKey
		to := append(append([]byte(nil), info.Largest.UserKey...), 0)
		err := s.verifySpan(ctx, from, to)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			err = plain{err}
		}
		report(fmt.Sprintf("%s.sst", info.BackingSSTNum), err)
		read += int64(info.Size)
		progress(read, all)
	}
	return nil
}

// verifySpan reads all keys from from up to but without to, or until ctx ends.
func (s *Store) verifySpan(ctx context.Context, from, to []byte) error {
	it, err := s.kv.Load().NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	var bad error
	for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
		if err := verifyKey(it); err != nil && bad == nil {
			bad = err
		}
	}
	return cmp.Or(bad, it.Error(), it.Close(), ctx.Err())
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
