package engine

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/weirmq/weir/internal/api"
)

var errNotThere = errors.New("the data directory is not where it was opened; put it back, or stop the server")

func errMovedAway() error {
	return &api.Error{Code: api.CodeInternal, Message: "the data directory is not where it was opened; nothing of this call has taken effect", Err: errNotThere}
}

// InPlace returns an error if the data directory is not where it was opened. What is not the
// engine's and is kept there is changed only if it is.
func (e *Engine) InPlace() error {
	defer guard()
	if _, err := e.opt.FS.Stat(e.opt.Dir); errors.Is(err, errNotThere) {
		return errMovedAway()
	}
	return nil
}

// heldFS is the file system of a data directory that this process holds. Its calls go by path,
// and fail while that leads to another directory or to none: what they would find or change
// there may be another server's.
type heldFS struct {
	vfs.FS
	path string
	dir  *os.File
}

func (f heldFS) check() error {
	there, err := os.Stat(f.path)
	held, herr := f.dir.Stat()
	if errors.Is(err, os.ErrNotExist) || err == nil && herr == nil && !os.SameFile(there, held) {
		return fmt.Errorf("%s: %w", f.path, errNotThere)
	}
	return nil // or the call says what is wrong
}

func checked[T any](f heldFS, call func() (T, error)) (T, error) {
	if err := f.check(); err != nil {
		var none T
		return none, err
	}
	return call()
}

func (f heldFS) Unwrap() vfs.FS { return f.FS }

func (f heldFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return checked(f, func() (vfs.File, error) { return f.FS.Create(name, c) })
}

func (f heldFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return checked(f, func() (vfs.File, error) { return f.FS.Open(name, opts...) })
}

func (f heldFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return checked(f, func() (vfs.File, error) { return f.FS.OpenReadWrite(name, c, opts...) })
}

func (f heldFS) OpenDir(name string) (vfs.File, error) {
	return checked(f, func() (vfs.File, error) { return f.FS.OpenDir(name) })
}

func (f heldFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return checked(f, func() (vfs.File, error) { return f.FS.ReuseForWrite(from, to, c) })
}

func (f heldFS) List(dir string) ([]string, error) {
	return checked(f, func() ([]string, error) { return f.FS.List(dir) })
}

func (f heldFS) Stat(name string) (vfs.FileInfo, error) {
	return checked(f, func() (vfs.FileInfo, error) { return f.FS.Stat(name) })
}

func (f heldFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	return checked(f, func() (vfs.DiskUsage, error) { return f.FS.GetDiskUsage(path) })
}

// CountFiles makes the file system a fileCounter.
func (f heldFS) CountFiles(path string) (free, total uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, 0, err
	}
	return st.Ffree, st.Files, nil
}

func (f heldFS) Link(from, to string) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.FS.Link(from, to)
}

func (f heldFS) Remove(name string) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f heldFS) RemoveAll(name string) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.FS.RemoveAll(name)
}

func (f heldFS) Rename(from, to string) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f heldFS) MkdirAll(dir string, perm os.FileMode) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir, perm)
}
