package store

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/op"
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
