package store

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/weirmq/weir/internal/op"
	"github.com/weirmq/weir/tests/bubble"
)

// sealAppends seals one segment of appends to one topic, followed by more parts.
func sealAppends(t *testing.T, size int, view View, more ...*op.Part) (*Store, []Run, error) {
	t.Helper()
	s := openStore(t, Options{FS: vfs.NewMem(), Dir: "/data"})
	t.Cleanup(func() { s.Close() })
	lsn, ops, _ := appends(1, 10, size)
	for _, p := range more {
		lsn++
		ops = append(ops, Op{LSN: lsn, Payload: p.Encode(nil)})
	}
	runs, _, err := s.Seal(context.Background(), 0, lsn, func(fn func(Op) error) error {
		for _, o := range ops {
			if err := fn(o); err != nil {
				return err
			}
		}
		return nil
	}, view, nil)
	return s, runs, err
}

func TestReadFindsTheChunkWhateverWasReadBefore(t *testing.T) {
	s, runs, err := sealAppends(t, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	for seq := runs[0].Last; seq >= 1; seq -= 7 {
		c, err := s.Read(0, 1, seq)
		if err != nil {
			t.Fatal(err)
		}
		if c == nil || seq < c.First || seq > c.Last {
			t.Fatalf("number %d: chunk %+v", seq, c)
		}
		if seq < 8 {
			break
		}
	}
	if c, err := s.Read(0, 1, runs[0].Last+1); c != nil || err != nil {
		t.Fatalf("behind the end: %v, %v", c, err)
	}
	if c, err := s.Read(0, 2, 1); c != nil || err != nil {
		t.Fatalf("another topic: %v, %v", c, err)
	}
}

// gate counts the reads of tables and, while it is shut, holds them.
type gate struct {
	reads atomic.Int64
	shut  atomic.Pointer[chan struct{}]
}

func (g *gate) String() string { return "gate" }

func (g *gate) MaybeError(o errorfs.Op) error {
	if o.Kind == errorfs.OpFileReadAt && strings.HasSuffix(o.Path, ".sst") {
		g.reads.Add(1)
		if shut := g.shut.Load(); shut != nil {
			<-*shut
		}
	}
	return nil
}

// sealBehind seals a segment of one topic, whose tables are then read through the gate.
func sealBehind(t *testing.T, g *gate, size int) (*Store, Run) {
	t.Helper()
	s := openStore(t, Options{FS: errorfs.Wrap(vfs.NewMem(), g), Dir: "/data", CacheBytes: 1, ChunkCacheBytes: 1 << 20})
	t.Cleanup(func() { s.Close() })
	lsn, ops, _ := appends(1, 10, size)
	runs, _, err := s.Seal(context.Background(), 0, lsn, func(fn func(Op) error) error {
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
	return s, runs[0]
}

// The workers of a queue claim jobs next to each other at the same time.
func TestAChunkIsReadOnceForAllWhoWantIt(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var g gate
		s, run := sealBehind(t, &g, 1<<20)
		shut := make(chan struct{})
		g.shut.Store(&shut)
		var got [64]*Chunk
		for i := range got {
			go func() { got[i], _ = s.Read(0, run.Topic, uint64(300-i)) }()
		}
		synctest.Wait()
		close(shut)
		synctest.Wait()
		for i, c := range got {
			if c == nil || c != got[0] {
				t.Fatalf("number %d has the chunk %p, number 300 has %p", 300-i, c, got[0])
			}
		}
	})
}

// Who waits for a chunk that others read gets another one if it is not theirs.
func TestReadsNextToEachOtherEndAlsoInAnotherChunk(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		var g gate
		s, run := sealBehind(t, &g, 1<<20)
		shut := make(chan struct{})
		g.shut.Store(&shut)
		var got [20]*Chunk
		for i := range got {
			go func() { got[i], _ = s.Read(0, run.Topic, uint64(1+100*i)) }()
		}
		synctest.Wait()
		close(shut)
		synctest.Wait()
		for i, c := range got {
			if seq := uint64(1 + 100*i); c == nil || seq < c.First || seq > c.Last {
				t.Fatalf("number %d: chunk %+v", seq, c)
			}
		}
	})
}

func TestToFindAChunkNoOtherIsRead(t *testing.T) {
	var g gate
	s, run := sealBehind(t, &g, 8<<20)
	if _, err := s.Read(0, run.Topic, run.Last); err != nil { // opens the table
		t.Fatal(err)
	}
	chunks, before := int64(0), g.reads.Load()
	for seq := uint64(1); seq < run.Last-1000; chunks++ {
		c, err := s.Read(0, run.Topic, seq)
		if err != nil {
			t.Fatal(err)
		}
		seq = c.Last + 1
	}
	if n := g.reads.Load() - before; n > 2*chunks { // one for the index, which the cache has no room for
		t.Fatalf("%d reads of the table for %d chunks", n, chunks)
	}
}

func TestSealLeavesOutWhatItsSegmentEvicts(t *testing.T) {
	_, runs, err := sealAppends(t, 100_000, nil, &op.Part{Kind: op.KindEvict, Topic: 1, To: 30, N: 30, Bytes: 30 * 256, Cause: op.CauseCap})
	if err != nil || len(runs) != 1 || runs[0].First != 31 {
		t.Fatalf("runs %+v, %v", runs, err)
	}
}

type unsyncable struct{ everyNth }

var errSync = errors.New("no sync")

func (unsyncable) Sync() error { return errSync }

func TestNothingIsTakenInBeforeWhatItReliesOnIsDurable(t *testing.T) {
	s, _, err := sealAppends(t, 10_000, unsyncable{2})
	if !errors.Is(err, errSync) || s.Applied() != 0 || len(s.Segments()) != 0 {
		t.Fatalf("applied %d, segments %v, %v", s.Applied(), s.Segments(), err)
	}
	s, _, err = sealAppends(t, 10_000, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := s.Segments()
	if _, err := s.Rewrite(context.Background(), 0, unsyncable{2}, nil); !errors.Is(err, errSync) || s.Segments()[0] != before[0] {
		t.Fatalf("segments %v, %v", s.Segments(), err)
	}
}
