package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableFile is a table that is read block by block, each of which is checked. Pebble
// checks them, too, but tries for each one that is damaged which single bit may have
// flipped: that takes seconds, for a large record a minute, whenever the block is read.
type tableFile struct {
	vfs.File
	name string
}

// openTable opens a file whose reads are checked if it is a table.
func openTable(fs vfs.FS, name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	return tableFile{f, fs.PathBase(name)}, nil
}

// ReadAt reads one block with its trailer, or the footer.
func (f tableFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if err == nil && !intact(p) {
		err = &blockError{f.name, off, len(p) - blockTrailer}
	}
	return n, err
}

// blockTrailer follows each block: how it is compressed, and the sum of both.
const blockTrailer = 1 + 4

// tableMagic ends a table. The footer in front of it has no sum.
const tableMagic = "\xf0\x9f\xaa\xb3\xf0\x9f\xaa\xb3"

// intact reports whether a block has the sum in its trailer.
func intact(b []byte) bool {
	if len(b) < blockTrailer {
		return false
	}
	data, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	return pebbleSum(data) == sum || bytes.HasSuffix(b, []byte(tableMagic))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pebbleSum is the checksum of Pebble's files.
func pebbleSum(b []byte) uint32 {
	return bits.RotateLeft32(crc32.Checksum(b, castagnoli), 17) + 0xa282ead8
}

// blockError says that a block of a table is damaged.
type blockError struct {
	table  string
	offset int64
	length int
}

func (e *blockError) Error() string {
	return fmt.Sprintf("%s: the checksum of the block at %d (%d bytes) does not match", e.table, e.offset, e.length)
}

// Is makes it a corruption error of Pebble.
func (e *blockError) Is(target error) bool { return target == pebble.ErrCorruption }
