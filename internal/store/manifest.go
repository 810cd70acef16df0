package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// ManifestError says that Pebble's list of the tables cannot be read to its
// end. Pebble takes the readable beginning for all of it: an older store.
type ManifestError struct {
	File   string
	Offset int64
	// Torn says that nothing readable follows, as after a power cut in the
	// middle of a write, which lost nothing.
	Torn bool
}

func (e *ManifestError) Error() string {
	if e.Torn {
		return fmt.Sprintf("%s: offset %d: the end of the list of tables cannot be read", e.File, e.Offset)
	}
	return fmt.Sprintf("%s: offset %d: the list of tables is damaged", e.File, e.Offset)
}

// The manifest is a sequence of blocks; a record of it is one or more chunks,
// none of which crosses a block.
const (
	manifestBlock = 32 << 10
	chunkHeader   = 7 // checksum u32, length u16, part u8
	chunkFull     = 1
	chunkFirst    = 2
	chunkMiddle   = 3
	chunkLast     = 4
)

// manifestChunk returns the part and the size of the chunk that b, the rest of a
// block, begins with; ok is false if there is no intact one.
func manifestChunk(b []byte) (part byte, size int, ok bool) {
	if len(b) < chunkHeader || b[6] < chunkFull || b[6] > chunkLast {
		return 0, 0, false
	}
	size = chunkHeader + int(binary.LittleEndian.Uint16(b[4:]))
	if size > len(b) {
		return 0, 0, false
	}
	return b[6], size, binary.LittleEndian.Uint32(b) == pebbleSum(b[6:size])
}

// checkManifest reads the list of tables in the way Pebble does. It returns
// where the list cannot be read, nil if it can; a directory without one is not
// its concern.
func checkManifest(fs vfs.FS, dir string) (*ManifestError, error) {
	name, err := atomicfs.ReadMarker(fs, dir, "manifest")
	if errors.Is(err, os.ErrNotExist) || err == nil && name == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	path := fs.PathJoin(dir, name)
	b, err := readAll(fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at, whole := manifestEnd(b)
	if whole {
		return nil, nil
	}
	return &ManifestError{File: path, Offset: int64(at), Torn: !chunkBehind(b, at)}, nil
}

// manifestEnd returns where the readable beginning of the list ends, and
// whether that is all of it.
func manifestEnd(b []byte) (at int, whole bool) {
	begun, record := false, 0 // inside a record, which began at record
	for at < len(b) {
		rest := b[at:min(at-at%manifestBlock+manifestBlock, len(b))]
		if len(rest) < chunkHeader && at-at%manifestBlock+manifestBlock <= len(b) {
			if !zero(rest) {
				break
			}
			at += len(rest) // no room for a chunk
			continue
		}
		part, size, ok := manifestChunk(rest)
		if !ok || begun != (part == chunkMiddle || part == chunkLast) {
			break
		}
		if !begun {
			record = at
		}
		begun = part == chunkFirst || part == chunkMiddle
		at += size
	}
	if begun {
		return record, false
	}
	return at, at == len(b)
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// chunkBehind reports whether an intact chunk follows behind at.
func chunkBehind(b []byte, at int) bool {
	for i := at + 1; i < len(b); i++ {
		if _, _, ok := manifestChunk(b[i:min(i-i%manifestBlock+manifestBlock, len(b))]); ok {
			return true
		}
	}
	return false
}

func readAll(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); len(b) > 0 && err != nil {
		return nil, err
	}
	return b, nil
}
