package store

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// failurePause is how late a failed write is answered, since Pebble tries a
// compaction again at once.
const failurePause = 50 * time.Millisecond

// kv is one opened Pebble. When a write of its manifest fails it is dead:
// nobody knows which version is on disk, and what it holds in memory may be
// neither. It is then fenced off from the disk, still read from, and replaced
// by opening the directory again.
type kv struct {
	*pebble.DB
	fence   *fence
	changed atomic.Bool // something was taken in since it was opened
}

// fence stands between a Pebble and the file system. Once dead, every call that
// would make, move or remove a file ends its goroutine.
//
// It also keeps every table and manifest until Pebble has written a manifest of
// its own: the one that it read may be damaged, name less than there is, and
// be mended by somebody.
type fence struct {
	vfs.FS
	dir  string // of the Pebble
	log  *slog.Logger
	dead atomic.Bool
	once sync.Once
	gone chan struct{} // closed with dead
	why  string        // set before

	mu      sync.Mutex
	renewed bool     // it has a manifest of its own
	kept    []string // to be removed then
}

func newFence(fs vfs.FS, dir string, log *slog.Logger) *fence {
	return &fence{FS: fs, dir: dir, log: log, gone: make(chan struct{})}
}

// die is called when Pebble cannot go on, and does not return.
func (f *fence) die(why string) {
	f.once.Do(func() {
		f.log.Error("storage: the store must be opened again", "detail", why)
		f.why = why
		f.dead.Store(true)
		close(f.gone)
	})
	runtime.Goexit()
}

func (f *fence) check() {
	if f.dead.Load() {
		runtime.Goexit()
	}
}

// guarded runs fn, a call of the Pebble behind the fence, in a goroutine of its own, which may be
// ended in the middle. It does not wait for it once the Pebble is dead: it may be waiting for another
// goroutine that has ended.
func (f *fence) guarded(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errBroken
		defer func() { done <- err }()
		err = fn()
	}()
	select {
	case err := <-done:
		if !errors.Is(err, errBroken) {
			return err
		}
	case <-f.gone:
	}
	return fmt.Errorf("%w: %s", errBroken, f.why)
}

func late(err error) error {
	if err != nil {
		time.Sleep(failurePause)
	}
	return err
}

func (f *fence) file(h vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return fencedFile{h, f}, nil
}

func (f *fence) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.check()
	h, err := f.FS.Create(name, c)
	return f.file(h, late(err))
}

func (f *fence) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return openTable(f.FS, name, opts...)
}

func (f *fence) Link(oldname, newname string) error {
	f.check()
	return f.FS.Link(oldname, newname)
}

func (f *fence) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f.check()
	h, err := f.FS.OpenReadWrite(name, c, opts...)
	return f.file(h, err)
}

func (f *fence) OpenDir(name string) (vfs.File, error) {
	h, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return fencedDir{fencedFile{h, f}, name}, nil
}

func (f *fence) Remove(name string) error {
	f.check()
	if f.keep(name) {
		return nil
	}
	return f.FS.Remove(name)
}

// keep reports whether a file that Pebble has no use for stays for now.
func (f *fence) keep(name string) bool {
	base := f.FS.PathBase(name)
	if f.FS.PathDir(name) != f.dir || !strings.HasSuffix(base, ".sst") && !strings.HasPrefix(base, "MANIFEST-") {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.renewed {
		f.kept = append(f.kept, name)
	}
	return !f.renewed
}

// release removes what was kept. What it misses is found by the next Open.
func (f *fence) release() {
	f.mu.Lock()
	kept := f.kept
	f.kept, f.renewed = nil, true
	f.mu.Unlock()
	for _, name := range kept {
		if err := f.FS.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			f.log.Warn("storage: a file that is not needed could not be removed; the next start tries again", "file", name, "error", err)
		}
	}
}

func (f *fence) RemoveAll(name string) error {
	f.check()
	return f.FS.RemoveAll(name)
}

func (f *fence) Rename(oldname, newname string) error {
	f.check()
	return f.FS.Rename(oldname, newname)
}

func (f *fence) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.check()
	h, err := f.FS.ReuseForWrite(oldname, newname, c)
	return f.file(h, err)
}

func (f *fence) MkdirAll(dir string, perm os.FileMode) error {
	f.check()
	return f.FS.MkdirAll(dir, perm)
}

// Lock does nothing: the caller of Open holds the lock of the data directory,
// and a dead Pebble must not keep the next one out.
func (f *fence) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (f *fence) Unwrap() vfs.FS { return f.FS }

// fencedFile is a file behind a fence. Once that is dead, every call that would change the file fails:
// not every goroutine of Pebble that writes may be ended.
type fencedFile struct {
	vfs.File
	fence *fence
}

func (h fencedFile) check() error {
	if h.fence.dead.Load() {
		return errBroken
	}
	return nil
}

func (h fencedFile) Write(p []byte) (n int, err error) {
	if err = h.check(); err == nil {
		n, err = h.File.Write(p)
	}
	return n, late(err)
}

func (h fencedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := h.check(); err != nil {
		return 0, err
	}
	return h.File.WriteAt(p, off)
}

func (h fencedFile) Preallocate(off, length int64) error {
	if err := h.check(); err != nil {
		return err
	}
	return h.File.Preallocate(off, length)
}

func (h fencedFile) Sync() error {
	err := h.check()
	if err == nil {
		err = h.File.Sync()
	}
	return late(err)
}

func (h fencedFile) SyncData() error {
	err := h.check()
	if err == nil {
		err = h.File.SyncData()
	}
	return late(err)
}

func (h fencedFile) SyncTo(length int64) (bool, error) {
	if err := h.check(); err != nil {
		return false, err
	}
	return h.File.SyncTo(length)
}

// fencedDir is a directory behind a fence. Pebble panics if the sync behind a new manifest fails.
type fencedDir struct {
	fencedFile
	name string
}

func (h fencedDir) Sync() error {
	err := h.fencedFile.Sync()
	if err != nil {
		h.fence.die(fmt.Sprintf("sync of %s: %v", h.name, err))
	}
	return err
}
