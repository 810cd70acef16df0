// Package crashfs is a file system in memory that can be cloned as a power cut would leave it, also
// while others change it.
package crashfs

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a vfs.MemFS without its deadlock: that one takes the same lock twice for a link, and a clone
// that waits for the lock in between stops both for ever.
type FS struct {
	*vfs.MemFS
	linking sync.RWMutex
}

// New returns an empty file system.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// Link implements vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	f.linking.RLock()
	defer f.linking.RUnlock()
	return f.MemFS.Link(oldname, newname)
}

// CrashClone is that of vfs.MemFS.
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *FS {
	f.linking.Lock()
	defer f.linking.Unlock()
	return &FS{MemFS: f.MemFS.CrashClone(cfg)}
}
