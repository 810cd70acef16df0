package store

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	dataBlockBytes = 64 << 10
	metaBlockBytes = 8 << 10
	syncEvery      = 1 << 20 // a table is handed to the disk in steps of this size
	paceEvery      = 256 << 10
	tableFormat    = sstable.TableFormatPebblev4
)

// wholeKeys is Pebble's order of keys, but in the index of a table it keeps the last key of
// each block as it is. A shortened one lies between the last numbers of two chunks, and who
// looks for a number in front of it would read the block of the chunk before as well.
var wholeKeys = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Separator = func(dst, a, _ []byte) []byte { return append(dst, a...) }
	c.Successor = func(dst, a []byte) []byte { return append(dst, a...) }
	return &c
}()

// Pacer holds the builder of tables back so that it does not disturb the log.
type Pacer interface {
	// Wait returns when n more bytes may be written, or with the context's error.
	Wait(ctx context.Context, n int) error
}

// tables writes the tables of one change into the stage.
type tables struct {
	ctx   context.Context
	s     *Store
	pace  Pacer
	owed  int // bytes written since the last Wait
	paths []string
}

// wait counts n written bytes and lets the pacer hold the builder back.
func (t *tables) wait(n int) error {
	if t.owed += n; t.owed < paceEvery {
		return nil
	}
	owed := t.owed
	t.owed = 0
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if t.pace == nil {
		return nil
	}
	return t.pace.Wait(t.ctx, owed)
}

// table is one table being written; keys come in ascending order. It is created
// with its first key.
type table struct {
	t     *tables
	block int
	w     *sstable.Writer
	bytes int
}

func (t *tables) table(blockBytes int) *table { return &table{t: t, block: blockBytes} }

func (tb *table) open() error {
	t := tb.t
	t.s.staged++
	path := t.s.fs.PathJoin(t.s.stage, fmt.Sprintf("%06d.sst", t.s.staged))
	f, err := t.s.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	t.paths = append(t.paths, path)
	f = vfs.NewSyncingFile(f, vfs.SyncingFileOptions{BytesPerSync: syncEvery})
	tb.w = sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{
		Comparer:       wholeKeys,
		BlockSize:      tb.block,
		IndexBlockSize: 64 << 10,
		Compression:    sstable.NoCompression,
		Checksum:       block.ChecksumTypeCRC32c,
		TableFormat:    tableFormat,
	})
	tb.bytes = 0
	return nil
}

func (tb *table) set(key, value []byte) error {
	if tb.w == nil {
		if err := tb.open(); err != nil {
			return err
		}
	}
	n := len(key) + len(value)
	if err := tb.t.wait(n); err != nil {
		return err
	}
	tb.bytes += n
	return tb.w.Set(key, value)
}

func (tb *table) delete(key []byte) error {
	if tb.w == nil {
		if err := tb.open(); err != nil {
			return err
		}
	}
	return tb.w.Delete(key)
}

// close finishes the table and makes it durable; without a key there is none.
func (tb *table) close() error {
	if tb.w == nil {
		return nil
	}
	w := tb.w
	tb.w = nil
	return w.Close()
}

// abandon closes the writers that are open and removes what was staged.
func (t *tables) abandon(open ...*table) {
	for _, tb := range open {
		if tb.w != nil {
			_ = tb.w.Close()
			tb.w = nil
		}
	}
	for _, p := range t.paths {
		_ = t.s.fs.Remove(p)
	}
}
