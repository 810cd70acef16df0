package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/wal"
)

// IsDamage reports whether an error means that a file was changed by something
// other than the store. A failed call of the disk is no damage.
func IsDamage(err error) bool {
	return pebble.IsCorruptionError(err) || errors.Is(err, errMalformed) || errors.Is(err, ErrChunk) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

var errMalformed = errors.New("malformed entry")

// Damage is the error of a read at a place whose checksum does not match, also
// not when the file is opened anew and read past all caches. Whatever the
// segment holds of the topic under the numbers From to To is lost.
type Damage struct {
	Segment  uint32
	Topic    uint64
	From, To uint64
	Table    string // path of the file
	Err      error
}

func (d *Damage) Error() string {
	return fmt.Sprintf("store: %s: segment %d, topic %d, number %d: %v", d.Table, d.Segment, d.Topic, d.From, plain{d.Err})
}

func (d *Damage) Unwrap() error { return d.Err }

// plain is an error of Pebble without the lines that are meant for its authors.
type plain struct{ error }

func (p plain) Error() string {
	return strings.ReplaceAll(p.error.Error(), "\n<corruption detail carrier>", "")
}

func (p plain) Unwrap() error { return p.error }

// readAgain reads a chunk from files opened for it alone. What can be read is
// no damage; what cannot is a *Damage that says how far it goes.
func (s *Store) readAgain(segment uint32, topic, seq uint64) (*Chunk, error) {
	a := again{s: s, segment: segment, topic: topic}
	defer a.close()
	c, err := a.probe(seq)
	if err == nil || !IsDamage(err) {
		return c, err
	}
	d := &Damage{Segment: segment, Topic: topic, From: seq, To: 1<<64 - 1, Table: a.table, Err: err}
	next, ok, err := a.behind(seq, d.Err.Error())
	if err != nil || !ok {
		return nil, cmp.Or(err, error(d))
	}
	c, err = a.probe(next)
	switch {
	case err != nil && !IsDamage(err):
		return nil, err
	case err != nil:
		d.To = next - 1
	case c != nil && c.First <= seq:
		return c, nil // the key of a block may be higher than what is in it
	case c != nil:
		d.To = c.First - 1
	}
	return nil, d
}

// again reads a topic's chunks in a segment past all caches.
type again struct {
	s       *Store
	segment uint32
	topic   uint64
	tables  []*freshTable
	listed  bool
	table   string // that the last probe read
}

// behind returns the lowest number above seq at which a read ends otherwise
// than with the error said, which names the damaged block; false if there is
// none. All numbers that a block answers for follow each other.
func (a *again) behind(seq uint64, said string) (next uint64, ok bool, err error) {
	same := func(seq uint64) bool {
		_, perr := a.probe(seq)
		if perr != nil && !IsDamage(perr) {
			err = cmp.Or(err, perr)
		}
		return perr != nil && perr.Error() == said
	}
	bad, good := seq, uint64(0)
	for step := uint64(1); good == 0; step *= 2 {
		at := bad + min(step, 1<<64-1-bad)
		if !same(at) {
			good = at
		} else if bad = at; at == 1<<64-1 {
			return 0, false, err
		}
	}
	for bad+1 < good {
		if at := bad + (good-bad)/2; same(at) {
			bad = at
		} else {
			good = at
		}
	}
	return good, true, err
}

// probe returns the chunk that holds seq or comes next, nil if there is none.
func (a *again) probe(seq uint64) (*Chunk, error) {
	var from, to [dataKeyLen + 1]byte
	lower := dataKey(from[:0], a.segment, a.topic, seq)
	upper := append(dataKey(to[:0], a.segment, a.topic, 1<<64-1), 0)
	if err := a.list(); err != nil {
		return nil, err
	}
	for _, t := range a.tables {
		if slices.Compare(t.largest, lower) < 0 || slices.Compare(t.smallest, upper) >= 0 {
			continue
		}
		a.table = t.path
		c, err := t.read(lower, upper)
		if c != nil || err != nil {
			return c, err
		}
	}
	return nil, nil
}

// list finds the tables of the segment.
func (a *again) list() error {
	if a.listed {
		return nil
	}
	a.listed = true
	from, to := segmentSpan(prefixData, a.segment)
	levels, err := a.s.kv.Load().SSTables(pebble.WithKeyRangeFilter(from, to))
	if err != nil {
		return err
	}
	for _, level := range levels {
		for _, info := range level {
			a.tables = append(a.tables, &freshTable{fs: a.s.fs, path: a.s.tablePath(info),
				smallest: slices.Clone(info.Smallest.UserKey), largest: slices.Clone(info.Largest.UserKey)})
		}
	}
	slices.SortFunc(a.tables, func(x, y *freshTable) int { return slices.Compare(x.smallest, y.smallest) })
	return nil
}

func (s *Store) tablePath(info pebble.SSTableInfo) string {
	return s.fs.PathJoin(s.dir, fmt.Sprintf("%s.sst", info.BackingSSTNum))
}

func (a *again) close() {
	for _, t := range a.tables {
		t.close()
	}
}

// freshTable is a table that is read past Pebble: with a file of its own, no
// cache of blocks, and without what the system keeps of it.
type freshTable struct {
	fs                vfs.FS
	path              string
	smallest, largest []byte
	reader            *sstable.Reader
	failed            error
}

func (t *freshTable) open() error {
	if t.reader != nil || t.failed != nil {
		return t.failed
	}
	t.failed = func() error {
		f, err := openTable(t.fs, t.path, vfs.RandomReadsOption)
		if err != nil {
			return err
		}
		wal.ForgetCached(f.Fd())
		readable, err := sstable.NewSimpleReadable(f)
		if err != nil {
			return cmp.Or(err, f.Close())
		}
		if t.reader, err = sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{}); err != nil {
			t.reader = nil
			return cmp.Or(err, readable.Close())
		}
		return nil
	}()
	return t.failed
}

func (t *freshTable) close() {
	if t.reader != nil {
		_ = t.reader.Close()
	}
}

// read returns the first chunk from lower up to but without upper.
func (t *freshTable) read(lower, upper []byte) (*Chunk, error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	it, err := t.reader.NewIter(sstable.NoTransforms, lower, upper, sstable.AssertNoBlobHandles)
	if err != nil {
		return nil, err
	}
	kv := it.First()
	if kv == nil {
		return nil, cmp.Or(it.Error(), it.Close())
	}
	v, _, err := kv.Value(nil)
	var c *Chunk
	if err == nil {
		c, err = chunkOf(kv.K.UserKey, v)
	}
	return c, cmp.Or(err, it.Close())
}
