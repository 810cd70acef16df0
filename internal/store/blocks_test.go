package store

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
	"github.com/weirmq/weir/internal/op"
)

// sealRecords seals n records of so many bytes, of topic 1, as the next segment.
func sealRecords(t *testing.T, s *Store, segment uint32, first, n uint64, size int) {
	t.Helper()
	lsn := s.Applied()
	var ops []Op
	add := func(payload []byte) {
		lsn++
		ops = append(ops, Op{LSN: lsn, Payload: payload})
	}
	if lsn == 0 {
		add((&op.Part{Kind: op.KindCreate, Topic: 1, Name: "t", Config: api.DefaultConfig()}).Encode(nil))
	}
	for seq := first; seq < first+n; seq++ {
		p := op.Part{Kind: op.KindAppend, Topic: 1, First: seq, N: 1, Bytes: uint64(size), TS: int64(seq)}
		add(op.AppendFrame(p.Encode(nil), &api.Record{Data: bytes.Repeat([]byte("7"), size)}))
	}
	_, _, err := s.Seal(t.Context(), segment, lsn, func(fn func(Op) error) error {
		for _, o := range ops {
			if err := fn(o); err != nil {
				return err
			}
		}
		return nil
	}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// tableOf returns the name of the table that holds the records of a segment.
func tableOf(t *testing.T, s *Store, segment uint32) string {
	t.Helper()
	from, to := segmentSpan(prefixData, segment)
	levels, err := s.kv.Load().SSTables(pebble.WithKeyRangeFilter(from, to))
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range levels {
		for _, info := range level {
			if bytes.Compare(info.Smallest.UserKey, from) >= 0 && bytes.Compare(info.Largest.UserKey, to) < 0 {
				return s.tablePath(info)
			}
		}
	}
	t.Fatalf("segment %d has no table", segment)
	return ""
}

// Pebble looks for the bit that may have flipped in a damaged block, each time it is read.
func TestADamagedBlockTakesNoLongerThanAnother(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, Options{FS: fs, Dir: "/data", CacheBytes: 1, ChunkCacheBytes: 1})
	defer s.Close()
	sealRecords(t, s, 0, 1, 3, 1<<20)
	begin := cpu()
	if _, err := s.Read(0, 1, 3); err != nil {
		t.Fatal(err)
	}
	whole := cpu() - begin
	flip(t, fs, tableOf(t, s, 0), 1<<20)
	begin = cpu()
	var d *Damage
	if _, err := s.Read(0, 1, 1); !errors.As(err, &d) || d.From != 1 || d.To != 1 {
		t.Fatalf("the damaged record: %v", err)
	}
	if took := cpu() - begin; took > 100*whole+time.Second {
		t.Errorf("a damaged record of a MiB took %v of the processor, a whole one %v", took, whole)
	}
}
