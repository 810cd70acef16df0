package wal

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A call is one change of the file system that is about to happen.
type call struct {
	n    int    // counted from 0
	kind string // create open remove rename write sync dirsync
	path string
	to   string // of a rename
	// part does the first n bytes of a write.
	part func(n int)
	size int // of a write
	// sync does a sync, for a hook that then returns errDone.
	sync func() error
	// prepares says that a sync is the first of a file since that was opened: of one that is
	// prepared, maybe, and not of the one being written.
	prepares bool
}

// errDone says that the hook did the call itself.
var errDone = errors.New("done")

// faultFS shows every mutating call to hook before it happens. An error of the
// hook takes the place of the call.
type faultFS struct {
	vfs.FS
	mu    sync.Mutex
	n     int
	hook  func(call) error
	calls map[string]int
}

func newFaultFS(fs vfs.FS, hook func(call) error) *faultFS {
	return &faultFS{FS: fs, hook: hook, calls: map[string]int{}}
}

func (f *faultFS) at(c call) error {
	f.mu.Lock()
	c.n = f.n
	f.n++
	f.calls[c.kind]++
	hook := f.hook
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(c)
}

func (f *faultFS) set(hook func(call) error) {
	f.mu.Lock()
	f.hook = hook
	f.mu.Unlock()
}

// failSync lets the next sync of the segment being written fail, and none after it.
func (f *faultFS) failSync() {
	f.set(func(c call) error {
		if c.kind == "sync" && ofSegment(c) && !c.prepares {
			f.set(nil)
			return syscall.EIO
		}
		return nil
	})
}

func (f *faultFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.at(call{kind: "create", path: name}); err != nil {
		return nil, err
	}
	return f.wrap(name)(f.FS.Create(name, c))
}

func (f *faultFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := f.at(call{kind: "open", path: name}); err != nil {
		return nil, err
	}
	return f.wrap(name)(f.FS.OpenReadWrite(name, c, opts...))
}

func (f *faultFS) OpenDir(name string) (vfs.File, error) { return f.wrap(name)(f.FS.OpenDir(name)) }

func (f *faultFS) Remove(name string) error {
	if err := f.at(call{kind: "remove", path: name}); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultFS) Rename(from, to string) error {
	if err := f.at(call{kind: "rename", path: from, to: to}); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *faultFS) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(file vfs.File, err error) (vfs.File, error) {
		if err != nil {
			return nil, err
		}
		return &faultFile{File: file, fs: f, name: name}, nil
	}
}

// A faultFile forgets like a file of the operating system: after a sync that
// failed, what was not on the disk counts as clean, and later syncs succeed
// without writing it.
type faultFile struct {
	vfs.File
	fs     *faultFS
	name   string
	forgot atomic.Bool
	synced atomic.Bool
}

func (f *faultFile) WriteAt(b []byte, off int64) (int, error) {
	part := func(n int) { _, _ = f.File.WriteAt(b[:n], off) }
	if err := f.fs.at(call{kind: "write", path: f.name, part: part, size: len(b)}); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f *faultFile) Sync() error {
	kind := "sync"
	if base := f.fs.PathBase(f.name); base == "." || !strings.Contains(base, ".") && base != markName {
		kind = "dirsync"
	}
	switch err := f.fs.at(call{kind: kind, path: f.name, sync: f.File.Sync, prepares: !f.synced.Load()}); err {
	case nil:
		f.synced.Store(true)
		if f.forgot.Load() {
			return nil
		}
		return f.File.Sync()
	case errDone:
		return nil
	default:
		f.forgot.Store(true)
		return err
	}
}

func (f *faultFile) SyncData() error { return f.Sync() }
