package engine

import (
	"math/rand/v2"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	ballastFile = "BALLAST"
	// ballastBytes is far more than a segment's removal writes: one small table and an
	// entry of the store's list.
	ballastBytes = 1 << 20
)

// ballast is a file that is there to be removed: a segment in which nothing lives is given
// back by writing a little, and on a disk that somebody else has filled to the last byte
// that little has to come from somewhere.
type ballast struct {
	fs   vfs.FS
	name string

	mu   sync.Mutex
	held bool
}

// hold makes the file unless it is there. A disk that has no room for it goes without.
func (b *ballast) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held {
		return
	}
	if info, err := b.fs.Stat(b.name); err == nil && info.Size() == ballastBytes {
		b.held = true
		return
	}
	content := make([]byte, ballastBytes)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // a file system that compresses must not make it smaller; never fails
	if err := writeSynced(b.fs, b.name, content); err != nil {
		_ = b.fs.Remove(b.name) // the next try writes all of it
		return
	}
	b.held = true
}

// give removes the file and reports whether there was one.
func (b *ballast) give() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	given := b.held && b.fs.Remove(b.name) == nil
	b.held = b.held && !given
	return given
}
